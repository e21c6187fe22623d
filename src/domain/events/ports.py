"""What the events part needs from outside, and the port by which others hear of an event in its own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from domain.devices.ports import HasDevices
from domain.events.model import Event, FeedFilter, FeedFrame, TelemetryRecord
from domain.kernel.domain_events import DomainEvent
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import Transaction


class EventRepository(Protocol):
    async def append_many(self, events: Sequence[Event]) -> Sequence[Event]:
        """Stores the events in this order and returns them with their `position`. Later commits have higher positions."""
        ...

    async def page(
        self,
        account_id: AccountId,
        *,
        limit: int,
        before: int | None = None,
        kind: str | None = None,
        device_id: DeviceId | None = None,
    ) -> Sequence[Event]:
        """Newest first, positions below `before`."""
        ...

    async def list_public_after(self, account_id: AccountId, after: int, limit: int) -> Sequence[Event]:
        """Public events only, oldest first, positions above `after`; for a feed that resumes."""
        ...

    async def list_after(self, after: int, limit: int) -> Sequence[Event]:
        """Of all accounts, audit events included, oldest first, positions above `after`; for an instance that follows the log."""
        ...

    async def last_position(self) -> int:
        """Position of the newest event of all accounts, 0 for none."""
        ...

    async def count(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        """Without filters from a counter, never by counting millions of rows."""
        ...

    async def account_newest_position(self, account_id: AccountId) -> int:
        """Position of the account's newest event, 0 for none."""
        ...

    async def account_oldest_position(self, account_id: AccountId) -> int:
        """Position of the oldest event still kept, 0 for none."""
        ...

    async def list_by_device(self, device_id: DeviceId, *, limit: int, before_ms: int | None) -> Sequence[Event]:
        """A device's audit log, newest first."""
        ...

    async def delete_older_than(self, at_ms: int, limit: int) -> int: ...


class HasEvents(Protocol):
    @property
    def events(self) -> EventRepository: ...


class EventLogTx(Transaction, HasDevices, HasEvents, Protocol): ...


TxT_contra = TypeVar("TxT_contra", contravariant=True)


class EventObserver(Protocol[TxT_contra]):
    """Hears of all events, audit events included, inside the transaction that records them (webhooks write what they owe)."""

    async def on_events(self, tx: TxT_contra, events: Sequence[Event]) -> None: ...


class FeedPublisher(Protocol):
    """Hears of each event, audit events included, once it is durable and in the order of the log."""

    def publish(self, event: Event) -> None:
        """Quick and never raising: a slow listener is dropped, not waited for."""
        ...


class FeedSubscription(Protocol):
    """One client's ear: a bounded queue of what was published since it was opened."""

    overflowed: bool
    """The queue ran over; what is in it is no longer complete."""
    closing: bool
    """The service stops."""
    access_stale: bool
    """Who may see what has changed since this was last set to False; nothing may be shown before it is asked again."""
    allowed_devices: frozenset[DeviceId] | None
    """Devices the client may see, None for all. While `stale`, all are queued."""
    direct_sink: Callable[[FeedFrame], bool] | None
    """Where a frame goes while none is queued and nothing is `stale`; what it refuses (False) is queued."""

    def close(self) -> None:
        """Set `closing` and wake whoever waits."""
        ...

    def drain(self) -> Sequence[FeedFrame]:
        """All that waits, oldest first; never waits itself."""
        ...

    async def wait(self, timeout_s: float) -> None:
        """Until there is something to do: a frame, or one of the flags; or until the time is over."""
        ...


class FeedHub(FeedPublisher, Protocol):
    def subscribe(self, interest: FeedFilter) -> AbstractContextManager[FeedSubscription]: ...

    def mark_access_stale(self, account_id: AccountId) -> None:
        """Mark every subscription of the account as stale."""
        ...

    def filters(self) -> Sequence[FeedFilter]:
        """Of all open subscriptions."""
        ...


class TelemetryEventQuery(Protocol):
    """The readings told as events, for `GET /events?type=telemetry`; the telemetry part or an adapter knows how."""

    async def page(
        self, account_id: AccountId, *, device_id: DeviceId | None, limit: int, skip: int, before_ms: int
    ) -> Sequence[TelemetryRecord]:
        """Newest first: readings of at most `before_ms`, without the first `skip`."""
        ...


class DomainEventDispatcher(Protocol[TxT_contra]):
    """What the storage adapter calls for `Transaction.record`: makes the event of a fact and tells the observers."""

    async def dispatch(self, tx: TxT_contra, facts: Sequence[DomainEvent]) -> None:
        """Once a transaction, with all of its facts, when nothing else is left to do in it."""
        ...
