"""What the events part needs from outside, and the port by which others hear of an event in its own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from domain.devices.ports import DevicesTx
from domain.events.model import Event, Frame, Interest, TelemetryRecord
from domain.kernel.facts import Fact
from domain.kernel.ids import AccountId, DeviceId


class EventRepository(Protocol):
    async def append(self, event: Event) -> Event:
        """Gives the event its `position`: later commits have higher ones."""
        ...

    async def append_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """`append` of many, in this order."""
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

    async def since(self, account_id: AccountId, after: int, limit: int) -> Sequence[Event]:
        """Public events only, oldest first, positions above `after`; for a feed that resumes."""
        ...

    async def following(self, after: int, limit: int) -> Sequence[Event]:
        """Of all accounts, audit events included, oldest first, positions above `after`; for an instance that follows the log."""
        ...

    async def last(self) -> int:
        """Position of the newest event of all accounts, 0 for none."""
        ...

    async def total(self, account_id: AccountId, *, kind: str | None = None, device_id: DeviceId | None = None) -> int:
        """Without filters from a counter, never by counting millions of rows."""
        ...

    async def newest(self, account_id: AccountId) -> int:
        """Position of the account's newest event, 0 for none."""
        ...

    async def oldest(self, account_id: AccountId) -> int:
        """Position of the oldest event still kept, 0 for none."""
        ...

    async def before_time(self, device_id: DeviceId, *, limit: int, before_ms: int | None) -> Sequence[Event]:
        """A device's audit log, newest first."""
        ...

    async def forget_before(self, at_ms: int, limit: int) -> int: ...


class EventsTx(DevicesTx, Protocol):
    @property
    def events(self) -> EventRepository: ...


class EventObserver(Protocol):
    """Hears of all events, audit events included, inside the transaction that records them (webhooks write what they owe)."""

    async def on_events(self, tx: EventsTx, events: Sequence[Event]) -> None: ...


class Feed(Protocol):
    """Hears of each event, audit events included, once it is durable and in the order of the log."""

    def publish(self, event: Event) -> None:
        """Quick and never raising: a slow listener is dropped, not waited for."""
        ...


class Subscription(Protocol):
    """One client's ear: a bounded queue of what was published since it was opened."""

    lost: bool
    """The queue ran over; what is in it is no longer complete."""
    closing: bool
    """The service stops."""
    stale: bool
    """Who may see what has changed since this was last set to False; nothing may be shown before it is asked again."""
    allowed: frozenset[DeviceId] | None
    """Devices the client may see, None for all. While `stale`, all are queued."""
    direct: Callable[[Frame], bool] | None
    """Where a frame goes while none is queued and nothing is `stale`; what it refuses (False) is queued."""

    def close(self) -> None:
        """Set `closing` and wake whoever waits."""
        ...

    def take(self) -> Sequence[Frame]:
        """All that waits, oldest first; never waits itself."""
        ...

    async def wait(self, timeout_s: float) -> None:
        """Until there is something to do: a frame, or one of the flags; or until the time is over."""
        ...


class FeedHub(Feed, Protocol):
    def subscribe(self, interest: Interest) -> AbstractContextManager[Subscription]: ...

    def recheck(self, account_id: AccountId) -> None:
        """Mark every subscription of the account as stale."""
        ...

    def interests(self) -> Sequence[Interest]:
        """Of all open subscriptions."""
        ...


class TelemetryLog(Protocol):
    """The readings told as events, for `GET /events?type=telemetry`; the telemetry part or an adapter knows how."""

    async def page(
        self, account_id: AccountId, *, device_id: DeviceId | None, limit: int, skip: int, before_ms: int
    ) -> Sequence[TelemetryRecord]:
        """Newest first: readings of at most `before_ms`, without the first `skip`."""
        ...


class Recorder(Protocol):
    """What the storage adapter calls for `Transaction.record`: makes the event of a fact and tells the observers."""

    async def record(self, tx: EventsTx, facts: Sequence[Fact]) -> None:
        """Once a transaction, with all of its facts, when nothing else is left to do in it."""
        ...
