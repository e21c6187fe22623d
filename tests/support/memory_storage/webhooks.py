"""Webhooks, deliveries and attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.ids import AccountId, DeliveryId, KeyId, WebhookId
from domain.keys.model import ApiKey
from domain.webhooks.model import UNDELIVERED, DeliveryAttempt, Webhook, WebhookDelivery, WebhookDeliveryState, WebhookRecovery
from support.memory_storage.tables import Database, Table

WEBHOOKS: Table[WebhookId, Webhook] = Table("webhooks")
DELIVERIES: Table[int, WebhookDelivery] = Table("deliveries")
RECOVERIES: Table[WebhookId, WebhookRecovery] = Table("webhook_recoveries")
ATTEMPTS: Table[DeliveryId, DeliveryAttempt] = Table("attempts")
_API_KEYS: Table[KeyId, ApiKey] = Table("keys")


class MemoryWebhookRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, webhook: Webhook) -> None:
        self._database.writable_rows(WEBHOOKS)[webhook.webhook_id] = webhook

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        webhook = self._database.rows(WEBHOOKS).get(webhook_id)
        return webhook if webhook is not None and webhook.account_id == account_id else None

    async def get_for_update(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        return await self.get(account_id, webhook_id)

    async def find(self, webhook_id: WebhookId) -> Webhook | None:
        return self._database.rows(WEBHOOKS).get(webhook_id)

    async def list_by_account(self, account_id: AccountId) -> Sequence[Webhook]:
        return [webhook for webhook in self._database.rows(WEBHOOKS).values() if webhook.account_id == account_id]

    async def list_enabled(self, account_ids: Sequence[AccountId]) -> Sequence[tuple[Webhook, int | None]]:
        keys, accounts = self._database.rows(_API_KEYS), set(account_ids)
        mine = [
            webhook for webhook in self._database.rows(WEBHOOKS).values() if webhook.account_id in accounts and webhook.enabled
        ]
        live = [webhook for webhook in mine if webhook.key_id in keys and keys[webhook.key_id].enabled]
        return [(webhook, keys[webhook.key_id].expires_ms) for webhook in live]

    async def save(self, webhook: Webhook) -> None:
        rows = self._database.writable_rows(WEBHOOKS)
        if webhook.webhook_id in rows:
            rows[webhook.webhook_id] = webhook

    async def list_page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        rows = self._database.rows(WEBHOOKS)
        return [rows[key] for key in sorted(rows) if after is None or key > after][:limit]

    async def count_sealed(self) -> int:
        return 2 * len(self._database.rows(WEBHOOKS))

    async def rekey(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        rows = self._database.writable_rows(WEBHOOKS)
        if webhook_id not in rows or rows[webhook_id].sealed_secret != before:
            return False
        rows[webhook_id] = replace(rows[webhook_id], sealed_secret=after)
        return True

    async def rekey_url(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        rows = self._database.writable_rows(WEBHOOKS)
        if webhook_id not in rows or rows[webhook_id].sealed_url != before:
            return False
        rows[webhook_id] = replace(rows[webhook_id], sealed_url=after)
        return True

    async def delete(self, webhook_id: WebhookId) -> None:
        delete_webhook(self._database, webhook_id)


def delete_webhook(database: Database, webhook_id: WebhookId) -> None:
    database.delete(WEBHOOKS, [webhook_id])
    database.delete(RECOVERIES, [webhook_id])


def delete_deliveries(database: Database, numbers: list[int]) -> int:
    gone = set(numbers)
    database.delete(ATTEMPTS, [key for key, attempt in database.rows(ATTEMPTS).items() if attempt.delivery_no in gone])
    return database.delete(DELIVERIES, numbers)


class MemoryDeliveryRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_many(self, deliveries: Sequence[WebhookDelivery]) -> None:
        webhooks = self._database.rows(WEBHOOKS)
        for delivery in deliveries:
            if delivery.webhook_id in webhooks:
                no = self._database.next_value("delivery_no")
                self._database.writable_rows(DELIVERIES)[no] = replace(delivery, no=no)

    async def get(self, no: int) -> WebhookDelivery | None:
        return self._database.rows(DELIVERIES).get(no)

    async def claim(self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()) -> Sequence[WebhookDelivery]:
        rows = self._database.writable_rows(DELIVERIES)
        free = [d for d in self._pending() if _ready_ms(d) <= now_ms and d.webhook_id not in set(busy)]
        chosen = sorted(free, key=lambda delivery: (_ready_ms(delivery), delivery.no))[:limit]
        for delivery in chosen:
            rows[delivery.no] = replace(delivery, claimed_until_ms=until_ms)
        return [rows[delivery.no] for delivery in chosen]

    async def finish_many(self, deliveries: Sequence[WebhookDelivery]) -> None:
        rows = self._database.writable_rows(DELIVERIES)
        for delivery in deliveries:
            stored = rows.get(delivery.no)
            if stored is None or stored.state is not WebhookDeliveryState.PENDING:
                continue
            if stored.claimed_until_ms == delivery.claimed_until_ms:
                rows[delivery.no] = replace(
                    stored, state=delivery.state, attempts=delivery.attempts, due_ms=delivery.due_ms, claimed_until_ms=None
                )

    async def next_due_ms(self) -> int | None:
        return min((_ready_ms(delivery) for delivery in self._pending()), default=None)

    async def cancel_pending(self, webhook_id: WebhookId, limit: int) -> int:
        rows = self._database.writable_rows(DELIVERIES)
        chosen = [delivery for delivery in self._pending() if delivery.webhook_id == webhook_id][:limit]
        for delivery in chosen:
            rows[delivery.no] = replace(delivery, state=WebhookDeliveryState.CANCELLED, claimed_until_ms=None)
        return len(chosen)

    async def has_pending(self, webhook_id: WebhookId) -> bool:
        return any(delivery.webhook_id == webhook_id for delivery in self._pending())

    async def add_attempts(self, attempts: Sequence[DeliveryAttempt]) -> None:
        rows = self._database.writable_rows(ATTEMPTS)
        for attempt in attempts:
            rows[attempt.delivery_id] = replace(attempt, seq=self._database.next_value("attempt_seq"))

    async def finish_attempts(self, attempts: Sequence[DeliveryAttempt]) -> None:
        rows = self._database.writable_rows(ATTEMPTS)
        for attempt in attempts:
            if attempt.delivery_id in rows:
                rows[attempt.delivery_id] = replace(attempt, seq=rows[attempt.delivery_id].seq)

    async def delete_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        self._database.delete(ATTEMPTS, list(delivery_ids))

    async def list_attempts(
        self, webhook_id: WebhookId, limit: int, before: int | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[DeliveryAttempt]:
        mine = [attempt for attempt in self._database.rows(ATTEMPTS).values() if attempt.webhook_id == webhook_id]
        mine = [attempt for attempt in mine if created.contains(attempt.created_ms)]
        return [attempt for attempt in mine[::-1] if before is None or attempt.seq < before][:limit]

    async def get_attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> DeliveryAttempt | None:
        found = self._database.rows(ATTEMPTS).get(delivery_id)
        return found if found is not None and found.webhook_id == webhook_id else None

    async def find_orphaned_webhook_id(self) -> WebhookId | None:
        webhooks = self._database.rows(WEBHOOKS)
        return next((d.webhook_id for d in self._database.rows(DELIVERIES).values() if d.webhook_id not in webhooks), None)

    async def delete_batch_by_webhook(self, webhook_id: WebhookId, limit: int, *, after: int = 0) -> Sequence[int]:
        mine = sorted(d.no for d in self._database.rows(DELIVERIES).values() if d.webhook_id == webhook_id and d.no > after)[
            :limit
        ]
        delete_deliveries(self._database, mine)
        return mine

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        finished = [d for d in self._database.rows(DELIVERIES).values() if d.state is not WebhookDeliveryState.PENDING]
        return delete_deliveries(self._database, [d.no for d in finished if d.created_ms < created_ms][:limit])

    async def find_undelivered(self, recovery: WebhookRecovery) -> WebhookDelivery | None:
        return next(iter(self._undelivered(recovery)), None)

    async def count_undelivered(self, recovery: WebhookRecovery, limit: int) -> int:
        return min(limit, len(self._undelivered(recovery)))

    async def revive(self, no: int, due_ms: int) -> None:
        rows = self._database.writable_rows(DELIVERIES)
        if no in rows and rows[no].state in UNDELIVERED:
            rows[no] = replace(rows[no], state=WebhookDeliveryState.PENDING, attempts=0, due_ms=due_ms, claimed_until_ms=None)

    def _undelivered(self, recovery: WebhookRecovery) -> list[WebhookDelivery]:
        rows = self._database.rows(DELIVERIES).values()
        mine = [one for one in rows if one.webhook_id == recovery.webhook_id and one.state in UNDELIVERED]
        position = (recovery.from_ms, recovery.after_no)
        following = [one for one in mine if (one.created_ms, one.no) > position and one.created_ms <= recovery.until_ms]
        return sorted(following, key=lambda one: (one.created_ms, one.no))

    def _pending(self) -> list[WebhookDelivery]:
        return [d for d in self._database.rows(DELIVERIES).values() if d.state is WebhookDeliveryState.PENDING]


def _ready_ms(delivery: WebhookDelivery) -> int:
    """The Unix ms from which it may be claimed: its due time or the end of its lease."""
    return delivery.due_ms if delivery.claimed_until_ms is None else delivery.claimed_until_ms


class MemoryWebhookRecoveryRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_for_update(self, webhook_id: WebhookId) -> WebhookRecovery | None:
        return self._database.rows(RECOVERIES).get(webhook_id)

    async def list_ready(self, after: WebhookId | None, limit: int) -> Sequence[WebhookRecovery]:
        deliveries = self._database.rows(DELIVERIES)
        pending = {no for no, one in deliveries.items() if one.state is WebhookDeliveryState.PENDING}
        rows = sorted(self._database.rows(RECOVERIES).items())
        return [one for key, one in rows if key > (after or "") and one.current_no not in pending][:limit]

    async def has_any(self) -> bool:
        return bool(self._database.rows(RECOVERIES))

    async def save(self, recovery: WebhookRecovery) -> None:
        self._database.writable_rows(RECOVERIES)[recovery.webhook_id] = recovery

    async def delete(self, webhook_id: WebhookId) -> None:
        self._database.delete(RECOVERIES, [webhook_id])
