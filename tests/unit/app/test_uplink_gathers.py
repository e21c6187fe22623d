from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.workers import ingest
from app.workers.ingest import BATCH_SIZE, MIN_BATCH_INTERVAL_S, IngestWorker


@dataclass
class Batch:
    telemetry: list[int]
    events: list[Any] = field(default_factory=list)


class Ended(Exception):
    pass


class Endless:
    """As many messages as are said, in one batch after the other."""

    def __init__(self, *sizes: int) -> None:
        self._left = list(sizes)

    async def take(self, limit: int) -> Batch:
        if not self._left:
            raise Ended
        return Batch([0] * min(limit, self._left.pop(0)))


async def rests(monkeypatch: pytest.MonkeyPatch, takes_s: float, *sizes: int) -> list[float]:
    """How long the loop waits after each batch that takes `takes_s`, as far as it waits at all."""
    now, found = [100.0], []

    async def sleep(seconds: float) -> None:
        found.append(round(seconds, 6))

    async def absorb(batch: Batch) -> None:
        now[0] += takes_s

    loop: Any = object.__new__(IngestWorker)
    loop._link, loop._process_batch = Endless(*sizes), absorb
    monkeypatch.setattr(ingest, "monotonic", lambda: now[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Ended):
        await loop.run()
    return found


async def test_what_comes_right_after_a_transaction_shares_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await rests(monkeypatch, 0.001, 1, 2) == [round(MIN_BATCH_INTERVAL_S - 0.001, 6)] * 2


async def test_who_has_waited_for_a_long_transaction_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await rests(monkeypatch, MIN_BATCH_INTERVAL_S, 1, 2) == []


async def test_a_full_batch_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await rests(monkeypatch, 0.001, BATCH_SIZE, 1) == [round(MIN_BATCH_INTERVAL_S - 0.001, 6)]
