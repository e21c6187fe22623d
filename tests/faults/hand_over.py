"""Measures how long the partitions of a killed instance stand still: from the kill to the next commit of their new owners."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

POLL_S = 0.03
LATE_S = 4.0
"""The beat of an instance that lives may come so late."""
LIMIT_S = 60.0
"""A partition that has not committed after so long counts with this time."""


@dataclass(frozen=True)
class PartitionRow:
    epoch: int
    position: int
    owner: str


async def read_rows(connection: asyncpg.Connection[Any]) -> Mapping[int, PartitionRow]:
    rows = await connection.fetch("SELECT part, epoch, position, owner FROM partitions")
    return {row["part"]: PartitionRow(row["epoch"], row["position"], row["owner"]) for row in rows}


async def read_beats(connection: asyncpg.Connection[Any]) -> dict[str, int]:
    return dict(await connection.fetch("SELECT instance, beats FROM members"))


async def measure(url: str, before: Mapping[int, PartitionRow], busy: Collection[int], killed_at: float) -> list[float]:
    """Seconds from `killed_at` (monotonic) to the next commit of each of the `busy` partitions of the instance that was killed: the
    one that does not beat any more. One that lives may be late by seconds on a busy machine."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=LIMIT_S)
    try:
        committed: dict[int, float] = {}
        beats, wanted = await read_beats(connection), list(busy)
        while (waited_s := time.monotonic() - killed_at) < LIMIT_S:
            rows, now = await read_rows(connection), await read_beats(connection)
            for part in busy:
                if rows[part].epoch != before[part].epoch and rows[part].position > before[part].position:
                    committed.setdefault(part, waited_s)
            wanted = [part for part in busy if now.get(before[part].owner) == beats.get(before[part].owner)]
            if waited_s > LATE_S and all(part in committed for part in wanted):
                break
            await asyncio.sleep(POLL_S)
        return [committed.get(part, LIMIT_S) for part in wanted]
    finally:
        await connection.close()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values: Sequence[float]) -> str:
    p50, p95 = percentile(values, 0.5), percentile(values, 0.95)
    return f"hand-over of {len(values)} partitions: p50 {p50:.2f} s, p95 {p95:.2f} s, max {max(values):.2f} s"
