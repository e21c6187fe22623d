"""What telemetry needs from storage: readings, metric names, checkpoints, hourly roll-ups, the order of arrival, and a store for
readings that the database no longer keeps.

Readings are ordered by their own time, and have no column for their arrival, because another index would double what storing
them costs. Instead every batch has a store time, in seconds, which never decreases. A reading that is at most `LATE_AFTER_MS`
older than the store time of its batch is found by its own time. Of an older one, a late upload, the device and the range of times
are marked for the minute of the store time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from domain.groups.service import GroupsTx
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import DeviceId
from domain.rules.model import MetricValue

MAX_TIME_MS = 2**52
"""Later than any time that a device may report."""
LATE_AFTER_MS = 5 * SECOND_MS
LATE_KEPT_S = 86_400
"""How long marks of late uploads are kept at least, and so how old a cursor may be at least."""
NOT_ANSWERING = "The store of older readings does not answer. Try later, or ask for newer ones with `since`."

PackedRow = tuple[int, int, int, bytes]
"""(device number, Unix ms, 32-bit digest of the content, packed values). The first three are the primary key, so a message
that is delivered twice is stored once."""

RowKey = tuple[int, int, int]
"""(device number, Unix ms, digest): the primary key of a row."""

DueRollup = tuple[int, int, int]
"""(device number, hour, when it was marked in Unix ms): the hour has readings that its roll-up does not contain yet."""

MessageKey = tuple[int, int]
"""(Unix ms, digest): the key of a message among the messages of its device."""

DeviceKey = tuple[int, DeviceId]
"""(device number, device id)"""

ReadingRange = tuple[int, int, int]
"""(device number, from, until): Unix ms; `until` is exclusive."""

LateMark = tuple[int, int, int, int]
"""(device number, minute of the store time, from, until): late uploads lie between the last two, Unix ms, `until` exclusive."""


class ReadingRepository(Protocol):
    async def add_many(self, rows: Sequence[PackedRow]) -> None:
        """Insert rows; rows that exist already are skipped."""

    async def list_existing(self, keys: Sequence[RowKey]) -> Set[RowKey]:
        """Those of these keys that are stored."""

    async def list_between(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        """(Unix ms, packed) of the messages with since ≤ time < until."""

    async def list_page(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[tuple[int, int, bytes]]:
        """(Unix ms, digest, packed) of the messages with since ≤ time < until that follow `after`, in the order of their keys."""

    async def assign_metric_numbers(self, names: Sequence[str]) -> Sequence[tuple[int, str]]:
        """Each name with its number. New names get the next numbers, in the order of the list; until the transaction ends, other
        instances wait."""

    async def list_metric_names(self) -> Sequence[tuple[int, str]]:
        """Every metric number and its name."""

    async def upsert_device_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None:
        """(device number, metric number, unit) of what a device has reported: insert, or set the unit."""

    async def declare_device_metrics(self, device_no: int, metrics: Collection[int]) -> None:
        """Metric numbers that the device may report; those that it has keep what is stored."""

    async def list_reported_metrics(self, device_no: int) -> Collection[str]:
        """The names of those that the device has reported itself."""

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        """(metric number, name, unit) of every metric that the device has reported or that was made known, ordered by name."""

    async def list_metrics_of_devices(self, device_nos: Collection[int]) -> Mapping[tuple[int, int], tuple[str, str | None]]:
        """(device number, metric number) → (name, unit) of every metric that these devices have reported."""

    async def upsert_checkpoints(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        """(device number, newest Unix ms, packed values): insert or replace the latest value of every metric."""

    async def list_checkpoints(self) -> Sequence[tuple[int, int, bytes]]:
        """All checkpoints; called at startup."""

    async def find_checkpoint(self, device_no: int) -> tuple[int, bytes] | None:
        """(newest Unix ms, packed values) of one device."""

    async def list_newer_than_checkpoint(self, limit: int, after: tuple[int, int, int] | None) -> Sequence[PackedRow]:
        """Rows newer than their device's checkpoint (all rows of a device without one), ordered by (device, time, digest).

        `after` is the key of the last row of the previous page. Rows of deleted devices, which may be millions, are left out."""

    async def delete_batch(self, device_no: int, limit: int, before_ms: int = MAX_TIME_MS) -> int:
        """Delete up to `limit` of the device's rows before that time, oldest first. Returns how many; 0 when none are left."""

    async def delete_next_batch(self, device_no: int, limit: int, after: MessageKey | None) -> tuple[int, MessageKey | None]:
        """Delete up to `limit` of the device's rows that follow `after`, oldest first. Returns how many, and the `after` of the
        next batch. Rows of earlier times that are stored meanwhile are left."""

    async def delete_messages(self, device_no: int, keys: Sequence[MessageKey]) -> None:
        """Delete these messages of the device, and no others. `keys` is in order."""

    async def list_devices_with_rows_before(
        self, before_ms: int, first_device: int, limit: int, *, in_ranges: bool = False
    ) -> Sequence[int]:
        """Numbers, from `first_device` upwards, of devices that have rows before that time. `in_ranges`: also in days that
        `RangePartitionRepository` drops as a whole."""


