"""What the webhooks part needs from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from domain.devices.ports import HasDevices
from domain.events.ports import EventLogTx
from domain.grants.ports import HasGrants
from domain.kernel.ids import AccountId, DeliveryId, WebhookId
from domain.kernel.unit_of_work import Transaction
from domain.keys.ports import HasApiKeys
from domain.webhooks.model import Attempt, Delivery, Webhook


class WebhookRepository(Protocol):
    async def add(self, webhook: Webhook) -> None: ...

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None: ...

    async def get_for_update(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        """As `get`; in a writing transaction nobody else changes or deletes it until that ends. What is saved must be read so."""
        ...

    async def find(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def list_by_account(self, account_id: AccountId) -> Sequence[Webhook]:
        """Oldest first."""
        ...

    async def list_enabled(self, account_ids: Sequence[AccountId]) -> Sequence[Webhook]:
        """Enabled ones of enabled keys, oldest first."""
        ...

    async def save(self, webhook: Webhook) -> None: ...

    async def list_page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        """Of all accounts, by id; for re-encryption after a key rotation."""
        ...

    async def count(self) -> int: ...

    async def rekey(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        """The same secret under another key. False, and nothing done, when what is stored is no longer `before`."""
        ...

    async def delete(self, webhook_id: WebhookId) -> None:
        """It is gone at once, and with it what it is owed: nothing of that is sent any more. The rows of its deliveries stay
        until `DeliveryRepository.forget_of` takes them; there may be millions."""
        ...


class DeliveryRepository(Protocol):
    async def add_many(self, deliveries: Sequence[Delivery]) -> None: ...

    async def get(self, no: int) -> Delivery | None: ...

    async def claim(self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()) -> Sequence[Delivery]:
        """PENDING, due and not under a lease, oldest due first, none of the `busy` webhooks: now under a lease until
        `until_ms`. Costs the same however much is owed to the busy ones. On PostgreSQL `FOR UPDATE SKIP LOCKED`."""
        ...

    async def finish_many(self, deliveries: Sequence[Delivery]) -> None:
        """Stores state, attempts and due time, and drops the lease. Skips a delivery that is deleted, no longer PENDING, or under
        another lease than its `claimed_until_ms`: an instance that has lost a delivery to another one changes nothing of it."""
        ...

    async def next_due_ms(self) -> int | None: ...

    async def cancel_pending(self, webhook_id: WebhookId, limit: int) -> int:
        """Up to `limit` PENDING ones are CANCELLED; how many. Those that another transaction is at are passed over."""
        ...

    async def has_pending(self, webhook_id: WebhookId) -> bool:
        """Whether any is PENDING."""
        ...

    async def add_attempts(self, attempts: Sequence[Attempt]) -> None: ...

    async def finish_attempts(self, attempts: Sequence[Attempt]) -> None: ...

    async def delete_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        """They never began."""
        ...

    async def list_attempts(self, webhook_id: WebhookId, limit: int) -> Sequence[Attempt]:
        """Newest first, by sequence."""
        ...

    async def get_attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Attempt | None: ...

    async def find_orphaned_webhook_id(self) -> WebhookId | None:
        """A webhook that is gone and has deliveries left. Costs the same however many."""
        ...

    async def delete_batch_by_webhook(self, webhook_id: WebhookId, limit: int, *, after: int = 0) -> Sequence[int]:
        """The first deliveries of a webhook whose number is above `after`, up to `limit` of them, with their attempts and
        whatever their state; their numbers, rising. Costs the same however many went before. Those that another transaction
        is at are passed over."""
        ...

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        """Settled deliveries with their attempts."""
        ...


class HasWebhooks(Protocol):
    @property
    def webhooks(self) -> WebhookRepository: ...


class HasDeliveries(Protocol):
    @property
    def deliveries(self) -> DeliveryRepository: ...


class RecipientTx(Transaction, HasDevices, HasGrants, HasWebhooks, Protocol): ...


class FanoutTx(EventLogTx, RecipientTx, HasDeliveries, Protocol):
    """Stores events together with their deliveries."""


class WebhookTx(Transaction, HasApiKeys, HasDeliveries, HasWebhooks, Protocol): ...


class DeliveryTx(RecipientTx, HasDeliveries, Protocol): ...


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    deadline_s: float
    queue_key: str = ""
    """Of those with the same name only `model.PER_WEBHOOK` are sent at once; empty: no lane."""


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """`status` is None when there was no complete answer; `error` then says why.

    `excerpt`: at most 4 KiB of the body, never decoded."""

    status: int | None
    error: str | None
    excerpt: bytes
    duration_ms: int
    retry_after_s: int | None = None


NOT_SENT = WebhookResponse(None, "Not sent yet: the lane was full.", b"", 0)
"""The lane had no place for a post within a quarter of a second, and nothing of it was sent. Known by identity."""


ResponseCallback: TypeAlias = "Callable[[Sequence[tuple[int, WebhookResponse]]], None]"
"""Hears replies, each with the ticket of its post, on the event loop."""


class Courier(Protocol):
    """Port for HTTP delivery. Whatever a receiver does, each post gets one reply, no later than its deadline after it could be
    sent, unless it is cut. Follows no redirect; connects to no forbidden address."""

    def on_responses(self, hearer: ResponseCallback) -> None:
        """Who hears the replies from now on."""
        ...

    def send(self, posts: Sequence[tuple[int, WebhookRequest]]) -> None:
        """Begin them all, each under a ticket of the caller's. Returns at once; a reply is never heard before that."""
        ...

    def cancel(self, tickets: Sequence[int]) -> None:
        """Send and say nothing more of these. Unknown tickets are passed over."""
        ...

    async def close(self) -> None:
        """Every connection is closed, and nothing more is said."""
        ...

    def rejection_reason(self, url: str) -> str | None:
        """Why this URL can never be delivered to (scheme, user-info, literal address, port), or None."""
        ...
