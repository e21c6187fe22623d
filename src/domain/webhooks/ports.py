"""What the webhooks part needs from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.grants.ports import GrantsTx
from domain.kernel.ids import AccountId, DeliveryId, KeyId, WebhookId
from domain.webhooks.model import Attempt, Delivery, Webhook


class WebhookRepository(Protocol):
    async def add(self, webhook: Webhook) -> None: ...

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None: ...

    async def find(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def list(self, account_id: AccountId) -> Sequence[Webhook]:
        """Oldest first."""
        ...

    async def of_keys(self, key_ids: Sequence[KeyId]) -> Sequence[Webhook]:
        """Enabled ones of enabled keys."""
        ...

    async def save(self, webhook: Webhook) -> None: ...

    async def delete(self, webhook_id: WebhookId) -> None:
        """Takes deliveries and attempts along."""
        ...


class DeliveryRepository(Protocol):
    async def add(self, deliveries: Sequence[Delivery]) -> None: ...

    async def get(self, no: int) -> Delivery | None: ...

    async def claim(
        self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()
    ) -> Sequence[Delivery]:
        """PENDING, due and not under a lease, oldest due first, none of the `busy` webhooks: now under a lease until
        `until_ms`. Costs the same however much is owed to the busy ones. On PostgreSQL `FOR UPDATE SKIP LOCKED`."""
        ...

    async def finish(self, delivery: Delivery) -> bool:
        """Write state, attempts, due time; drop the lease. False when the row is gone or no longer PENDING."""
        ...

    async def finish_all(self, deliveries: Sequence[Delivery]) -> None:
        """`finish` of many; those that are gone or no longer PENDING are passed over."""
        ...

    async def next_due_ms(self) -> int | None: ...

    async def cancel_of(self, webhook_id: WebhookId, limit: int) -> int:
        """Up to `limit` PENDING ones are CANCELLED; how many."""
        ...

    async def start_attempt(self, attempts: Sequence[Attempt]) -> None: ...

    async def finish_attempt(self, attempts: Sequence[Attempt]) -> None: ...

    async def log(self, webhook_id: WebhookId, limit: int) -> Sequence[Attempt]:
        """Newest first, by sequence."""
        ...

    async def attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Attempt | None: ...

    async def forget_before(self, created_ms: int, limit: int) -> int:
        """Settled deliveries with their attempts."""
        ...


class WebhooksTx(GrantsTx, Protocol):
    @property
    def webhooks(self) -> WebhookRepository: ...

    @property
    def deliveries(self) -> DeliveryRepository: ...


@dataclass(frozen=True, slots=True)
class Post:
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """`status` is None when there was no complete answer; `error` then says why.

    `excerpt`: at most 4 KiB of the body, never decoded."""

    status: int | None
    error: str | None
    excerpt: bytes
    duration_ms: int
    retry_after_s: int | None = None


class Courier(Protocol):
    """Port for HTTP delivery. Never raises for what a receiver does; follows no redirect; connects to no forbidden address."""

    async def post(self, post: Post) -> Reply: ...

    def refusal(self, url: str) -> str | None:
        """Why this URL can never be delivered to (scheme, user-info, literal address, port), or None."""
        ...