class DueRollupRepository(Protocol):
    """The marks of hours that are due. Hours count from 1970."""

    async def mark(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        """Mark (device number, hour) pairs that have new readings. The time of an existing mark only increases."""

    async def list_before(self, before_hour: int, limit: int) -> Sequence[DueRollup]:
        """Marks of hours before `before_hour`, oldest hour first."""

    async def find_oldest_hour(self) -> int | None:
        """The oldest marked hour of all devices."""

    async def list_hours(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        """The device's marked hours with from ≤ hour < until, newest first."""

    async def complete(self, marks: Sequence[DueRollup]) -> Set[tuple[int, int]]:
        """Delete marks. Returns (device number, hour) of those that existed and had not changed since they were read."""

    async def delete_batch(self, device_no: int, limit: int) -> int:
        """Delete up to `limit` of the device's marks. Returns how many; 0 when none are left."""


class RollupRepository(Protocol):
    """Hourly roll-ups (`aggregation.py`). Hours count from 1970."""

    async def get_by_hours(self, hours: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], bytes]:
        """The roll-ups that exist for these (device number, hour) pairs."""

    async def upsert(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Insert or replace (device number, hour, packed) rows."""

    async def list_between(
        self, device_no: int, from_hour: int, until_hour: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        """(hour, packed) of the device's roll-ups with from ≤ hour < until."""

    async def delete_batch(self, device_no: int, limit: int) -> int:
        """Delete up to `limit` of the device's roll-ups. Returns how many; 0 when none are left."""

    async def delete_older_than(self, device_no: int, hour: int, limit: int) -> int:
        """Delete up to `limit` of the device's roll-ups before `hour`. Returns how many."""

    async def list_devices_with_rollups_before(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        """Numbers, from `first_device` upwards, of devices that have roll-ups before that hour."""


class RangePartitionRepository(Protocol):
    """Where the database can, it stores readings by day and roll-ups by week, and drops an expired day or week as a whole. Where
    it cannot, these calls do nothing."""

    async def prepare(self, now_ms: int) -> None:
        """Make room for the next days. Raises Unavailable if others use the tables for long; try again later."""

    async def divide_past(self, oldest_ms: int) -> None:
        """Divide the time from then on, before many old rows are stored."""

    async def drop_before(self, readings_ms: int, rollups_hour: int, *, keep_readings: bool = False) -> int:
        """Drop the days of readings and the weeks of roll-ups that end before. Returns about how many rows. `keep_readings`: drop
        only days without a row. Raises Unavailable as `prepare`."""


class ReadingArrivalRepository(Protocol):
    async def store_time(self) -> int:
        """The store time of the newest batch, Unix seconds; 0 before the first."""

    async def marks_since(self) -> int:
        """The store time, Unix seconds, from which on no mark of a late upload has been deleted; 0 if none ever was."""

    async def advance_store_time(self, now_s: int) -> int:
        """Set the store time to `now_s` unless it is later already. Returns it."""

    async def mark_late(self, marks: Sequence[LateMark]) -> None:
        """Insert marks; the range of an existing one grows."""

    async def list_late(self, device_nos: Collection[int], since_minute: int) -> Mapping[int, tuple[int, int]]:
        """For each of these devices with late uploads in that minute or later: one range that contains them."""

    async def delete_late_before(self, minute: int, limit: int) -> int:
        """Delete up to `limit` marks of earlier minutes, and if there were any, raise `marks_since`. Returns how many."""

    async def count_messages(self, ranges: Sequence[ReadingRange], limit: int) -> Sequence[int]:
        """The number of stored messages in each range, counted up to `limit`."""

    async def list_messages(self, ranges: Sequence[ReadingRange]) -> Sequence[PackedRow]:
        """The stored messages in these ranges, which do not overlap, by device and time."""


@dataclass(frozen=True, slots=True)
class ArchivedMessageReadings:
    at_ms: int
    digest: int
    ahead_ms: int | None
    """How far the reported time is after `at_ms`, where the device reported a later one."""
    readings: tuple[tuple[str, MetricValue], ...]
    """(metric, value) in the order of the message."""


class ReadingArchiveStore(Protocol):
    """The history of raw telemetry that the database no longer keeps. It knows readings by the names of their metrics, and
    devices by number and id, so that a database restored from a backup, which gives numbers again, never reads the values of
    others.

    Its calls raise Unavailable (NOT_ANSWERING) when it does not answer, or answers with an error: nothing is known to be
    done."""

    async def add_many(self, messages: Sequence[tuple[DeviceKey, ArchivedMessageReadings]]) -> None:
        """Store messages durably. One with the key of a stored one (device, time, digest) is the same message."""

    async def list_page(
        self, device: DeviceKey, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[ArchivedMessageReadings]:
        """The messages with since ≤ time < until that follow `after`, in the order of their keys."""

    async def delete_device(self, device_no: int) -> None:
        """Delete all messages of the device number."""


class TelemetryTx(GroupsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def readings(self) -> ReadingRepository: ...

    @property
    def rollups(self) -> RollupRepository: ...

    @property
    def due_rollups(self) -> DueRollupRepository: ...

    @property
    def range_partitions(self) -> RangePartitionRepository: ...

    @property
    def arrivals(self) -> ReadingArrivalRepository: ...
