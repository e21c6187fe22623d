"""What the events part needs from outside, and the port by which others hear of an event in its own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.devices.ports import DevicesTx
from domain.events.model import Event
from domain.kernel.facts import Fact
from domain.kernel.ids import AccountId, DeviceId


class EventRepository(Protocol):
    async def append(self, event: Event) -> Event:
        """Gives the event its `position`: later commits have higher ones."""
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
    """Hears of each event inside the transaction that records it (webhooks write what they owe)."""

    async def on_event(self, tx: object, event: Event) -> None: ...


class Recorder(Protocol):
    """What the storage adapter calls for `Transaction.record`: makes the event of a fact and tells the observers."""

    async def record(self, tx: EventsTx, fact: Fact) -> None: ...
