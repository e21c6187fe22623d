"""Use cases of webhooks: create, update, rotate the secret, delete.

A secret is shown when it is created and never again. Secret and URL are stored encrypted and bound to the webhook's id. A change
applies to everything that has not been sent when it commits: `on_changed` cancels the attempts in flight, and every later attempt
reads the webhook again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from domain.events.model import PUBLIC_TYPES
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import Conflict, NotFound, SecretUnreadable, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, KeyId, WebhookId, has_id_format
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.service import referenced_api_key
from domain.sign_in.presence import require_fresh_proof
from domain.webhooks.model import (
    CANCEL_BATCH_ROWS,
    Webhook,
    WebhookFormat,
    new_secret,
    open_url,
    seal_url,
    shown_prefix,
    url_origin,
)
from domain.webhooks.policy import disable, enable
from domain.webhooks.ports import Courier, WebhooksTx

SECRET_BYTES = 32

MAX_WEBHOOKS_PER_KEY = 20


@dataclass(frozen=True, slots=True)
class WebhookWithSecret:
    """`secret` is shown once and not kept in plain text."""

    webhook: Webhook
    secret: str


@service
class WebhookService:
    """`on_changed` is called after the commit of a change, with the changed webhook; a deleted webhook is passed as disabled."""

    uow: UnitOfWork[WebhooksTx]
    clock: Clock
    ids: IdAndSecretGenerator
    vault: Vault
    courier: Courier
    on_changed: Callable[[Webhook], None]

    async def list(self, caller: SessionCaller) -> Sequence[Webhook]:
        async with self.uow.read() as tx:
            return await tx.webhooks.list_by_account(caller.account_id)

    async def get(self, caller: SessionCaller, webhook_id: str) -> Webhook:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            return await get_webhook(tx, caller, webhook_id)

    def visible_url(self, caller: SessionCaller, webhook: Webhook) -> str:
        """The whole URL for an Admin, otherwise scheme and host; also when no key of the ring opens it: then a new one can be
        entered."""
        if not caller.role.is_at_least(Role.ADMIN):
            return webhook.origin
        try:
            return open_url(self.vault, webhook)
        except SecretUnreadable:
            return webhook.origin

    async def create(
        self,
        caller: SessionCaller,
        *,
        key_id: str,
        url: str,
        types: Collection[str] | None = None,
        webhook_format: WebhookFormat = WebhookFormat.STANDARD,
    ) -> WebhookWithSecret:
        """`types`: the event types it wants; None: the default ones.

        Raises PermissionDenied, also `STEP_UP_REQUIRED`; ValidationFailed for an unknown key or a forbidden address; Conflict
        `WEBHOOK_LIMIT`."""
        require_role(caller, Role.ADMIN)
        self._check_url(url)
        now_ms = self.clock.now_ms()
        secret = new_secret(self.ids.random_bytes(SECRET_BYTES))
        webhook_id = WebhookId(self.ids.new_id(IdPrefix.WEBHOOK))
        webhook = Webhook(
            webhook_id=webhook_id,
            account_id=caller.account_id,
            key_id=KeyId(key_id),
            origin=url_origin(url),
            sealed_url=seal_url(self.vault, webhook_id, url),
            sealed_secret=self.vault.seal(secret, webhook_id),
            secret_prefix=shown_prefix(secret),
            generation=1,
            enabled=True,
            disabled_reason=None,
            failing_since_ms=None,
            created_ms=now_ms,
            updated_ms=now_ms,
            types=_check_types(types),
            format=webhook_format,
        )
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            await _require_key_with_capacity(tx, webhook)
            await tx.webhooks.add(webhook)
            self._emit(tx, caller, webhook, "webhook_created", f"Webhook to {webhook.host} was created")
        return WebhookWithSecret(webhook, secret)

    async def update(
        self,
        caller: SessionCaller,
        webhook_id: str,
        *,
        url: str | None = None,
        enabled: bool | None = None,
        types: Collection[str] | None = None,
        webhook_format: WebhookFormat | None = None,
    ) -> None:
        """Disabling cancels pending deliveries. Enabling forgets earlier failures.

        Raises PermissionDenied, `STEP_UP_REQUIRED` for what is enabled afterwards; ValidationFailed, NotFound."""
        require_role(caller, Role.ADMIN)
        if url is not None:
            self._check_url(url)
        wanted = _check_types(types)
        if enabled is True:
            await self._cancel_pending(caller, webhook_id)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            before = await get_webhook(tx, caller, webhook_id, for_update=True)
            after = before if url is None else self._with_url(before, url, now_ms)
            if types is not None:
                after = replace(after, types=wanted, updated_ms=now_ms)
            if webhook_format is not None:
                after = replace(after, format=webhook_format, updated_ms=now_ms)
            if enabled is True and not before.enabled:
                after = enable(after, now_ms)
            elif enabled is False and before.enabled:
                after = disable(after, None, now_ms)
            if replace(after, updated_ms=before.updated_ms) == before:
                return
            if after.enabled:
                await require_fresh_proof(tx, caller, now_ms)
            await tx.webhooks.save(after)
            description = f"Webhook to {after.host} was changed and is {'enabled' if after.enabled else 'disabled'}"
            self._emit(tx, caller, after, "webhook_updated", description)
            tx.after_commit(lambda: self.on_changed(after))

    async def rotate_secret(self, caller: SessionCaller, webhook_id: str) -> WebhookWithSecret:
        """From now on nothing is signed with the old secret, pending retries included. Raises PermissionDenied, also
        `STEP_UP_REQUIRED`, NotFound."""
        secret = new_secret(self.ids.random_bytes(SECRET_BYTES))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            before = await get_webhook(tx, caller, webhook_id, for_update=True)
            after = replace(
                before,
                sealed_secret=self.vault.seal(secret, before.webhook_id),
                secret_prefix=shown_prefix(secret),
                generation=before.generation + 1,
                updated_ms=now_ms,
            )
            await tx.webhooks.save(after)
            self._emit(tx, caller, after, "webhook_secret_rotated", f"Secret of the webhook to {after.host} was rotated")
            tx.after_commit(lambda: self.on_changed(after))
        return WebhookWithSecret(after, secret)

    async def delete(self, caller: SessionCaller, webhook_id: str) -> None:
        """Deletes the webhook with its deliveries and their log. Raises PermissionDenied, NotFound."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            webhook = await get_webhook(tx, caller, webhook_id)
            await tx.webhooks.delete(webhook.webhook_id)
            self._emit(tx, caller, webhook, "webhook_deleted", f"Webhook to {webhook.host} was deleted")
            tx.after_commit(lambda: self.on_changed(disable(webhook, None, now_ms)))

    async def _cancel_pending(self, caller: SessionCaller, webhook_id: str) -> None:
        """Cancels what was pending before the webhook was disabled, so that enabling it does not send it."""
        caller = replace(caller, precondition=None)  # it holds for the change that follows
        while True:
            async with self.uow.write(caller, Role.ADMIN) as tx:
                webhook = await get_webhook(tx, caller, webhook_id)
                if webhook.enabled:
                    return
                await require_fresh_proof(tx, caller, self.clock.now_ms())
                await tx.deliveries.cancel_pending(webhook.webhook_id, CANCEL_BATCH_ROWS)
                if not await tx.deliveries.has_pending(webhook.webhook_id):
                    return

    def _with_url(self, webhook: Webhook, url: str, now_ms: int) -> Webhook:
        """The same webhook if this is its URL already."""
        try:
            if open_url(self.vault, webhook) == url:
                return webhook
        except SecretUnreadable:
            pass  # the new URL replaces it
        sealed = seal_url(self.vault, webhook.webhook_id, url)
        return replace(webhook, origin=url_origin(url), sealed_url=sealed, generation=webhook.generation + 1, updated_ms=now_ms)

    def _check_url(self, url: str) -> None:
        rejection = self.courier.rejection_reason(url)
        if rejection is not None:
            raise ValidationFailed.for_field("url", rejection)

    def _emit(self, tx: WebhooksTx, caller: SessionCaller, webhook: Webhook, kind: EventKind, description: str) -> None:
        named = {"webhookId": webhook.webhook_id, "keyId": webhook.key_id, "host": webhook.host}
        tx.emit(event_of(caller, kind, description, self.clock.now_ms(), **named))


