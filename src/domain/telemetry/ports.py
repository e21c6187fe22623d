"""What the telemetry part needs from outside: the readings, and the names of metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Protocol

from domain.rules.storage_ports import RulesTx
from domain.schedules.ports import SchedulesTx

MAX_TIME_MS = 2**52
"""Beyond any time a device may tell."""

PackedRow = tuple[int, int, int, bytes]
"""(device number, Unix ms, 32-bit digest of the content, packed values): the primary key makes a redelivery harmless."""


DueRollup = tuple[int, int, int]
"""(device number, hour, when it was marked in Unix ms): readings of this hour have come that its roll-up does not know."""


MessageKey = tuple[int, int]
"""(Unix ms, digest) of a message, among those of its device."""


class ReadingRepository(Protocol):
    async def add_many(self, rows: Sequence[PackedRow]) -> None:
        """Rows that are there already are passed over."""
        ...

    async def list_between(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        """(Unix ms, packed) of messages with since ≤ time < until."""
        ...

    async def list_page(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[tuple[int, int, bytes]]:
        """(Unix ms, digest, packed) with since ≤ time < until, by key, of those behind `after`."""
        ...

    async def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None: ...

    async def list_metric_names(self) -> Sequence[tuple[int, str]]:
        """Every metric number and its name."""
        ...

    async def upsert_device_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None:
        """(device number, metric number, unit): insert, or set the unit."""
        ...

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        """(metric number, name, unit) the device has reported at least once, by name."""
        ...

    async def list_units(self) -> Sequence[tuple[int, int, str | None]]:
        """(device number, metric number, unit) of all devices, at start."""
        ...

    async def upsert_checkpoints(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        """(device number, newest Unix ms, packed values): the last value of every metric, replaced."""
        ...

    async def list_checkpoints(self) -> Sequence[tuple[int, int, bytes]]:
        """All checkpoints, at start."""
        ...

    async def list_newer_than_checkpoint(self, limit: int, after: tuple[int, int, int] | None) -> Sequence[PackedRow]:
        """Rows newer than their device's checkpoint (all rows where there is none), by (device, time, digest); pages by the
        last key seen. Not those of deleted devices, which may be millions on their way out."""
        ...

    async def delete_batch(self, device_no: int, limit: int, before_ms: int = MAX_TIME_MS) -> int:
        """Delete up to `limit` of a device's rows before that time, oldest first; 0 when none are left."""
        ...

    async def list_devices_with_rows_before(self, before_ms: int, first_device: int, limit: int) -> Sequence[int]:
        """Numbers, from `first_device` upwards, of devices that have rows before that time."""
        ...


class RollupRepository(Protocol):
    """An hour of a device summed up (`rollup.py`), and marks for hours that are still to be. Hours count from 1970."""

    async def mark_due(self, hours: Sequence[tuple[int, int]], at_ms: int) -> None:
        """(device number, hour) in which readings have come. A mark that is there changes its time, and never back."""
        ...

    async def list_due(self, before_hour: int, limit: int) -> Sequence[DueRollup]:
        """Marks of earlier hours, oldest hour first."""
        ...

    async def find_oldest_due_hour(self) -> int | None:
        """The oldest hour that is marked."""
        ...

    async def list_due_hours(self, device_no: int, from_hour: int, until_hour: int) -> Sequence[int]:
        """The device's marked hours with from ≤ hour < until, newest first."""
        ...

    async def complete(self, marks: Sequence[DueRollup]) -> Set[tuple[int, int]]:
        """Take marks away; (device number, hour) of those that were not gone nor set anew since they were read."""
        ...

    async def get_by_hours(self, hours: Collection[tuple[int, int]]) -> Mapping[tuple[int, int], bytes]:
        """What is there of these (device number, hour)."""
        ...

    async def upsert(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """(device number, hour, packed), replacing what is there."""
        ...

    async def list_between(self, device_no: int, from_hour: int, until_hour: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """(hour, packed) with from ≤ hour < until, newest first."""
        ...

    async def delete_batch(self, device_no: int, limit: int) -> int:
        """Delete up to `limit` of a device's roll-ups, and as many of its marks; 0 when none of either are left."""
        ...

    async def delete_older_than(self, device_no: int, hour: int, limit: int) -> int:
        """Retention of one device; how many went."""
        ...

    async def list_devices_with_rollups_before(self, hour: int, first_device: int, limit: int) -> Sequence[int]:
        """Numbers, from `first_device` upwards, of devices that have roll-ups before that hour."""
        ...


class TelemetryTx(SchedulesTx, RulesTx, Protocol):
    """Rules and readings change together, in the transaction of one batch."""

    @property
    def readings(self) -> ReadingRepository: ...

    @property
    def rollups(self) -> RollupRepository: ...
