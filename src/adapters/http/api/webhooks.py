"""Webhooks: create, change and delete them, rotate the secret, send a test event, list and repeat deliveries."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageLimit, PageQueryParameters, TimedPageQueryParameters, list_response, page_response
from adapters.http.core.schemas import (
    EnumValue,
    IdText,
    InstantMs,
    OkResponse,
    PatchBody,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from domain.events.model import DEFAULT_TYPES, PUBLIC_TYPES
from domain.webhooks.delivery_log import LISTED_ATTEMPTS, WebhookDeliveryLogService
from domain.webhooks.model import DeliveryAttempt, Webhook, WebhookFormat
from domain.webhooks.recovery import WebhookRecoveryService
from domain.webhooks.service import WebhookService

Url = Annotated[str, Field(min_length=1, max_length=2048, examples=["https://example.com/hooks/latchboard"])]
FORMAT = (
    "`standard`: the envelope that the documents describe. The others: a CloudEvent 1.0, in structured or binary content mode."
)

EventTypes = Annotated[
    list[Annotated[str, Field(max_length=64)]],
    Field(
        max_length=len(PUBLIC_TYPES),
        json_schema_extra={"items": {"type": "string", "enum": sorted(PUBLIC_TYPES)}},
        description=f"The event types to send. Default: {', '.join(DEFAULT_TYPES)}.",
    ),
]


class WebhookCreateRequest(RequestBodyModel):
    key_id: IdText[str]
    url: Url
    types: EventTypes | None = None
    format: Annotated[EnumValue[WebhookFormat], Field(description=FORMAT)] = WebhookFormat.STANDARD


class WebhookUpdateRequest(PatchBody):
    url: Url | None = None
    enabled: bool | None = None
    types: EventTypes | None = None
    format: Annotated[EnumValue[WebhookFormat], Field(description=FORMAT)] | None = None


class WebhookDetailsResponse(ResponseModel):
    webhook_id: str
    key_id: str
    url: str = Field(description="For a Member or Viewer only its scheme and host: the rest often contains a secret.")
    types: list[str]
    format: WebhookFormat
    secret_prefix: str
    enabled: bool
    disabled_reason: str | None
    created_at: Timestamp
    updated_at: Timestamp


class WebhookChangedResponse(WebhookDetailsResponse):
    ok: bool = True


class WebhookCreatedResponse(WebhookDetailsResponse):
    secret: str = Field(description="Shown only in this response.")


class WebhookSecretRotatedResponse(WebhookDetailsResponse):
    secret: str = Field(description="Shown only in this response. The old secret is no longer used.")


class DeliveryAttemptResponse(ResponseModel):
    delivery_id: str
    webhook_event_id: str = Field(description="The id of the event, the same for all attempts.")
    event_type: str
    device_id: str | None
    attempt: int
    status_code: int | None
    error: str | None
    succeeded: bool
    created_at: Timestamp
    duration_ms: int | None = Field(description="Null while the attempt is running, and if it was interrupted.")
    next_attempt_at: Timestamp | None

    @classmethod
    def from_domain(cls, attempt: DeliveryAttempt) -> DeliveryAttemptResponse:
        return cls.of(attempt, webhook_event_id=attempt.event_id, attempt=attempt.number)


class DeliveryStartedResponse(OkResponse):
    delivery_id: str


class WebhookRecoverRequest(RequestBodyModel):
    since: InstantMs = Field(description="Unix milliseconds or ISO 8601, inclusive: when the event was stored.")


class WebhookRecoveryStartedResponse(OkResponse):
    deliveries: int = Field(description="How many are sent again, counted up to 10,000.")


Details = TypeVar("Details", bound=WebhookDetailsResponse)

WEBHOOK_ERRORS = {403: "ROLE_REQUIRED"}
MANUAL_DELIVERY_ERRORS = {403: "ROLE_REQUIRED GRANT_MISSING", 409: "WEBHOOK_DISABLED"}


class DeliveryAttemptsQueryParameters(TimedPageQueryParameters):
    limit: PageLimit = LISTED_ATTEMPTS


def webhooks_blueprint(
    webhooks: WebhookService, log: WebhookDeliveryLogService, recoveries: WebhookRecoveryService
) -> ApiBlueprint:
    bp = ApiBlueprint("webhooks", "Webhooks")

    @bp.operation("GET /webhooks", AllowedCallers.SESSION, "List webhooks")
    async def list_webhooks(query: PageQueryParameters) -> HttpHandlerResult[list[WebhookDetailsResponse]]:
        """The webhooks of all API keys, oldest first. A secret is shown only when it is created or rotated."""

        def show(one: Webhook) -> WebhookDetailsResponse:
            return _shown(one, WebhookDetailsResponse)

        return list_response(await webhooks.list(current_session()), query, show, lambda one: (one.created_ms, one.webhook_id))

    @bp.operation("GET /webhooks/<webhook_id>", AllowedCallers.SESSION, "Get a webhook")
    async def get_webhook(webhook_id: str) -> WebhookDetailsResponse:
        """Without its secret."""
        return _shown(await webhooks.get(current_session(), webhook_id), WebhookDetailsResponse)

    def _shown(webhook: Webhook, kind: type[Details], **given: object) -> Details:
        return kind.of(webhook, url=webhooks.visible_url(current_session(), webhook), types=webhook.wanted_types, **given)

    @bp.operation(
        "POST /webhooks",
        AllowedCallers.SESSION,
        "Create a webhook",
        status=201,
        errors={403: "ROLE_REQUIRED", 409: "WEBHOOK_LIMIT"},
        authority=AuthorityMade("webhook_created", "DELETE /webhooks/{webhookId}"),
        idempotent=True,
    )
    async def create_webhook(body: WebhookCreateRequest) -> WebhookCreatedResponse:
        """The webhook receives the events of its `types` of the devices that the grants of its key cover."""
        made = await webhooks.create(
            current_session(), key_id=body.key_id, url=body.url, types=body.types, webhook_format=body.format
        )
        return _shown(made.webhook, WebhookCreatedResponse, secret=made.secret)

    @bp.operation(
        "PATCH /webhooks/<webhook_id>",
        AllowedCallers.SESSION,
        "Change, disable or enable a webhook",
        errors=WEBHOOK_ERRORS,
        authority=AuthorityMade("webhook_updated", "DELETE /webhooks/{webhookId}", when="it is enabled afterwards"),
    )
    async def update_webhook(webhook_id: str, body: WebhookUpdateRequest) -> WebhookChangedResponse:
        """Disabling a webhook discards its pending deliveries. Enabling it again delivers new events only."""
        await webhooks.update(
            current_session(), webhook_id, url=body.url, enabled=body.enabled, types=body.types, webhook_format=body.format
        )
        return _shown(await webhooks.get(current_session(), webhook_id), WebhookChangedResponse)

    @bp.operation("DELETE /webhooks/<webhook_id>", AllowedCallers.SESSION, "Delete a webhook", errors=WEBHOOK_ERRORS)
    async def delete_webhook(webhook_id: str) -> None:
        """Also deletes its delivery log and discards pending deliveries."""
        await webhooks.delete(current_session(), webhook_id)

    @bp.operation(
        "POST /webhooks/<webhook_id>/rotate-secret",
        AllowedCallers.SESSION,
        "Rotate the signing secret",
        errors=WEBHOOK_ERRORS,
        authority=AuthorityMade("webhook_secret_rotated", "DELETE /webhooks/{webhookId}"),
        idempotent=True,
    )
    async def rotate_webhook_secret(webhook_id: str) -> WebhookSecretRotatedResponse:
        """All deliveries from now on are signed with the new secret, including retries."""
        made = await webhooks.rotate_secret(current_session(), webhook_id)
        return _shown(made.webhook, WebhookSecretRotatedResponse, secret=made.secret)

    _add_delivery_routes(bp, log, recoveries)
    return bp


def _add_delivery_routes(bp: ApiBlueprint, log: WebhookDeliveryLogService, recoveries: WebhookRecoveryService) -> None:
    @bp.operation("GET /webhooks/<webhook_id>/deliveries", AllowedCallers.SESSION, "List delivery attempts")
    async def list_webhook_deliveries(
        webhook_id: str, query: DeliveryAttemptsQueryParameters
    ) -> HttpHandlerResult[list[DeliveryAttemptResponse]]:
        """Newest first."""
        found = await log.list_attempts(
            current_session(), webhook_id, limit=query.limit + 1, before=query.number(), created=query.span
        )
        return page_response(found, query, DeliveryAttemptResponse.from_domain, lambda one: (one.seq,))

    @bp.operation("GET /webhooks/<webhook_id>/deliveries/<delivery_id>", AllowedCallers.SESSION, "Get a delivery attempt")
    async def get_webhook_delivery(webhook_id: str, delivery_id: str) -> DeliveryAttemptResponse:
        """As long as it is kept."""
        return DeliveryAttemptResponse.from_domain(await log.get_attempt(current_session(), webhook_id, delivery_id))

    @bp.operation(
        "POST /webhooks/<webhook_id>/ping",
        AllowedCallers.SESSION,
        "Send a test event",
        errors=MANUAL_DELIVERY_ERRORS,
        idempotent=True,
    )
    async def ping_webhook(webhook_id: str) -> DeliveryStartedResponse:
        """Sends an event of the type `ping` at once."""
        return DeliveryStartedResponse(delivery_id=await log.ping(current_session(), webhook_id))

    @bp.operation(
        "POST /webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver",
        AllowedCallers.SESSION,
        "Redeliver an event",
        errors=MANUAL_DELIVERY_ERRORS,
        idempotent=True,
    )
    async def redeliver_webhook(webhook_id: str, delivery_id: str) -> DeliveryStartedResponse:
        """Sends the event of an earlier delivery again, as a new delivery."""
        return DeliveryStartedResponse(delivery_id=await log.redeliver(current_session(), webhook_id, delivery_id))

    @bp.operation(
        "POST /webhooks/<webhook_id>/recover",
        AllowedCallers.SESSION,
        "Send again what was not delivered",
        errors={403: "ROLE_REQUIRED", 409: "WEBHOOK_DISABLED"},
        idempotent=True,
    )
    async def recover_webhook(webhook_id: str, body: WebhookRecoverRequest) -> WebhookRecoveryStartedResponse:
        """Sends the events since then whose deliveries failed or were cancelled: oldest first, each after the one before, at most
        20 in a second. What was delivered is not sent again, so it may be called again at any time."""
        return WebhookRecoveryStartedResponse(deliveries=await recoveries.start(current_session(), webhook_id, body.since))
