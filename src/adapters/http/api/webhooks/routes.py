"""Webhook routes: create, change, delete, rotate the secret, send a test event, list and repeat deliveries."""

from __future__ import annotations

from adapters.http.api.webhooks import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.webhooks.delivery_log import WebhookDeliveryLogService
from domain.webhooks.service import WebhookService

WEBHOOK_ERRORS = {403: "ROLE_REQUIRED"}
MANUAL_DELIVERY_ERRORS = {403: "ROLE_REQUIRED GRANT_MISSING", 409: "WEBHOOK_DISABLED"}


def webhooks_blueprint(webhooks: WebhookService, log: WebhookDeliveryLogService) -> ApiBlueprint:
    bp = ApiBlueprint("webhooks", "Webhooks")

    @bp.operation("GET /webhooks", AllowedCallers.SESSION, "List webhooks")
    async def list_webhooks() -> list[schema.WebhookDetailsResponse]:
        """The webhooks of all API keys, oldest first. A secret is shown only when it is created or rotated."""
        caller = current_session()
        return [
            schema.WebhookDetailsResponse.of(each, url=webhooks.visible_url(caller, each), types=each.wanted_types)
            for each in await webhooks.list(caller)
        ]

    @bp.operation(
        "POST /webhooks",
        AllowedCallers.SESSION,
        "Create a webhook",
        status=201,
        errors={403: "ROLE_REQUIRED", 409: "WEBHOOK_LIMIT"},
        idempotent=True,
    )
    async def create_webhook(body: schema.WebhookCreateRequest) -> schema.WebhookCreatedResponse:
        """The webhook receives the events of its `types` of the devices that the grants of its key cover."""
        made = await webhooks.create(
            current_session(), key_id=body.key_id, url=body.url, types=body.types, webhook_format=body.format
        )
        return schema.WebhookCreatedResponse.of(made.webhook, made, url=body.url)

    @bp.operation(
        "PATCH /webhooks/<webhook_id>", AllowedCallers.SESSION, "Change, disable or enable a webhook", errors=WEBHOOK_ERRORS
    )
    async def update_webhook(webhook_id: str, body: schema.WebhookUpdateRequest) -> None:
        """Disabling a webhook discards its pending deliveries. Enabling it again delivers new events only."""
        await webhooks.update(
            current_session(), webhook_id, url=body.url, enabled=body.enabled, types=body.types, webhook_format=body.format
        )

    @bp.operation("DELETE /webhooks/<webhook_id>", AllowedCallers.SESSION, "Delete a webhook", errors=WEBHOOK_ERRORS)
    async def delete_webhook(webhook_id: str) -> None:
        """Also deletes its delivery log and discards pending deliveries."""
        await webhooks.delete(current_session(), webhook_id)

    @bp.operation(
        "POST /webhooks/<webhook_id>/rotate-secret",
        AllowedCallers.SESSION,
        "Rotate the signing secret",
        errors=WEBHOOK_ERRORS,
        idempotent=True,
    )
    async def rotate_webhook_secret(webhook_id: str) -> schema.WebhookSecretRotatedResponse:
        """All deliveries from now on are signed with the new secret, including retries."""
        made = await webhooks.rotate_secret(current_session(), webhook_id)
        return schema.WebhookSecretRotatedResponse(webhook_id=made.webhook.webhook_id, secret=made.secret)

    @bp.operation("GET /webhooks/<webhook_id>/deliveries", AllowedCallers.SESSION, "List delivery attempts")
    async def list_webhook_deliveries(webhook_id: str) -> list[schema.DeliveryAttemptResponse]:
        """The latest 50 attempts, newest first."""
        found = await log.list_attempts(current_session(), webhook_id)
        return [schema.DeliveryAttemptResponse.of(each, webhook_event_id=each.event_id, attempt=each.number) for each in found]

    @bp.operation(
        "POST /webhooks/<webhook_id>/ping",
        AllowedCallers.SESSION,
        "Send a test event",
        errors=MANUAL_DELIVERY_ERRORS,
        idempotent=True,
    )
    async def ping_webhook(webhook_id: str) -> schema.DeliveryStartedResponse:
        """Sends an event of the type `ping` at once."""
        return schema.DeliveryStartedResponse(delivery_id=await log.ping(current_session(), webhook_id))

    @bp.operation(
        "POST /webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver",
        AllowedCallers.SESSION,
        "Redeliver an event",
        errors=MANUAL_DELIVERY_ERRORS,
        idempotent=True,
    )
    async def redeliver_webhook(webhook_id: str, delivery_id: str) -> schema.DeliveryStartedResponse:
        """Sends the event of an earlier delivery again, as a new delivery."""
        return schema.DeliveryStartedResponse(delivery_id=await log.redeliver(current_session(), webhook_id, delivery_id))

    return bp