async def _require_key_with_capacity(tx: WebhooksTx, webhook: Webhook) -> None:
    await referenced_api_key(tx, webhook.account_id, webhook.key_id, "keyId")
    others = [other for other in await tx.webhooks.list_by_account(webhook.account_id) if other.key_id == webhook.key_id]
    if len(others) >= MAX_WEBHOOKS_PER_KEY:
        raise Conflict(
            f"A key has at most {MAX_WEBHOOKS_PER_KEY} webhooks. Delete one, or create another key.", code="WEBHOOK_LIMIT"
        )


async def get_webhook(tx: WebhooksTx, caller: SessionCaller, webhook_id: str, *, for_update: bool = False) -> Webhook:
    """Raises NotFound, also for a webhook of another account."""
    webhook = None
    if has_id_format(IdPrefix.WEBHOOK, webhook_id):
        find = tx.webhooks.get_for_update if for_update else tx.webhooks.get
        webhook = await find(caller.account_id, WebhookId(webhook_id))
    if webhook is None:
        raise NotFound.for_resource("webhook", webhook_id)
    return webhook


def _check_types(types: Collection[str] | None) -> tuple[str, ...] | None:
    """Each type once, in alphabetical order. Raises ValidationFailed for none, and for one that webhooks cannot receive."""
    if types is None:
        return None
    allowed = f"Use one or more of {', '.join(sorted(PUBLIC_TYPES))}."
    if not types:
        raise ValidationFailed.for_field("types", f"is empty. {allowed}")
    for index, name in enumerate(types):
        if name not in PUBLIC_TYPES:
            raise ValidationFailed.for_field(f"types.{index}", f"{name[:64]!r} is no event type of webhooks. {allowed}")
    return tuple(sorted(set(types)))
