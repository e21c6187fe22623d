"""Webhooks, deliveries and attempts.

A webhook belongs to one API key and receives the events that the key's grants let it see. A `WebhookDelivery` is one event for
one webhook, stored in the event's transaction. Each try to send it is a `DeliveryAttempt` with an id of its own.

The URL of a webhook is stored sealed like its secret, because path and query often contain one. Scheme and host are stored plain.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from domain.events.model import DEFAULT_TYPES
from domain.kernel.backoff import Backoff
from domain.kernel.clock import SECOND_MS
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.domain_event import JsonObject
from domain.kernel.ids import AccountId, DeliveryId, DeviceId, EventId, KeyId, WebhookId
from domain.kernel.ports import Vault
from domain.webhooks.reference import SECRET_PREFIX

RETRY_BACKOFF = Backoff.doubling(5, 80)
"""Pauses before the retries: five retries, so at most six attempts."""
LEASE_MS = 30 * SECOND_MS
"""Three times the longest attempt: a lease expires when its worker is dead, never when it is slow."""
MAX_ATTEMPTS = 1 + len(RETRY_BACKOFF.pauses_s)
RESPONSE_TIMEOUT_S = 10.0
MAX_CONCURRENT_PER_WEBHOOK = 4
"""How many attempts of one webhook are sent at once."""
CANCEL_BATCH_ROWS = 500
"""Rows per transaction when the deliveries of a disabled webhook are cancelled: there may be millions, and other transactions
must be able to write in between."""


class WebhookFormat(StrEnum):
    """How an event is put into the request: in the service's own envelope, or as a CloudEvent 1.0."""

    STANDARD = "standard"
    CLOUDEVENTS_STRUCTURED = "cloudevents-structured"
    CLOUDEVENTS_BINARY = "cloudevents-binary"


@dataclass(frozen=True, slots=True)
class Webhook:
    """The vault has encrypted `sealed_secret` and `sealed_url`, bound to the webhook's id. `generation` increases with each new
    secret and each new URL.

    The event log names only the `host` of the URL: every member reads the log, and path and query often contain a secret."""

    webhook_id: WebhookId
    account_id: AccountId
    key_id: KeyId
    origin: str
    """Scheme and host of the URL."""

    sealed_url: bytes = field(repr=False)
    sealed_secret: bytes = field(repr=False)
    secret_prefix: str
    generation: int
    enabled: bool
    disabled_reason: str | None
    failing_since_ms: int | None
    """Steady time."""

    created_ms: int
    updated_ms: int
    types: tuple[str, ...] | None = None
    """The event types that it wants; None: `DEFAULT_TYPES`."""

    format: WebhookFormat = WebhookFormat.STANDARD

    @property
    def wanted_types(self) -> Collection[str]:
        return DEFAULT_TYPES if self.types is None else self.types

    @property
    def host(self) -> str:
        return urlsplit(self.origin).netloc


class WebhookDeliveryState(StrEnum):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    GIVEN_UP = "GIVEN_UP"
    CANCELLED = "CANCELLED"


@fast_frozen
@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event for one webhook. `data` is the event's payload as JSON bytes, the same in every attempt.

    `claimed_until_ms` is the end of the current lease, and identifies the lease. It and `due_ms` are steady time. `no` is the row
    number in the database, 0 until stored."""

    no: int
    webhook_id: WebhookId
    account_id: AccountId
    device_id: DeviceId | None
    event_id: EventId
    event_type: str
    data: bytes
    state: WebhookDeliveryState
    attempts: int
    due_ms: int
    claimed_until_ms: int | None
    created_ms: int

    @classmethod
    def pending(
        cls, of: Webhook, device_id: DeviceId | None, event_id: EventId, event_type: str, data: bytes, due_ms: int, now_ms: int
    ) -> WebhookDelivery:
        """One that is not stored yet. `now_ms`: wall time."""
        state = WebhookDeliveryState.PENDING
        return cls(0, of.webhook_id, of.account_id, device_id, event_id, event_type, data, state, 0, due_ms, None, now_ms)


UNDELIVERED = frozenset({WebhookDeliveryState.GIVEN_UP, WebhookDeliveryState.CANCELLED})
"""The states from which a recovery sends a delivery again."""


@dataclass(frozen=True, slots=True)
class WebhookRecovery:
    """What a webhook did not get is sent again: oldest first, and the next one only when the one before has ended. A webhook has
    at most one. All times are wall time."""

    webhook_id: WebhookId
    account_id: AccountId
    from_ms: int
    """With `after_no`, where it stands: what is to be sent has a later (`created_ms`, `no`)."""

    after_no: int
    until_ms: int
    """What fails after the recovery was asked for does not belong to it."""

    current_no: int | None = None
    """The delivery that is being sent again."""

    sent: int = 0
    failed: int = 0
    failed_in_row: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One try to send a delivery. Stored when it begins (`finished_ms` None), completed when it ends."""

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
    seq: int = field(default=0, compare=False, repr=False)
    """Its place among those of its kind, in the order of their making. The storage gives it."""


def encode_payload(payload: JsonObject) -> bytes:
    """The payload as JSON bytes, the same in the body of every attempt."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def url_origin(url: str) -> str:
    """Scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def seal_url(vault: Vault, webhook_id: WebhookId, url: str) -> bytes:
    return vault.seal(url, url_seal_context(webhook_id))


def open_url(vault: Vault, webhook: Webhook) -> str:
    """Raises SecretUnreadable when the key ring lacks the key."""
    return vault.open(webhook.sealed_url, url_seal_context(webhook.webhook_id))


def url_seal_context(webhook_id: WebhookId) -> str:
    """What a sealed URL is bound to: its webhook, and that it is no signing secret."""
    return f"url:{webhook_id}"


SHOWN_PREFIX_LENGTH = len(SECRET_PREFIX) + 4


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def shown_prefix(secret: str) -> str:
    return secret[:SHOWN_PREFIX_LENGTH]
