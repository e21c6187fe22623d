"""A webhook belongs to one API key and gets what the key's grants let it see.

What is owed to a webhook for an event is a `Delivery`: a row written with the event. Each try is an `Attempt` with an id of
its own. Retry pauses are data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from domain.kernel.backoff import Backoff
from domain.kernel.fast_frozen import fast_frozen
from domain.kernel.ids import AccountId, DeliveryId, DeviceId, EventId, KeyId, WebhookId

RETRY_BACKOFF = Backoff.doubling(5, 80)
"""After the first attempt and each failed retry: five retries, six attempts at most."""
MAX_ATTEMPTS = 1 + len(RETRY_BACKOFF.pauses_s)
RESPONSE_TIMEOUT_S = 10.0
MAX_CONCURRENT_PER_WEBHOOK = 4
"""Attempts of one webhook that are sent at once."""
DISABLE_AFTER_MS = 5 * 24 * 3_600_000
MAX_LISTED_ATTEMPTS = 50
CANCEL_BATCH_ROWS = 500
"""Rows a step when what is owed to a disabled webhook is called off: there may be millions, and others must write in between."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """`sealed_secret` opens with the vault, bound to the webhook's id. `generation` counts up with each rotation.

    `host` is all of the URL that the event log says: the log is for every member, and path and query are often a password."""

    webhook_id: WebhookId
    account_id: AccountId
    key_id: KeyId
    url: str
    sealed_secret: bytes = field(repr=False)
    secret_prefix: str
    generation: int
    enabled: bool
    disabled_reason: str | None
    failing_since_ms: int | None
    created_ms: int
    updated_ms: int

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


class DeliveryState(StrEnum):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    GIVEN_UP = "GIVEN_UP"
    CANCELLED = "CANCELLED"


@fast_frozen
@dataclass(frozen=True, slots=True)
class Delivery:
    """What is owed: one event to one webhook. `data` is the event's payload as JSON bytes, unchanged in every attempt.

    `claimed_until_ms` is the lease of the worker that is at it, and tells it from the leases before and after. `no` is its number
    in the database, 0 until stored."""

    no: int
    webhook_id: WebhookId
    account_id: AccountId
    device_id: DeviceId | None
    event_id: EventId
    event_type: str
    data: bytes
    state: DeliveryState
    attempts: int
    due_ms: int
    claimed_until_ms: int | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try. Inserted when claimed (`finished_ms` None), completed with what the receiver said."""

    delivery_id: DeliveryId
    delivery_no: int
    webhook_id: WebhookId
    event_id: EventId
    event_type: str
    device_id: DeviceId | None
    number: int
    created_ms: int
    finished_ms: int | None = None
    status_code: int | None = None
    error: str | None = None
    succeeded: bool = False
    duration_ms: int | None = None
    next_attempt_ms: int | None = None
