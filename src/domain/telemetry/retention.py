"""Deletes expired rows, or moves readings to the store that has the older ones, in small steps, so that no step holds the writer
for more than a few milliseconds.

The law of a move: a message is deleted in the database only after the store has confirmed it, and only by its own key. What is
left to move is what the database still has, so no position can be wrong: after a crash some messages are added again, which
changes nothing, and a late reading is moved like any other. Messages of deleted devices are deleted without being moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from domain.devices.model import DeviceStatus
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork
from domain.telemetry.model import name_of_unnamed, oldest_kept_ms
from domain.telemetry.packing import unpack_row
from domain.telemetry.ports import LATE_KEPT_S, ArchivedMessageReadings, DeviceKey, PackedRow, ReadingArchiveStore, TelemetryTx


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """How many days rows are kept."""

    readings: int = 30
    rollups: int = 365
    events: int = 365
    executions: int = 90
    deliveries: int = 7
    schedules: int = 365
    expired_invitations: int = 30
    known_login_addresses: int = 30
    """Addresses of successful logins: kept as long as a refresh token is valid."""


async def expired_readings_ms(tx: TelemetryTx, now_ms: int, days: int) -> int:
    """Older readings need not be kept. None later than the oldest hour that still needs its roll-up."""
    due = await tx.due_rollups.find_oldest_hour()
    kept_ms = oldest_kept_ms(now_ms, days)
    return kept_ms if due is None else min(kept_ms, due * HOUR_MS)


FindDevices = Callable[[TelemetryTx, int], Awaitable[Sequence[int]]]
DeleteRows = Callable[[TelemetryTx, int, int], Awaitable[int]]
DeleteExpired = Callable[[TelemetryTx, int], Awaitable[int]]
"""With the most rows that it may delete; returns how many it did."""


@service
class RetentionService:
    ROWS_PER_STEP = 2_000
    """Rows deleted per transaction."""
    EVENTS_PER_STEP = 250
    """Rows of the event log deleted per transaction; each is in eight indexes."""
    DEVICES_PER_STEP = 200
    """Devices found and processed at a time."""

    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    periods: RetentionPeriods
    moves_readings: bool = False
    """Expired readings are left to `OldReadingMover`."""

    async def purge_steps(self) -> AsyncIterator[int]:
        """Yield after each transaction how many rows it deleted, so that the caller can pause. Ends when nothing is left to
        delete."""
        async with self.uow.write(caller=None) as tx:
            await tx.range_partitions.prepare(self.clock.now_ms())
            dropped = await tx.range_partitions.drop_before(
                await self._readings_cutoff_ms(tx), self._rollups_cutoff_hour(), keep_readings=self.moves_readings
            )
        yield dropped
        if not self.moves_readings:
            async for deleted in self._purge_by_device(self._devices_with_old_readings, self._delete_readings):
                yield deleted
        async for deleted in self._purge_by_device(self._devices_with_old_rollups, self._delete_rollups):
            yield deleted
        for delete_expired, limit in self._steps():
            while True:
                async with self.uow.write(caller=None) as tx:
                    deleted = await delete_expired(tx, limit)
                yield deleted
                if deleted < limit:
                    break

    async def _purge_by_device(self, find_devices: FindDevices, delete_rows: DeleteRows) -> AsyncIterator[int]:
        """Find the devices in a read transaction, so that the writer only deletes."""
        first = 0
        while True:
            async with self.uow.read() as tx:
                devices = await find_devices(tx, first)
            waiting = list(devices)
            while waiting:
                async with self.uow.write(caller=None) as tx:
                    total = 0
                    while waiting and total < self.ROWS_PER_STEP:
                        total += await delete_rows(tx, waiting[-1], self.ROWS_PER_STEP - total)
                        if total < self.ROWS_PER_STEP:
                            waiting.pop()
                yield total
            if len(devices) < self.DEVICES_PER_STEP:
                return
            first = devices[-1] + 1

    async def _devices_with_old_readings(self, tx: TelemetryTx, first: int) -> Sequence[int]:
        return await tx.readings.list_devices_with_rows_before(await self._readings_cutoff_ms(tx), first, self.DEVICES_PER_STEP)

    async def _delete_readings(self, tx: TelemetryTx, device_no: int, limit: int) -> int:
        return await tx.readings.delete_batch(device_no, limit, await self._readings_cutoff_ms(tx))

    async def _readings_cutoff_ms(self, tx: TelemetryTx) -> int:
        return await expired_readings_ms(tx, self.clock.now_ms(), self.periods.readings)

    async def _devices_with_old_rollups(self, tx: TelemetryTx, first: int) -> Sequence[int]:
        return await tx.rollups.list_devices_with_rollups_before(self._rollups_cutoff_hour(), first, self.DEVICES_PER_STEP)

    async def _delete_rollups(self, tx: TelemetryTx, device_no: int, limit: int) -> int:
        return await tx.rollups.delete_older_than(device_no, self._rollups_cutoff_hour(), limit)

    def _rollups_cutoff_hour(self) -> int:
        return self._days_ago_ms(self.periods.rollups) // HOUR_MS

    def _steps(self) -> Sequence[tuple[DeleteExpired, int]]:
        """What deletes the expired rows of a kind, and how many at a time."""
        days, rows = self.periods, self.ROWS_PER_STEP
        return (
            (lambda tx, limit: tx.events.delete_older_than(self._days_ago_ms(days.events), limit), self.EVENTS_PER_STEP),
            # Decisions on approvals are kept as long as the event log.
            (lambda tx, limit: tx.approvals.delete_older_than(self._days_ago_ms(days.events), limit), self.EVENTS_PER_STEP),
            (lambda tx, limit: tx.executions.delete_older_than(self._days_ago_ms(days.executions), limit), rows),
            (lambda tx, limit: tx.deliveries.delete_older_than(self._days_ago_ms(days.deliveries), limit), rows),
            (lambda tx, limit: tx.schedules.delete_older_than(self._days_ago_ms(days.schedules), limit), rows),
            (lambda tx, limit: tx.grants.delete_uses_older_than(self.clock.now_ms() - 2 * MINUTE_MS, limit), rows),
            (lambda tx, limit: tx.refresh_tokens.delete_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.user_sessions.delete_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.second_factors.delete_challenges_older_than(self.clock.now_ms(), limit), rows),
            # Expired invitations are listed for a month, to be sent again.
            (lambda tx, limit: tx.invitations.delete_older_than(self._days_ago_ms(days.expired_invitations), limit), rows),
            (lambda tx, limit: tx.passkeys.delete_challenges_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.external_identities.delete_states_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.login_failures.delete_older_than(self._days_ago_ms(1), limit), rows),
            (self._delete_known_logins, rows),
            (lambda tx, limit: tx.stored_responses.delete_older_than(self.clock.steady_ms() - DAY_MS, limit), rows),
            (_delete_late_marks, rows),
        )

    def _days_ago_ms(self, days: int) -> int:
        return self.clock.now_ms() - days * DAY_MS

    async def _delete_known_logins(self, tx: TelemetryTx, limit: int) -> int:
        before_ms = self._days_ago_ms(self.periods.known_login_addresses)
        return await tx.login_failures.delete_known_logins_older_than(before_ms, limit)


async def _delete_late_marks(tx: TelemetryTx, limit: int) -> int:
    """By the store time, which is that of the cursors too."""
    oldest_ms = (await tx.arrivals.store_time() - LATE_KEPT_S) * SECOND_MS
    return await tx.arrivals.delete_late_before(oldest_ms // MINUTE_MS, limit)


MESSAGES_PER_STEP = 20_000
"""One insert: a column store wants few large ones."""
DEVICES_PER_STEP = 1_000
DELETED_PER_TRANSACTION = 2_000


@service
class OldReadingMover:
    """`days`: how many the database keeps."""

    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    store: ReadingArchiveStore
    days: int
    messages_per_step: int = MESSAGES_PER_STEP
    damaged_messages: int = field(default=0, init=False)
    """Messages that could not be read and were deleted."""
    waits_for_rollups: bool = field(default=False, init=False)
    """Whether the last step left older readings because an hour has no roll-up yet."""

    async def move_steps(self) -> AsyncIterator[int]:
        """Yield after each step how many messages were moved. Ends when nothing is left to move. Raises Unavailable."""
        first: int | None = 0
        while first is not None:
            async with self.uow.read() as tx:
                rows, first = await self._list_expired(tx, first)
                messages = await self._to_messages(tx, rows)
            if messages:
                await self.store.add_many(messages)
            await self._delete(rows)
            yield len(rows)

    async def _list_expired(self, tx: TelemetryTx, first: int) -> tuple[list[PackedRow], int | None]:
        """Some expired rows, by device and time, and the device to continue with."""
        now_ms = self.clock.now_ms()
        before_ms = await expired_readings_ms(tx, now_ms, self.days)
        self.waits_for_rollups = before_ms < oldest_kept_ms(now_ms, self.days)
        devices = await tx.readings.list_devices_with_rows_before(before_ms, first, DEVICES_PER_STEP, in_ranges=True)
        rows: list[PackedRow] = []
        for device_no in devices:
            room = self.messages_per_step - len(rows)
            found = await tx.readings.list_page(device_no, 0, before_ms, room, None, newest_first=False)
            rows += [(device_no, *row) for row in found]
            if len(found) == room:
                return rows, device_no
        return rows, devices[-1] + 1 if len(devices) == DEVICES_PER_STEP else None

    async def _to_messages(self, tx: TelemetryTx, rows: Sequence[PackedRow]) -> list[tuple[DeviceKey, ArchivedMessageReadings]]:
        numbers = sorted({row[0] for row in rows})
        known = await tx.devices.list_by_numbers(numbers)
        devices = {each.device_no: each.device_id for each in known if each.status is not DeviceStatus.DELETING}
        metrics = await tx.readings.list_metrics_of_devices(list(devices))
        names = {key: name for key, (name, _) in metrics.items()}
        found = []
        for device_no, at_ms, digest, packed in rows:
            if device_no not in devices:
                continue
            try:
                message = _to_message(device_no, at_ms, digest, packed, names)
            except ValueError:
                self.damaged_messages += 1
                continue
            found.append(((device_no, devices[device_no]), message))
        return found

    async def _delete(self, rows: Sequence[PackedRow]) -> None:
        for start in range(0, len(rows), DELETED_PER_TRANSACTION):
            async with self.uow.write(caller=None) as tx:
                for device_no, some in groupby(rows[start : start + DELETED_PER_TRANSACTION], key=lambda row: row[0]):
                    await tx.readings.delete_messages(device_no, [(at_ms, digest) for _, at_ms, digest, _ in some])


def _to_message(
    device_no: int, at_ms: int, digest: int, packed: bytes, names: Mapping[tuple[int, int], str]
) -> ArchivedMessageReadings:
    ahead_ms, readings = unpack_row(packed)
    named = tuple((names.get((device_no, number)) or name_of_unnamed(number), value) for number, value in readings)
    return ArchivedMessageReadings(at_ms, digest, ahead_ms, named)
