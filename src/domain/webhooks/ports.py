"""Ports of the webhooks part: its repositories, the courier that sends HTTP requests, and the signer of one secret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from domain.approvals.ports import ApprovalsTx
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.ids import AccountId, DeliveryId, WebhookId
from domain.webhooks.model import DeliveryAttempt, Webhook, WebhookDelivery, WebhookRecovery


class WebhookRepository(Protocol):
    async def add(self, webhook: Webhook) -> None: ...

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None: ...

    async def get_for_update(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        """As `get`, and locked until the transaction ends (SELECT … FOR UPDATE). Read a webhook this way before `save`."""

    async def find(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def list_by_account(self, account_id: AccountId) -> Sequence[Webhook]:
        """Oldest first."""

    async def list_enabled(self, account_ids: Sequence[AccountId]) -> Sequence[tuple[Webhook, int | None]]:
        """Enabled webhooks of enabled keys, oldest first; each with the end of its key, Unix ms."""

    async def save(self, webhook: Webhook) -> None: ...

    async def list_page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        """Of all accounts, by id; for re-encryption after a key rotation."""

    async def count_sealed(self) -> int:
        """The number of signing secrets and sealed URLs."""

    async def rekey(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        """Stores the same signing secret, encrypted with another key. False, without a change, when the stored value is not
        `before`."""

    async def rekey_url(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        """As `rekey`, for the sealed URL."""

    async def delete(self, webhook_id: WebhookId) -> None:
        """Deletes only the webhook's own row; its deliveries are not sent any more. Their rows, possibly millions, stay until
        `WebhookDeliveryRepository.delete_batch_by_webhook` deletes them."""


class WebhookDeliveryRepository(Protocol):
    async def add_many(self, deliveries: Sequence[WebhookDelivery]) -> None: ...

    async def get(self, no: int) -> WebhookDelivery | None: ...

    async def claim(self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()) -> Sequence[WebhookDelivery]:
        """Takes PENDING deliveries that are due and not leased under a lease until `until_ms` (both steady time), oldest due time
        first, none of the `busy` webhooks. The cost does not depend on the backlog of the busy ones. On PostgreSQL `FOR UPDATE
        SKIP LOCKED`."""

    async def finish_many(self, deliveries: Sequence[WebhookDelivery]) -> None:
        """Stores state, attempts and due time, and ends the lease. Skips a delivery that is deleted, no longer PENDING, or under
        another lease than its `claimed_until_ms`: an instance that lost a delivery to another one must not change it."""

    async def next_due_ms(self) -> int | None:
        """Steady time."""

    async def cancel_pending(self, webhook_id: WebhookId, limit: int) -> int:
        """Cancels up to `limit` PENDING deliveries and returns their number. Skips rows that another transaction has locked."""

    async def has_pending(self, webhook_id: WebhookId) -> bool: ...

    async def add_attempts(self, attempts: Sequence[DeliveryAttempt]) -> None: ...

    async def finish_attempts(self, attempts: Sequence[DeliveryAttempt]) -> None: ...

    async def delete_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        """For attempts that were never sent."""

    async def list_attempts(
        self, webhook_id: WebhookId, limit: int, before: int | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[DeliveryAttempt]:
        """Newest first, by their sequence number."""

    async def get_attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> DeliveryAttempt | None: ...

    async def find_orphaned_webhook_id(self) -> WebhookId | None:
        """A deleted webhook whose deliveries are still stored. The cost does not depend on their number."""

    async def delete_batch_by_webhook(self, webhook_id: WebhookId, limit: int, *, after: int = 0) -> Sequence[int]:
        """Deletes the first `limit` deliveries of a webhook with a number above `after`, in any state, with their attempts.
        Returns their numbers in ascending order. The cost does not depend on how many were deleted before. Skips rows that
        another transaction has locked."""

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        """Deletes up to `limit` finished deliveries with their attempts; returns how many."""

    async def find_undelivered(self, recovery: WebhookRecovery) -> WebhookDelivery | None:
        """The next delivery of the recovery: the oldest by (`created_ms`, `no`) that follows its position."""

    async def count_undelivered(self, recovery: WebhookRecovery, limit: int) -> int:
        """How many deliveries follow the position of the recovery; counts up to `limit`."""

    async def revive(self, no: int, due_ms: int) -> None:
        """Makes an undelivered delivery PENDING again, with no attempts. `due_ms`: steady time."""


class WebhookRecoveryRepository(Protocol):
    async def get_for_update(self, webhook_id: WebhookId) -> WebhookRecovery | None:
        """Locked until the transaction ends."""

    async def list_ready(self, after: WebhookId | None, limit: int) -> Sequence[WebhookRecovery]:
        """Those whose current delivery has ended, by webhook id."""

    async def has_any(self) -> bool: ...

    async def save(self, recovery: WebhookRecovery) -> None:
        """Stores it or replaces the one of this webhook."""

    async def delete(self, webhook_id: WebhookId) -> None:
        """It goes with its webhook too."""


@dataclass(frozen=True, slots=True)
class OutboundHttpRequest:
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    deadline_s: float
    queue_key: str = ""
    """Of the requests with the same key, only `model.MAX_CONCURRENT_PER_WEBHOOK` are sent at once; empty: no bound."""


@dataclass(frozen=True, slots=True)
class OutboundHttpResponse:
    """`status` is None when there was no complete response; `error` then says why.

    `excerpt`: the first bytes of the body, at most 4 KiB, not decoded. `retry_after_s`: the `Retry-After` header (RFC 9110)."""

    status: int | None
    error: str | None
    excerpt: bytes
    duration_ms: int
    retry_after_s: int | None = None


NOT_SENT = OutboundHttpResponse(None, "Not sent yet: the endpoint queue was full.", b"", 0)
"""The endpoint queue had no free slot for a quarter of a second, and no byte was sent. Compare it by identity."""


ResponseCallback: TypeAlias = "Callable[[Sequence[tuple[int, OutboundHttpResponse]]], None]"
"""Receives responses, each with the ticket of its request, on the event loop."""


class Courier(Protocol):
    """Port for HTTP delivery. Every request gets exactly one response, no later than its deadline after it could be sent,
    whatever the receiver does, unless it is cancelled. Follows no redirects; connects to no forbidden address."""

    def on_responses(self, callback: ResponseCallback) -> None:
        """Sets the callback for all further responses."""

    def send(self, requests: Sequence[tuple[int, OutboundHttpRequest]]) -> None:
        """Starts all requests, each under a ticket that the caller chooses. Returns at once, before any response."""

    def cancel(self, tickets: Sequence[int]) -> None:
        """Cancels these requests; they get no response. Ignores unknown tickets."""

    async def close(self) -> None:
        """Closes every connection. No response follows."""

    def rejection_reason(self, url: str) -> str | None:
        """Why nothing can ever be delivered to this URL (scheme, user info, literal address, port), or None."""


class WebhookSigner(Protocol):
    """Keeps the keyed state of one secret. `reference.py` defines the signatures."""

    def service_signature(self, body: bytes) -> str:
        """`X-Service-Signature`: `sha256=<hex>` over the body, keyed with the whole secret string."""

    def standard_signature(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        """`webhook-signature`: `v1,<base64>` over `id.timestamp.body`, keyed with the decoded secret (Standard Webhooks)."""

    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]:
        """(service signature, standard signature) for each (message id, timestamp in s, body)."""


CreateSigner: TypeAlias = Callable[[str], WebhookSigner]
"""For a secret. Raises ValidationFailed when it is not `whsec_` + base64."""


class WebhooksTx(ApprovalsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def webhooks(self) -> WebhookRepository: ...

    @property
    def deliveries(self) -> WebhookDeliveryRepository: ...

    @property
    def recoveries(self) -> WebhookRecoveryRepository: ...
