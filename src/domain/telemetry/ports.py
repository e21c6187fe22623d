"""What the telemetry part needs from outside: the readings, and the names of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.rules.store import RulesTx
from domain.schedules.ports import SchedulesTx

PackedRow = tuple[int, int, int, bytes]
"""(device number, Unix ms, 32-bit digest of the content, packed values): the primary key makes a redelivery harmless."""


class ReadingRepository(Protocol):
    async def add(self, rows: Sequence[PackedRow]) -> None:
        """Rows that are there already are passed over."""
        ...

    async def between(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        """(Unix ms, packed) of messages with since ≤ time < until."""
        ...

    async def add_names(self, names: Sequence[tuple[int, str]]) -> None: ...

    async def names(self) -> Sequence[tuple[int, str]]:
        """Every metric number and its name."""
        ...

    async def add_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None:
        """(device number, metric number, unit): insert, or set the unit."""
        ...

    async def metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        """(metric number, name, unit) the device has reported at least once, by name."""
        ...

    async def units(self) -> Sequence[tuple[int, int, str | None]]:
        """(device number, metric number, unit) of all devices, at start."""
        ...

    async def put_latest(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        """(device number, newest Unix ms, packed values): the last value of every metric, replaced."""
        ...

    async def latest(self) -> Sequence[tuple[int, int, bytes]]:
        """All checkpoints, at start."""
        ...

    async def newer_than_latest(self, limit: int, after: tuple[int, int, int] | None) -> Sequence[PackedRow]:
        """Rows newer than their device's checkpoint (all rows where there is none), by (device, time, digest); pages by the
        last key seen."""
        ...

    async def delete_some(self, device_no: int, limit: int) -> int:
        """Delete up to `limit` rows of a device; 0 when none are left."""
        ...

    async def forget_before(self, at_ms: int, limit: int) -> int:
        """Retention, in small steps; how many went."""
        ...


class TelemetryTx(SchedulesTx, RulesTx, Protocol):
    """Rules and readings change together, in the transaction of one batch."""

    @property
    def readings(self) -> ReadingRepository: ...
