"""Webhooks, what is owed to them, and each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from adapters.storage.memory.shelves import Book, Shelf
from domain.kernel.ids import AccountId, DeliveryId, KeyId, WebhookId
from domain.keys.model import ApiKey
from domain.webhooks.model import Attempt, Delivery, DeliveryState, Webhook

WEBHOOKS: Shelf[WebhookId, Webhook] = Shelf("webhooks")
DELIVERIES: Shelf[int, Delivery] = Shelf("deliveries")
ATTEMPTS: Shelf[DeliveryId, Attempt] = Shelf("attempts")
_KEYS: Shelf[KeyId, ApiKey] = Shelf("keys")


class MemoryWebhooks:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, webhook: Webhook) -> None:
        self._book.edit(WEBHOOKS)[webhook.webhook_id] = webhook

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        webhook = self._book.rows(WEBHOOKS).get(webhook_id)
        return webhook if webhook is not None and webhook.account_id == account_id else None

    async def held(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        return await self.get(account_id, webhook_id)

    async def find(self, webhook_id: WebhookId) -> Webhook | None:
        return self._book.rows(WEBHOOKS).get(webhook_id)

    async def list(self, account_id: AccountId) -> Sequence[Webhook]:
        return [webhook for webhook in self._book.rows(WEBHOOKS).values() if webhook.account_id == account_id]

    async def live(self, account_ids: Sequence[AccountId]) -> Sequence[Webhook]:
        keys, accounts = self._book.rows(_KEYS), set(account_ids)
        mine = [webhook for webhook in self._book.rows(WEBHOOKS).values() if webhook.account_id in accounts and webhook.enabled]
        return [webhook for webhook in mine if webhook.key_id in keys and keys[webhook.key_id].enabled]

    async def save(self, webhook: Webhook) -> None:
        rows = self._book.edit(WEBHOOKS)
        if webhook.webhook_id in rows:
            rows[webhook.webhook_id] = webhook

    async def page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        rows = self._book.rows(WEBHOOKS)
        return [rows[key] for key in sorted(rows) if after is None or key > after][:limit]

    async def count(self) -> int:
        return len(self._book.rows(WEBHOOKS))

    async def reseal(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        rows = self._book.edit(WEBHOOKS)
        if webhook_id not in rows or rows[webhook_id].sealed_secret != before:
            return False
        rows[webhook_id] = replace(rows[webhook_id], sealed_secret=after)
        return True

    async def delete(self, webhook_id: WebhookId) -> None:
        drop_webhook(self._book, webhook_id)


def drop_webhook(book: Book, webhook_id: WebhookId) -> None:
    book.drop(WEBHOOKS, [webhook_id])


def drop_deliveries(book: Book, numbers: list[int]) -> int:
    gone = set(numbers)
    book.drop(ATTEMPTS, [key for key, attempt in book.rows(ATTEMPTS).items() if attempt.delivery_no in gone])
    return book.drop(DELIVERIES, numbers)


class MemoryDeliveries:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, deliveries: Sequence[Delivery]) -> None:
        webhooks = self._book.rows(WEBHOOKS)
        for delivery in deliveries:
            if delivery.webhook_id in webhooks:
                no = self._book.next("delivery_no")
                self._book.edit(DELIVERIES)[no] = replace(delivery, no=no)

    async def get(self, no: int) -> Delivery | None:
        return self._book.rows(DELIVERIES).get(no)

    async def claim(
        self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()
    ) -> Sequence[Delivery]:
        rows = self._book.edit(DELIVERIES)
        free = [d for d in self._pending() if _ready_ms(d) <= now_ms and d.webhook_id not in set(busy)]
        chosen = sorted(free, key=lambda delivery: (_ready_ms(delivery), delivery.no))[:limit]
        for delivery in chosen:
            rows[delivery.no] = replace(delivery, claimed_until_ms=until_ms)
        return [rows[delivery.no] for delivery in chosen]

    async def finish(self, delivery: Delivery) -> bool:
        rows = self._book.edit(DELIVERIES)
        stored = rows.get(delivery.no)
        if stored is None or stored.state is not DeliveryState.PENDING:
            return False
        if stored.claimed_until_ms != delivery.claimed_until_ms:
            return False
        rows[delivery.no] = replace(
            stored,
            state=delivery.state,
            attempts=delivery.attempts,
            due_ms=delivery.due_ms,
            claimed_until_ms=None,
        )
        return True

    async def finish_all(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await self.finish(delivery)

    async def next_due_ms(self) -> int | None:
        return min((_ready_ms(delivery) for delivery in self._pending()), default=None)

    async def cancel_of(self, webhook_id: WebhookId, limit: int) -> int:
        rows = self._book.edit(DELIVERIES)
        chosen = [delivery for delivery in self._pending() if delivery.webhook_id == webhook_id][:limit]
        for delivery in chosen:
            rows[delivery.no] = replace(delivery, state=DeliveryState.CANCELLED, claimed_until_ms=None)
        return len(chosen)

    async def owes(self, webhook_id: WebhookId) -> bool:
        return any(delivery.webhook_id == webhook_id for delivery in self._pending())

    async def start_attempt(self, attempts: Sequence[Attempt]) -> None:
        rows = self._book.edit(ATTEMPTS)
        for attempt in attempts:
            rows[attempt.delivery_id] = attempt

    async def finish_attempt(self, attempts: Sequence[Attempt]) -> None:
        rows = self._book.edit(ATTEMPTS)
        for attempt in attempts:
            if attempt.delivery_id in rows:
                rows[attempt.delivery_id] = attempt

    async def drop_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        self._book.drop(ATTEMPTS, list(delivery_ids))

    async def log(self, webhook_id: WebhookId, limit: int) -> Sequence[Attempt]:
        mine = [attempt for attempt in self._book.rows(ATTEMPTS).values() if attempt.webhook_id == webhook_id]
        return mine[::-1][:limit]

    async def attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Attempt | None:
        found = self._book.rows(ATTEMPTS).get(delivery_id)
        return found if found is not None and found.webhook_id == webhook_id else None

    async def left_over(self) -> WebhookId | None:
        webhooks = self._book.rows(WEBHOOKS)
        return next((d.webhook_id for d in self._book.rows(DELIVERIES).values() if d.webhook_id not in webhooks), None)

    async def forget_of(self, webhook_id: WebhookId, limit: int, *, after: int = 0) -> Sequence[int]:
        mine = sorted(d.no for d in self._book.rows(DELIVERIES).values() if d.webhook_id == webhook_id and d.no > after)[:limit]
        drop_deliveries(self._book, mine)
        return mine

    async def forget_before(self, created_ms: int, limit: int) -> int:
        settled = [d for d in self._book.rows(DELIVERIES).values() if d.state is not DeliveryState.PENDING]
        return drop_deliveries(self._book, [d.no for d in settled if d.created_ms < created_ms][:limit])

    def _pending(self) -> list[Delivery]:
        return [d for d in self._book.rows(DELIVERIES).values() if d.state is DeliveryState.PENDING]


def _ready_ms(delivery: Delivery) -> int:
    """When it may be claimed: when it is due, or when the lease of whoever has it runs out."""
    return delivery.due_ms if delivery.claimed_until_ms is None else delivery.claimed_until_ms
