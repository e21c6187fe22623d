"""Moves readings that are older than the database keeps to the reading store.

The law: a message is deleted in the database only after the store has confirmed it, and only by its own key. What is left to move
is what the database still has, so no position can be wrong: after a crash some messages are added again, which changes nothing,
and a late reading is moved like any other. Messages of deleted devices are deleted without being moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import Protocol

from domain.devices.model import DeviceStatus
from domain.devices.ports import HasDevices
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork
from domain.telemetry.ports import HasReadings, HasRollups, PackedRow
from domain.telemetry.reading_archive_store import (
    ArchivedMessageReadings,
    DeviceKey,
    ReadingArchiveStore,
    expired_readings_ms,
    name_of_unnamed,
    oldest_kept_ms,
)
from domain.telemetry.reading_packing import unpack_row

MESSAGES_PER_STEP = 20_000
"""One insert: a column store wants few large ones."""
DEVICES_PER_STEP = 1_000
DELETED_PER_TRANSACTION = 2_000


class OldReadingMoverTx(HasDevices, HasReadings, HasRollups, Protocol): ...


@service
class OldReadingMover:
    """`days`: how many the database keeps."""

    uow: UnitOfWork[OldReadingMoverTx]
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

    async def _list_expired(self, tx: OldReadingMoverTx, first: int) -> tuple[list[PackedRow], int | None]:
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

    async def _to_messages(
        self, tx: OldReadingMoverTx, rows: Sequence[PackedRow]
    ) -> list[tuple[DeviceKey, ArchivedMessageReadings]]:
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
