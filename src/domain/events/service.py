"""Reading the event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.devices.lookup import get_device
from domain.events.feed_model import ReadingAsEvent
from domain.events.model import NO_SEARCH, TELEMETRY, Event, EventSearch
from domain.events.ports import EventsTx, ReadingsAsEventsSource
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.cursors import Position
from domain.kernel.dataclasses import fast_replace, service
from domain.kernel.errors import NotFound, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, EventId, IdPrefix, has_id_format
from domain.kernel.unit_of_work import UnitOfWork

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
LOG_POSITION = (int,)
DEVICE_LOG_POSITION = (int, int)
READING_POSITION = (int, str, str, str)
FIRST_READING: Position = (0, "", "", "")
"""No reading is behind it."""
MAX_COUNTED_READINGS = 10_000
"""Readings have no counter: counting more of them would read the whole history for every page."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """`total`: how many events match; of telemetry at most `MAX_COUNTED_READINGS`. `end`: the position of the last event, that of
    the request if there is none."""

    events: Sequence[Event]
    total: int
    has_more: bool
    end: Position


@service
class EventService:
    uow: UnitOfWork[EventsTx]
    clock: Clock
    telemetry: ReadingsAsEventsSource | None = None

    async def page(
        self,
        caller: SessionCaller,
        *,
        limit: int = DEFAULT_LIMIT,
        after: Position | None = None,
        kind: str | None = None,
        device_id: str | None = None,
        search: EventSearch = NO_SEARCH,
    ) -> EventPage:
        """Newest first, behind the position `after`: one of `LOG_POSITION`, or for telemetry of `READING_POSITION`. `total`
        ignores `search`. Raises ValidationFailed for telemetry with a `search`: it is not in the log."""
        if not 1 <= limit <= MAX_LIMIT:
            raise ValidationFailed.for_field("limit", f"must be 1 to {MAX_LIMIT}.")
        device = None if device_id is None else DeviceId(device_id)
        if kind == TELEMETRY:
            if search != NO_SEARCH:
                raise ValidationFailed.for_field("type", "telemetry has no log to search. Use the device's telemetry history.")
            return await self._telemetry_page(caller, limit, after, device)
        before = None if after is None else int(after[0])
        async with self.uow.read() as tx:
            found = await tx.events.page(
                caller.account_id, limit=limit + 1, before=before, kind=kind, device_id=device, search=search
            )
            total = await tx.events.count(caller.account_id, kind=kind, device_id=device)
        shown = found[:limit]
        end = (shown[-1].position,) if shown else after or (0,)
        return EventPage(_as_seen_by(caller, shown), total, len(found) > limit, end)

    async def get(self, caller: SessionCaller, event_id: str) -> Event:
        """Raises NotFound, also for an event of another account, and for a reading: it is stored with its device's telemetry."""
        found = None
        if has_id_format(IdPrefix.EVENT, event_id):
            async with self.uow.read() as tx:
                found = await tx.events.get(caller.account_id, EventId(event_id))
        if found is None:
            raise NotFound.for_resource("event", event_id)
        return _as_seen_by(caller, [found])[0]

    async def list_by_device(
        self,
        caller: SessionCaller,
        device_id: str,
        *,
        limit: int = DEFAULT_LIMIT,
        span: EventSearch = NO_SEARCH,
        after: Position | None = None,
    ) -> Sequence[Event]:
        """The device's events, newest first, behind the position `after`: (Unix ms, position in the log). `span`: its `since` and
        `until`. Raises NotFound, ValidationFailed."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, DeviceId(device_id))
            mark = None if after is None else (int(after[0]), int(after[1]))
            if span.until_ms is not None and (mark is None or span.until_ms < mark[0]):
                mark = (span.until_ms, 0)
            found = await tx.events.list_by_device(device.device_id, limit=limit, before=mark)
        since_ms = span.since_ms or 0
        return _as_seen_by(caller, [event for event in found if event.at_ms >= since_ms])

    async def _telemetry_page(
        self, caller: SessionCaller, limit: int, after: Position | None, device_id: DeviceId | None
    ) -> EventPage:
        if self.telemetry is None:
            return EventPage([], 0, False, after or FIRST_READING)
        found = await self.telemetry.page(caller.account_id, device_id=device_id, limit=limit + 1, after=after)
        total = await self.telemetry.count(caller.account_id, device_id=device_id, limit=MAX_COUNTED_READINGS)
        shown = found[:limit]
        end = shown[-1].place if shown else after or FIRST_READING
        return EventPage([_telemetry_event(caller.account_id, record) for record in shown], total, len(found) > limit, end)


_without_address = fast_replace(Event, "address")


def _as_seen_by(caller: SessionCaller, events: Sequence[Event]) -> Sequence[Event]:
    """The address of the client is only for Owners and Admins."""
    return events if caller.role.is_at_least(Role.ADMIN) else [_without_address(event, "") for event in events]


def _telemetry_event(account_id: AccountId, record: ReadingAsEvent) -> Event:
    shown = record.value if record.text is None else record.text
    return Event(
        position=0,
        event_id=record.event_id,
        account_id=account_id,
        device_id=record.device_id,
        device_name=record.device_name,
        kind=TELEMETRY,
        description=f"{record.metric} = {shown}{f' {record.unit}' if record.unit else ''}",
        at_ms=record.at_ms,
        source="device",
        address="",
        payload={},
    )
