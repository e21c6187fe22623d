"""What the ingest part keeps: messages that were set aside, and what the engine of a partition is restored from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from domain.kernel.ids import DeviceId
from domain.rules.model import Rule
from domain.telemetry.ports import PackedRow, TelemetryTx


class IngestDeadLetterState(StrEnum):
    SET_ASIDE = "SET_ASIDE"
    REPLAY = "REPLAY"
    """Marked by the operator; the service replays it next."""


@dataclass(frozen=True, slots=True)
class IngestDeadLetter:
    letter_id: int
    """Assigned by the database; 0 before."""
    device_no: int
    device_id: DeviceId | None
    """None for a device that was deleted."""
    kind: str
    payload: bytes
    arrived_ms: int
    reason: str
    created_ms: int = 0
    state: IngestDeadLetterState = IngestDeadLetterState.SET_ASIDE


class IngestDeadLetterRepository(Protocol):
    async def add_many(self, letters: Sequence[IngestDeadLetter]) -> None: ...

    async def list(self, limit: int, *, device_id: DeviceId | None = None) -> Sequence[IngestDeadLetter]:
        """Newest first."""

    async def find(self, letter_id: int) -> IngestDeadLetter | None: ...

    async def count(self) -> int: ...

    async def mark_for_replay(self, letter_ids: Collection[int] | None) -> int:
        """Mark these, or all; returns how many exist."""

    async def list_for_replay(self, limit: int) -> Sequence[IngestDeadLetter]:
        """The marked ones, oldest first."""

    async def set_aside_again(self, letter_id: int, reason: str) -> None:
        """Remove the mark of a letter whose replay failed."""

    async def delete(self, letter_ids: Collection[int] | None) -> int:
        """Delete these, or all; returns how many were deleted."""

    async def delete_oldest(self, keep: int) -> int:
        """Delete all but the `keep` newest; returns how many were deleted."""

    async def delete_batch(self, device_no: int, limit: int) -> int:
        """Delete at most `limit` of a device; returns how many were deleted."""


HashRange = tuple[int, int]
"""The lowest and the highest hash of the devices; see `domain/partitions/model.py`."""


class PartitionEngineStateRepository(Protocol):
    async def list_checkpoints(self, hashes: HashRange) -> Sequence[tuple[int, int, bytes]]:
        """(device number, newest Unix ms, packed values) by device number."""

    async def list_newer_than_checkpoint(
        self, hashes: HashRange, limit: int, after: tuple[int, int, int] | None
    ) -> Sequence[PackedRow]:
        """Rows newer than their device's checkpoint, ordered by (device, time, digest). `after` is the key of the last row of the
        previous page."""

    async def list_enabled_rules(self, hashes: HashRange) -> Sequence[Rule]:
        """By device number."""


class IngestTx(TelemetryTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def dead_letters(self) -> IngestDeadLetterRepository: ...

    @property
    def partition_states(self) -> PartitionEngineStateRepository: ...
