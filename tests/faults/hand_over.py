"""Measures how long the partitions of a killed instance stand still: from the kill to the next commit of their new owners."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

POLL_S = 0.03
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


async def instances_alive(connection: asyncpg.Connection[Any], among: Collection[str]) -> set[str]:
    """Those whose beats grow within a second."""
    query = "SELECT instance, beats FROM members"
    before = dict(await connection.fetch(query))
    await asyncio.sleep(1.0)
    return {instance for instance, beats in await connection.fetch(query) if instance in among and before.get(instance) != beats}


async def measure(url: str, before: Mapping[int, PartitionRow], busy: Collection[int], killed_at: float) -> list[float]:
    """Seconds from `killed_at` (monotonic) to the next commit of each of the `busy` partitions of the instance that was killed."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=LIMIT_S)
    try:
        committed: dict[int, float] = {}
        owners = {row.owner for row in before.values()}
        dead = owners - await instances_alive(connection, owners)
        wanted = [part for part in busy if before[part].owner in dead]
        while len(committed) < len(wanted) and time.monotonic() < killed_at + LIMIT_S:
            rows = await read_rows(connection)
            waited_s = time.monotonic() - killed_at
            for part in wanted:
                if rows[part].epoch != before[part].epoch and rows[part].position > before[part].position:
                    committed.setdefault(part, waited_s)
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
