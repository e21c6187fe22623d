"""The MQTT credentials of devices.

What is known of a device's health, and what of its messages was dropped, by reason.

The instances that hold the connections of devices.

Dead letters: messages from devices that the database refused, in the order in which they were set aside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, func, insert, or_, select, update
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.mapping import RowMapper, SqlRepository, enum_converter, to_json
from adapters.storage.sql.repositories.devices import DEVICE
from adapters.storage.sql.statements import listed, listed_integers, upsert
from adapters.storage.sql.tables import credentials, dead_letters, device_drops, device_health, device_sessions, devices
from domain.devices.model import (
    UNKNOWN_HEALTH,
    Device,
    DeviceCredentials,
    DeviceHealth,
    DeviceStatus,
    DroppedMessages,
    NewConnectionsSummary,
)
from domain.devices.ports import NO_FRONT
from domain.ingest.ports import IngestDeadLetter, IngestDeadLetterState
from domain.kernel.ids import DeviceId

CREDENTIALS = RowMapper(credentials, DeviceCredentials)

GET_CREDENTIALS = CREDENTIALS.select().where(credentials.c.device_id == bindparam("at_id"))
UPSERT_CREDENTIALS = upsert(credentials, "sealed", "created_ms")
DELETE_CREDENTIALS = delete(credentials).where(credentials.c.device_id == bindparam("at_id"))
LIST_ACTIVE_WITH_CREDENTIALS = (
    select(*DEVICE.columns, *CREDENTIALS.columns)
    .join(credentials, credentials.c.device_id == devices.c.device_id)
    .where(devices.c.status == DeviceStatus.ACTIVE.value)
    .order_by(devices.c.device_no)
)
PAGE_CREDENTIALS = (
    CREDENTIALS.select()
    .where(credentials.c.device_id > bindparam("at_after"))
    .order_by(credentials.c.device_id)
    .limit(bindparam("at_limit"))
)
COUNT_CREDENTIALS = select(func.count()).select_from(credentials)
REKEY_CREDENTIALS = (
    update(credentials)
    .where(credentials.c.device_id == bindparam("at_id"), credentials.c.sealed == bindparam("at_before"))
    .values(sealed=bindparam("at_after"))
    .returning(credentials.c.device_id)
)


class SqlDeviceCredentialsRepository(SqlRepository):
    async def get_for_update(self, device_id: DeviceId) -> DeviceCredentials | None:
        return await self._first(CREDENTIALS, GET_CREDENTIALS, at_id=device_id)

    async def upsert(self, credentials: DeviceCredentials) -> None:
        await self._session.execute_many(UPSERT_CREDENTIALS, [CREDENTIALS.values(credentials)], defer=True)

    async def delete(self, device_id: DeviceId) -> None:
        await self._session.write(DELETE_CREDENTIALS, at_id=device_id)

    async def list_of_active_devices(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        width = len(DEVICE.columns)
        rows = await self._session.read(LIST_ACTIVE_WITH_CREDENTIALS)
        return [(DEVICE.from_row(row), CREDENTIALS.from_row(row[width:])) for row in rows]

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        return await self._list(CREDENTIALS, PAGE_CREDENTIALS, at_after=after or "", at_limit=limit)

    async def count(self) -> int:
        return await self._number(COUNT_CREDENTIALS)

    async def rekey(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(REKEY_CREDENTIALS, at_id=device_id, at_before=before, at_after=after))


h, d = device_health.c, device_drops.c


LIST_HEALTH = select(h.device_no, h.clock_offset_ms, h.connects, h.firmware, h.max_packet_size).where(
    h.device_no.in_(listed_integers())
)
LIST_DROPS = select(d.device_no, d.reason, d.unannounced, d.last_ms, d.topic).where(d.device_no.in_(listed_integers()))
ADD_CONNECTIONS = upsert(device_health, "max_packet_size", adding=("connects",))
SET_FIRMWARE = upsert(device_health, "firmware")
SET_CLOCK_OFFSET = upsert(device_health, "clock_offset_ms")
ADD_DROPS = upsert(device_drops, "last_ms", "topic", "metric", adding=("unannounced",))
LIST_UNANNOUNCED = (
    select(d.device_no, d.reason, d.unannounced, d.last_ms, d.topic, d.metric)
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
        rows, dropped = await self._session.read_batch((LIST_HEALTH, among), (LIST_DROPS, among))
        found = {
            device_no: DeviceHealth(
                clock_offset_ms=offset_ms, reconnects=max(0, connects - 1), firmware=firmware, max_packet_size=max_packet_size
            )
            for device_no, offset_ms, connects, firmware, max_packet_size in rows
        }
        for drop in sorted((DroppedMessages(*row) for row in dropped), key=lambda drop: (drop.at_ms, drop.reason)):
            found[drop.device_no] = drop.shown_in(found.get(drop.device_no, UNKNOWN_HEALTH))
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
            {
                "device_no": drop.device_no,
                "reason": drop.reason,
                "unannounced": drop.count,
                "last_ms": drop.at_ms,
                "topic": drop.topic,
                "metric": drop.metric,
            }
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


s = device_sessions.c

ATTACH = upsert(device_sessions, "front", "connected_ms")
_AMONG = s.device_no.in_(listed_integers())
DETACH = delete(device_sessions).where(_AMONG, s.front.in_([bindparam("at_front"), NO_FRONT]))
FRONTS = select(s.device_no, s.front).where(_AMONG).order_by(s.device_no)
FRONTS_FOR_SHARE = {False: FRONTS, True: FRONTS.with_for_update(read=True)}
FRONTS_FOR_UPDATE = FRONTS.with_for_update()
CONNECTED = select(s.device_no, s.front, s.connected_ms).where(_AMONG)
ABANDON = update(device_sessions).where(s.front.not_in(listed())).values(front=NO_FRONT).returning(s.device_no)


class SqlDeviceConnectionHolderRepository(SqlRepository):
    async def attach(self, connected: Mapping[int, int], front: str) -> Collection[int]:
        before = await self._session.read(FRONTS_FOR_UPDATE, at_listed=to_json(sorted(connected)))
        rows = [{"device_no": each, "front": front, "connected_ms": at_ms} for each, at_ms in sorted(connected.items())]
        await self._session.execute_many(ATTACH, rows)
        return {int(device_no) for device_no, earlier in before if earlier != front}

    async def detach(self, device_nos: Collection[int], front: str) -> None:
        if device_nos:
            await self._session.write(DETACH, at_listed=to_json(sorted(device_nos)), at_front=front)

    async def fronts(self, device_nos: Collection[int]) -> Mapping[int, str]:
        if not device_nos:
            return {}
        statement = FRONTS_FOR_SHARE[self._session.writable]
        found = await self._session.read(statement, at_listed=to_json(sorted(device_nos)))
        return {int(device_no): str(front) for device_no, front in found}

    async def connected_since(self, device_nos: Collection[int], live: Collection[str]) -> Mapping[int, int]:
        if not device_nos:
            return {}
        found = await self._session.read(CONNECTED, at_listed=to_json(sorted(device_nos)))
        return {int(device_no): int(at_ms) for device_no, front, at_ms in found if front in live}

    async def abandon(self, live: Collection[str]) -> Sequence[int]:
        found = await self._session.write(ABANDON, at_listed=to_json(sorted(live)))
        return sorted(int(device_no) for [device_no] in found)


c = dead_letters.c
LETTER: RowMapper[IngestDeadLetter] = RowMapper(dead_letters, IngestDeadLetter, {"state": enum_converter(IngestDeadLetterState)})

ADD = insert(dead_letters)
LIST_LETTERS = LETTER.select().order_by(c.letter_id.desc()).limit(bindparam("at_limit"))
LIST_BY_DEVICE = LIST_LETTERS.where(c.device_id == bindparam("at_device"))
FIND = LETTER.select().where(c.letter_id == bindparam("at_id"))
COUNT = select(func.count()).select_from(dead_letters)
LIST_FOR_REPLAY = (
    LETTER.select().where(c.state == IngestDeadLetterState.REPLAY.value).order_by(c.letter_id).limit(bindparam("at_limit"))
)
MARK_ALL = update(dead_letters).values(state=IngestDeadLetterState.REPLAY.value).returning(c.letter_id)
MARK = MARK_ALL.where(c.letter_id.in_(listed_integers()))
SET_ASIDE_AGAIN = (
    update(dead_letters)
    .where(c.letter_id == bindparam("at_id"))
    .values(state=IngestDeadLetterState.SET_ASIDE.value, reason=bindparam("reason"))
)
DELETE_ALL = delete(dead_letters).returning(c.letter_id)
DELETE = DELETE_ALL.where(c.letter_id.in_(listed_integers()))
_NEWEST_TO_DELETE = select(c.letter_id).order_by(c.letter_id.desc()).limit(1).offset(bindparam("at_keep")).scalar_subquery()
DELETE_OLDEST = DELETE_ALL.where(c.letter_id <= _NEWEST_TO_DELETE)
DELETE_BATCH = DELETE_ALL.where(
    c.letter_id.in_(select(c.letter_id).where(c.device_no == bindparam("at_device")).limit(bindparam("at_limit")))
)


class SqlIngestDeadLetterRepository(SqlRepository):
    async def add_many(self, letters: Sequence[IngestDeadLetter]) -> None:
        await self._session.execute_many(ADD, [LETTER.values(letter, "letter_id") for letter in letters])

    async def list(self, limit: int, *, device_id: DeviceId | None = None) -> Sequence[IngestDeadLetter]:
        if device_id is None:
            return await self._list(LETTER, LIST_LETTERS, at_limit=limit)
        return await self._list(LETTER, LIST_BY_DEVICE, at_device=device_id, at_limit=limit)

    async def find(self, letter_id: int) -> IngestDeadLetter | None:
        return await self._first(LETTER, FIND, at_id=letter_id)

    async def count(self) -> int:
        return await self._number(COUNT)

    async def mark_for_replay(self, letter_ids: Collection[int] | None) -> int:
        return await self._change(MARK_ALL, MARK, letter_ids)

    async def list_for_replay(self, limit: int) -> Sequence[IngestDeadLetter]:
        return await self._list(LETTER, LIST_FOR_REPLAY, at_limit=limit)

    async def set_aside_again(self, letter_id: int, reason: str) -> None:
        await self._session.write(SET_ASIDE_AGAIN, at_id=letter_id, reason=reason)

    async def delete(self, letter_ids: Collection[int] | None) -> int:
        return await self._change(DELETE_ALL, DELETE, letter_ids)

    async def delete_oldest(self, keep: int) -> int:
        return await self._count_changed(DELETE_OLDEST, at_keep=keep)

    async def delete_batch(self, device_no: int, limit: int) -> int:
        return await self._count_changed(DELETE_BATCH, at_device=device_no, at_limit=limit)

    async def _change(self, every: ClauseElement, some: ClauseElement, letter_ids: Collection[int] | None) -> int:
        if letter_ids is None:
            return await self._count_changed(every)
        return await self._count_changed(some, at_listed=to_json(sorted(letter_ids)))
