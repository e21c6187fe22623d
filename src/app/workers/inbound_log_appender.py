"""Appends telemetry to the logs of its partitions."""

from __future__ import annotations

import asyncio
from itertools import count

from domain.partitions.ports import InboundLog
from domain.rules.ports import RawTelemetryBatch


class InboundLogAppender:
    """The entries of one partition are appended one after the other."""

    def __init__(self, inbound_log: InboundLog, partition_count: int, instance: str) -> None:
        self._log = inbound_log
        self._partition_count = partition_count
        self._instance = instance
        self._entry_numbers = count(1)
        self._locks = [asyncio.Lock() for _ in range(partition_count)]

    async def append(self, telemetry: RawTelemetryBatch) -> None:
        """Raises AppendUnconfirmedError."""
        if len(telemetry):
            blocks = telemetry.blocks(self._partition_count)  # type: ignore[attr-defined]  # the native class
            await asyncio.gather(*[self._append(*each) for each in blocks])

    async def _append(self, partition: int, body: bytes) -> None:
        async with self._locks[partition]:
            await self._log.append(partition, body, f"{self._instance}.{next(self._entry_numbers)}")
