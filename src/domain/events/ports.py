"""Ports of the events part, and the port that observes events in their own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from domain.events.cursors import EventLogCursor
from domain.events.feed_model import FeedFilter, FeedFrame, ReadingAsEvent
from domain.events.hash_chain import ChainHasher, chain_events
from domain.events.model import NO_SEARCH, Event, EventSearch
from domain.kernel.cursors import Position
from domain.kernel.domain_event import DomainEvent
from domain.kernel.ids import AccountId, DeviceId, EventId
from domain.provisioning.ports import ProvisioningTx


class EventRepository(Protocol):
    async def append_many(self, events: Sequence[Event], hasher: ChainHasher = chain_events) -> Sequence[Event]:
        """Stores the events in this order, linked by `hasher`, and returns them with their `writer` and `position`. The returned
        sequence may be empty until the transaction's next read; after the commit it is complete. Positions of one writer follow
        the order of commits; and an event that was written by somebody who had read another one has the higher position."""

    async def get(self, account_id: AccountId, event_id: EventId) -> Event | None: ...

    async def page(
        self,
        account_id: AccountId,
        *,
        limit: int,
        before: int | None = None,
        kind: str | None = None,
        device_id: DeviceId | None = None,
        search: EventSearch = NO_SEARCH,
    ) -> Sequence[Event]:
        """Newest first, positions below `before`."""

    async def list_public_after(self, account_id: AccountId, after: EventLogCursor, limit: int) -> Sequence[Event]:
        """Public events that `after` does not cover, by position; for a feed client that resumes."""

    async def list_after(self, after: EventLogCursor, limit: int) -> Sequence[Event]:
        """Events of all accounts and kinds that `after` does not cover, by position; for an instance that follows the log."""

    async def list_kinds_after(self, after: EventLogCursor, limit: int) -> Sequence[str]:
        """The kinds of these events, in no order."""

    async def end(self) -> EventLogCursor:
        """Covers all events of this snapshot."""

    async def advance_idle_writers(self) -> None:
        """Move the writers that no transaction uses to the newest position, so that `end` lies close behind it and readers skip
        few events. Call it now and then while the log grows."""

    async def count(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        """Without filters, read from a counter instead of counting rows."""

    async def oldest_position(self) -> int:
        """Position of the oldest stored event of all accounts, 0 for none. Retention deletes the oldest first."""

    async def list_by_device(self, device_id: DeviceId, *, limit: int, before: tuple[int, int] | None) -> Sequence[Event]:
        """A device's audit log, newest first: what is older than `before`, a time in Unix ms and a position of that time."""

    async def delete_older_than(self, at_ms: int, limit: int) -> int:
        """Delete at most `limit` of the oldest events that were sealed before this time (see `audit/seals.py`)."""


TxT_contra = TypeVar("TxT_contra", contravariant=True)


class TransactionEventObserver(Protocol[TxT_contra]):
    """Gets all events, audit events included, inside their transaction (webhooks add their deliveries)."""

    async def on_events(self, tx: TxT_contra, events: Sequence[Event]) -> None: ...


class FollowUpPort(Protocol[TxT_contra]):
    """Does in the same transaction what a change brings with it, such as ending what has lost its authority."""

    async def follow(self, tx: TxT_contra, events: Sequence[DomainEvent]) -> Sequence[DomainEvent]:
        """The events of what it did; they are stored after the others."""


class FeedPublisher(Protocol):
    """Gets each event, audit events included, after its commit and in the order of the log."""

    def publish(self, event: Event) -> None:
        """Must be quick and must not raise: a slow client is dropped, not waited for."""

    def set_store_time(self, store_time_s: int) -> None:
        """All readings stored before this time (Unix seconds) have been published, to those who watched their devices."""


class FeedSubscription(Protocol):
    """One client's bounded queue of the frames published since it subscribed."""

    overflowed: bool
    """The queue was full, and frames are lost."""
    closing: bool
    """The service is shutting down."""
    access_stale: bool
    """Access has changed since this was last set to False: check it again before sending anything."""
    allowed_devices: frozenset[DeviceId] | None
    """Devices the client may see, None for all. While `access_stale`, frames of all devices are queued."""
    direct_sink: Callable[[FeedFrame], bool] | None
    """Receives a frame directly while the queue is empty and access is not stale; a frame it rejects (False) is queued."""

    def close(self) -> None:
        """Set `closing` and end `wait`."""

    def wake(self) -> None:
        """End `wait`: there is something else to do."""

    def drain(self) -> Sequence[FeedFrame]:
        """All queued frames, oldest first, without waiting."""

    async def wait(self, timeout_s: float) -> None:
        """Wait for a frame or a flag, or until the timeout."""


class FeedHub(FeedPublisher, Protocol):
    @property
    def life(self) -> str:
        """Of the database whose events are published at present (`kernel/life.py`)."""

    def subscribe(self, interest: FeedFilter) -> AbstractContextManager[FeedSubscription]: ...

    def mark_access_stale(self, account_id: AccountId) -> None:
        """Set `access_stale` on every subscription of the account."""

    def mark_all_access_stale(self) -> None:
        """The same for every account."""

    def filters(self) -> Sequence[FeedFilter]:
        """The filters of all open subscriptions."""


class ReadingsAsEventsSource(Protocol):
    """Port: readings as events, for `GET /events?type=telemetry`."""

    async def page(
        self, account_id: AccountId, *, device_id: DeviceId | None, limit: int, after: Position | None
    ) -> Sequence[ReadingAsEvent]:
        """Newest first, behind this `place` of a reading."""

    async def count(self, account_id: AccountId, *, device_id: DeviceId | None, limit: int) -> int:
        """The number of stored readings, counted up to `limit`."""


class TransactionEventDispatcher(Protocol[TxT_contra]):
    """Port that the storage adapter calls for `Transaction.emit`: stores the events and calls the observers."""

    async def dispatch(self, tx: TxT_contra, events: Sequence[DomainEvent]) -> None:
        """Called once per transaction with all of its events, as its last step."""


class EventsTx(ProvisioningTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def events(self) -> EventRepository: ...
