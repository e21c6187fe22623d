"""Reading the event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.devices.lookup import get_device
from domain.events.feed_model import ReadingAsEvent, reading_event_id
from domain.events.model import NO_SEARCH, TELEMETRY, Event, EventSearch
from domain.events.ports import EventsTx, ReadingsAsEventsSource
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.cursors import DEVICE_EVENTS, EVENTS, decode_cursor, encode_cursor
from domain.kernel.dataclasses import fast_replace, service
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.life import DatabaseLife
from domain.kernel.unit_of_work import UnitOfWork

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MAX_COUNTED_READINGS = 10_000
"""Readings have no counter: counting more of them would read the whole history for every page."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """`total`: how many events match; of telemetry at most `MAX_COUNTED_READINGS`."""

    events: Sequence[Event]
    total: int
    cursor: str | None

    @property
    def has_more(self) -> bool:
        return self.cursor is not None


@service
class EventService:
    uow: UnitOfWork[EventsTx]
    clock: Clock
    telemetry: ReadingsAsEventsSource | None = None
    life: DatabaseLife = field(default_factory=DatabaseLife)

    async def page(
        self,
        caller: SessionCaller,
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        kind: str | None = None,
        device_id: str | None = None,
        search: EventSearch = NO_SEARCH,
    ) -> EventPage:
        """Newest first. New events do not shift later pages. `total` ignores `search`. Raises ValidationFailed for an invalid
        cursor, and for telemetry with a `search`: it is not in the log; Gone `OTHER_LIFE` for a cursor of another life."""
        if not 1 <= limit <= MAX_LIMIT:
            raise ValidationFailed.for_field("limit", f"must be 1 to {MAX_LIMIT}.")
        device = None if device_id is None else DeviceId(device_id)
        if kind == TELEMETRY:
            if search != NO_SEARCH:
                raise ValidationFailed.for_field("type", "telemetry has no log to search. Use the device's telemetry history.")
            return await self._telemetry_page(caller, limit, cursor, device)
        before = None if cursor is None else decode_cursor(EVENTS, cursor, life=self.life.current)[0]
        async with self.uow.read() as tx:
            found = await tx.events.page(
                caller.account_id, limit=limit + 1, before=before, kind=kind, device_id=device, search=search
            )
            total = await tx.events.count(caller.account_id, kind=kind, device_id=device)
        shown = found[:limit]
        next_cursor = encode_cursor(EVENTS, shown[-1].position, life=self.life.current) if len(found) > limit else None
        return EventPage(_as_seen_by(caller, shown), total, next_cursor)

    async def list_by_device(
        self,
        caller: SessionCaller,
        device_id: str,
        *,
        limit: int = DEFAULT_LIMIT,
        before_ms: int | None = None,
        cursor: str | None = None,
    ) -> tuple[Sequence[Event], str | None]:
        """The device's events, newest first, before `before_ms` (Unix ms) or behind `cursor`; and the cursor of the next page,
        None for the last. Raises NotFound, ValidationFailed, Gone `OTHER_LIFE`."""
        if not 1 <= limit <= MAX_LIMIT:
            raise ValidationFailed.for_field("limit", f"must be 1 to {MAX_LIMIT}.")
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, DeviceId(device_id))
            before = _log_mark(before_ms, cursor, self.life.current)
            found = await tx.events.list_by_device(device.device_id, limit=limit + 1, before=before)
        shown, more = found[:limit], None
        if len(found) > limit:
            more = encode_cursor(DEVICE_EVENTS, shown[-1].at_ms, shown[-1].position, life=self.life.current)
        return _as_seen_by(caller, shown), more

    async def _telemetry_page(
        self, caller: SessionCaller, limit: int, cursor: str | None, device_id: DeviceId | None
    ) -> EventPage:
        """Readings have no position: their cursor is a time and the number of readings of that millisecond already returned."""
        if self.telemetry is None:
            return EventPage([], 0, None)
        before_ms, skip = self.clock.now_ms() * 2, 0
        if cursor is not None:
            before_ms, skip = decode_cursor(EVENTS, cursor, 2, life=self.life.current)
        found = await self.telemetry.page(caller.account_id, device_id=device_id, limit=limit + 1, skip=skip, before_ms=before_ms)
        total = await self.telemetry.count(caller.account_id, device_id=device_id, limit=MAX_COUNTED_READINGS)
        shown, next_cursor = found[:limit], None
        if len(found) > limit:
            last_ms = shown[-1].at_ms
            same = sum(record.at_ms == last_ms for record in shown)
            skip = same + (skip if last_ms == before_ms else 0)
            next_cursor = encode_cursor(EVENTS, last_ms, skip, life=self.life.current)
        return EventPage([_telemetry_event(caller.account_id, record) for record in shown], total, next_cursor)


def _log_mark(before_ms: int | None, cursor: str | None, life: str) -> tuple[int, int] | None:
    """A time, and a position of that time. Raises ValidationFailed, Gone `OTHER_LIFE`."""
    if cursor is None:
        return None if before_ms is None else (before_ms, 0)
    if before_ms is not None:
        raise ValidationFailed.for_field("cursor", "continues a list: send it without `before`.")
    at_ms, position = decode_cursor(DEVICE_EVENTS, cursor, 2, life=life)
    return at_ms, position


_without_address = fast_replace(Event, "address")


def _as_seen_by(caller: SessionCaller, events: Sequence[Event]) -> Sequence[Event]:
    """The address of the client is only for Owners and Admins."""
    return events if caller.role.is_at_least(Role.ADMIN) else [_without_address(event, "") for event in events]


def _telemetry_event(account_id: AccountId, record: ReadingAsEvent) -> Event:
    shown = record.value if record.text is None else record.text
    return Event(
        position=0,
        event_id=reading_event_id(record.device_id, record.at_ms, record.metric, record.value, record.text),
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
