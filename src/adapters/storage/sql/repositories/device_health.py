"""What is known of a device's health, and what of its messages was dropped, by reason."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, or_, select, update
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import to_json
from adapters.storage.sql.statement_builders import listed_integers, upsert
from adapters.storage.sql.tables import device_drops, device_health
from domain.devices.health import DeviceHealth, DroppedMessages, LastDroppedMessage, NewConnectionsSummary

h, d = device_health.c, device_drops.c


LIST = select(h.device_no, h.clock_offset_ms, h.connects, h.firmware, h.max_packet_size).where(h.device_no.in_(listed_integers()))
LIST_DROPS = select(d.device_no, d.reason, d.last_ms).where(d.device_no.in_(listed_integers()))
ADD_CONNECTIONS = upsert(device_health, "max_packet_size", adding=("connects",))
SET_FIRMWARE = upsert(device_health, "firmware")
SET_CLOCK_OFFSET = upsert(device_health, "clock_offset_ms")
ADD_DROPS = upsert(device_drops, "last_ms", adding=("unannounced",))
LIST_UNANNOUNCED = (
    select(d.device_no, d.reason, d.unannounced, d.last_ms)
    .where(
        d.device_no.in_(listed_integers()),
        d.unannounced > 0,
        or_(d.announced_ms.is_(None), d.announced_ms <= bindparam("at_before", type_=d.announced_ms.type)),
    )
    .order_by(d.device_no, d.reason)
)
MARK_ANNOUNCED = (
    update(device_drops)
    .where(d.device_no == bindparam("at_no"), d.reason == bindparam("at_reason"))
    .values(unannounced=d.unannounced - bindparam("at_count", type_=d.unannounced.type), announced_ms=bindparam("at_now"))
)
NEVER_CONNECTED = 0


class SqlDeviceHealthRepository(SqlRepository):
    async def list_by_numbers(self, numbers: Collection[int]) -> Mapping[int, DeviceHealth]:
        if not numbers:
            return {}
        among = {"at_listed": to_json(sorted(numbers))}
        rows, dropped = await self._session.read_batch((LIST, among), (LIST_DROPS, among))
        last_drops = {
            device_no: LastDroppedMessage(reason, at_ms)
            for device_no, reason, at_ms in sorted(dropped, key=lambda row: (row[2], row[1]))
        }
        found = {
            device_no: DeviceHealth(offset_ms, last_drops.get(device_no), max(0, connects - 1), firmware, max_packet_size)
            for device_no, offset_ms, connects, firmware, max_packet_size in rows
        }
        for device_no, drop in last_drops.items():
            if device_no not in found:
                found[device_no] = DeviceHealth(last_drop=drop)
        return found

    async def add_connections(self, connections: Mapping[int, NewConnectionsSummary]) -> None:
        rows = [
            {"device_no": device_no, "connects": record.count, "max_packet_size": record.max_packet_size}
            for device_no, record in sorted(connections.items())
        ]
        await self._session.execute_many(ADD_CONNECTIONS, rows, defer=True)

    async def set_firmware(self, versions: Mapping[int, str]) -> None:
        await self._set_reported(SET_FIRMWARE, "firmware", versions)

    async def set_clock_offsets(self, offsets_ms: Mapping[int, int]) -> None:
        await self._set_reported(SET_CLOCK_OFFSET, "clock_offset_ms", offsets_ms)

    async def _set_reported(self, statement: ClauseElement, column: str, values: Mapping[int, object]) -> None:
        rows = [{"device_no": no, "connects": NEVER_CONNECTED, column: value} for no, value in sorted(values.items())]
        await self._session.execute_many(statement, rows, defer=True)

    async def add_drops(self, drops: Sequence[DroppedMessages]) -> None:
        rows = [
            {"device_no": drop.device_no, "reason": drop.reason, "unannounced": drop.count, "last_ms": drop.at_ms}
            for drop in sorted(drops, key=lambda drop: (drop.device_no, drop.reason))
        ]
        if rows:
            await self._session.execute_many(ADD_DROPS, rows)

    async def take_unannounced_drops(
        self, numbers: Collection[int], announced_before_ms: int, now_ms: int
    ) -> Sequence[DroppedMessages]:
        if not numbers:
            return ()
        rows = await self._session.read(LIST_UNANNOUNCED, at_listed=to_json(sorted(numbers)), at_before=announced_before_ms)
        taken = [DroppedMessages(*row) for row in rows]
        if taken:
            marks = [
                {"at_no": drop.device_no, "at_reason": drop.reason, "at_count": drop.count, "at_now": now_ms} for drop in taken
            ]
            await self._session.execute_many(MARK_ANNOUNCED, marks)
        return taken
