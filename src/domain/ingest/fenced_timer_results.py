"""Stores what the timers of rules did, if this instance still owns the devices.

A batch of the log proves its ownership by the position that it advances. A timer has no position; it names the epochs instead.
"""

from __future__ import annotations

from typing import Protocol

from domain.ingest.engine_result_writer import EngineResultWriter, IngestResult, IngestTx
from domain.partitions.device_hash import partition_of
from domain.partitions.owned_partitions import OwnedPartitions
from domain.partitions.ports import HasPartitions


class FencedTimerResultTx(IngestTx, HasPartitions, Protocol): ...


class FencedTimerResultWriter:
    """`store` of `EngineResultWriter`, in a transaction that holds the partitions of the result."""

    def __init__(self, ingest: EngineResultWriter, ownership: OwnedPartitions) -> None:
        self._ingest = ingest
        self._ownership = ownership

    async def store(self, tx: FencedTimerResultTx, result: IngestResult) -> None:
        """Raises PartitionLostError."""
        partitions = {partition_of(device_no, self._ownership.count) for device_no in result.device_nos}
        await tx.partitions.require_owned([(partition, self._ownership.epoch(partition)) for partition in sorted(partitions)])
        await self._ingest.store(tx, result)
