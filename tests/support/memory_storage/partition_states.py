"""What is stored of the devices of one partition."""

from __future__ import annotations

from collections.abc import Sequence

from domain.ingest.ports import HashRange
from domain.partitions.model import hash_of
from domain.rules.model import Rule
from domain.telemetry.ports import PackedRow
from support.memory_storage.rules import MemoryRuleRepository
from support.memory_storage.tables import Database
from support.memory_storage.telemetry import MemoryReadingRepository


class MemoryPartitionStateRepository:
    def __init__(self, database: Database) -> None:
        self._readings = MemoryReadingRepository(database)
        self._rules = MemoryRuleRepository(database)

    async def list_checkpoints(self, hashes: HashRange) -> Sequence[tuple[int, int, bytes]]:
        return [each for each in await self._readings.list_checkpoints() if _is_in(each[0], hashes)]

    async def list_newer_than_checkpoint(
        self, hashes: HashRange, limit: int, after: tuple[int, int, int] | None
    ) -> Sequence[PackedRow]:
        rows = await self._readings.list_newer_than_checkpoint(10**9, after)
        return [row for row in rows if _is_in(row[0], hashes)][:limit]

    async def list_enabled_rules(self, hashes: HashRange) -> Sequence[Rule]:
        return [rule for rule in await self._rules.list_enabled() if _is_in(rule.device_no, hashes)]


def _is_in(device_no: int, hashes: HashRange) -> bool:
    return hashes[0] <= hash_of(device_no) <= hashes[1]
