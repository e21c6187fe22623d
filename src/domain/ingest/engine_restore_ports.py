"""Port to what the database contains of the devices of one partition: what their owner's engine is restored from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.rules.model import Rule
from domain.telemetry.ports import PackedRow

HashRange = tuple[int, int]
"""The lowest and the highest hash of the devices; see `domain/partitions/device_hash.py`."""


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
