"""Webhooks: make, change, rotate, end, try out, and see what became of each delivery."""

from __future__ import annotations

from quart import Blueprint

from adapters.http.auth import Access, current_session
from adapters.http.operation import operation
from adapters.http.schema import Done
from adapters.http.webhooks_schema import (
    AttemptReply,
    Begun,
    MadeWebhook,
    NewWebhook,
    RotatedSecret,
    WebhookChanges,
    WebhookReply,
    attempt_reply,
    webhook_reply,
)
from domain.webhooks.log import DeliveryLog
from domain.webhooks.service import WebhookService

TAG = "Webhooks"
MISSING = {403: "ROLE_REQUIRED", 404: "NOT_FOUND"}
BY_HAND = {403: "ROLE_REQUIRED GRANT_MISSING", 404: "NOT_FOUND", 409: "WEBHOOK_DISABLED"}


def webhooks_blueprint(webhooks: WebhookService, log: DeliveryLog) -> Blueprint:
    bp = Blueprint("webhooks", __name__, url_prefix="/api/v1")
    _manage(bp, webhooks)
    _deliver(bp, webhooks, log)
    return bp


def _manage(bp: Blueprint, webhooks: WebhookService) -> None:
    @operation(bp, "GET", "/webhooks", tag=TAG, access=Access.SESSION, summary="The account's webhooks, oldest first")
    async def list_webhooks() -> list[WebhookReply]:
        """Of all keys. The secret is shown when it is made or rotated, and never again."""
        return [webhook_reply(webhook) for webhook in await webhooks.list(current_session())]

    @operation(
        bp,
        "POST",
        "/webhooks",
        tag=TAG,
        access=Access.SESSION,
        summary="Create a webhook",
        status=201,
        errors={403: "ROLE_REQUIRED", 409: "WEBHOOK_LIMIT"},
        idempotent=True,
    )
    async def create_webhook(body: NewWebhook) -> MadeWebhook:
        """It gets every event of every device that the key's grants let it see."""
        made = await webhooks.create(current_session(), key_id=body.key_id, url=body.url)
        hook = made.webhook
        return MadeWebhook(
            webhook_id=hook.webhook_id, key_id=hook.key_id, url=hook.url, enabled=hook.enabled, secret=made.secret
        )

    @operation(
        bp,
        "PATCH",
        "/webhooks/<webhook_id>",
        tag=TAG,
        access=Access.SESSION,
        summary="Change a webhook's url, disable or enable it",
        errors=MISSING,
    )
    async def change_webhook(webhook_id: str, body: WebhookChanges) -> Done:
        """Disabling drops what is still owed; enabling begins anew."""
        await webhooks.change(current_session(), webhook_id, url=body.url, enabled=body.enabled)
        return Done()

    @operation(
        bp,
        "DELETE",
        "/webhooks/<webhook_id>",
        tag=TAG,
        access=Access.SESSION,
        summary="Delete a webhook with its deliveries",
        errors=MISSING,
    )
    async def delete_webhook(webhook_id: str) -> Done:
        """What is still owed to it is dropped."""
        await webhooks.delete(current_session(), webhook_id)
        return Done()


def _deliver(bp: Blueprint, webhooks: WebhookService, log: DeliveryLog) -> None:
    @operation(
        bp,
        "POST",
        "/webhooks/<webhook_id>/rotate-secret",
        tag=TAG,
        access=Access.SESSION,
        summary="Replace the signing secret at once",
        errors=MISSING,
        idempotent=True,
    )
    async def rotate_secret(webhook_id: str) -> RotatedSecret:
        """Deliveries from now on are signed with the new secret, those that are tried again too."""
        made = await webhooks.rotate_secret(current_session(), webhook_id)
        return RotatedSecret(webhook_id=made.webhook.webhook_id, secret=made.secret)

    @operation(
        bp,
        "GET",
        "/webhooks/<webhook_id>/deliveries",
        tag=TAG,
        access=Access.SESSION,
        summary="The last 50 attempts, newest first",
        errors={404: "NOT_FOUND"},
    )
    async def list_deliveries(webhook_id: str) -> list[AttemptReply]:
        """Newest first, one entry for each attempt."""
        return [attempt_reply(attempt) for attempt in await log.newest(current_session(), webhook_id)]

    @operation(
        bp,
        "POST",
        "/webhooks/<webhook_id>/ping",
        tag=TAG,
        access=Access.SESSION,
        summary="Send a test event",
        errors=BY_HAND,
        idempotent=True,
    )
    async def ping_webhook(webhook_id: str) -> Begun:
        """A delivery of the type `ping`, at once."""
        return Begun(delivery_id=await log.ping(current_session(), webhook_id))

    @operation(
        bp,
        "POST",
        "/webhooks/<webhook_id>/deliveries/<delivery_id>/redeliver",
        tag=TAG,
        access=Access.SESSION,
        summary="Send the event of an earlier attempt again",
        errors=BY_HAND,
        idempotent=True,
    )
    async def redeliver(webhook_id: str, delivery_id: str) -> Begun:
        """The same event once more, as a delivery of its own."""
        return Begun(delivery_id=await log.redeliver(current_session(), webhook_id, delivery_id))
