"""The inbound log in memory: the same promises as the replicated one while the process lives."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import count

from domain.partitions.ports import InboundLogDamagedError, InboundLogEntry

_log_numbers = count(1)


class MemoryInboundLog:
    def __init__(self, partition_count: int) -> None:
        self._log_id = f"memory-{next(_log_numbers)}"
        self._entries: list[dict[int, bytes]] = [{} for _ in range(partition_count)]
        self._last = [0] * partition_count
        self._ids: dict[tuple[int, str], int] = {}
        self._grown = asyncio.Condition()

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def log_ids(self, partitions: Collection[int]) -> Mapping[int, str]:
        return dict.fromkeys(partitions, self._log_id)

    async def last_positions(self) -> Mapping[int, int]:
        return dict(enumerate(self._last))

    async def append(self, partition: int, body: bytes, entry_id: str) -> int:
        if (partition, entry_id) not in self._ids:
            self._last[partition] += 1
            self._ids[partition, entry_id] = self._last[partition]
            self._entries[partition][self._last[partition]] = body
            async with self._grown:
                self._grown.notify_all()
        return self._ids[partition, entry_id]

    async def read(self, partition: int, after: int, limit: int, wait_s: float) -> Sequence[InboundLogEntry]:
        if after > self._last[partition]:
            raise InboundLogDamagedError(f"The log of partition {partition} ends before entry {after}.")
        try:
            async with asyncio.timeout(wait_s), self._grown:
                await self._grown.wait_for(lambda: self._last[partition] > after)
        except TimeoutError:
            return ()
        last = min(self._last[partition], after + limit)
        entries = self._entries[partition]
        if after + 1 not in entries:
            raise InboundLogDamagedError(f"The log of partition {partition} has no entry {after + 1}.")
        return [InboundLogEntry(position, entries[position]) for position in range(after + 1, last + 1)]

    async def trim(self, partition: int, up_to: int) -> None:
        for position in [each for each in self._entries[partition] if each <= up_to]:
            del self._entries[partition][position]

    def first(self, partition: int) -> int:
        """The position of the first entry that is kept, or would be."""
        return min(self._entries[partition], default=self._last[partition] + 1)
