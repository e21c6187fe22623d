"""The ingest worker: how batches follow each other, when they are acknowledged, and what happens when one cannot be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.workers import ingest
from app.workers.ingest import BATCH_SIZE, MIN_BATCH_INTERVAL_S, IngestWorker
from app.workers.last_seen import LastSeenBuffer
from app.workers.wake_event import WakeEvent
from domain.ingest.device_messages import DecodedBatch, FollowUps
from domain.ingest.pipeline import EvaluatedBatch
from domain.kernel.backoff import Backoff
from domain.kernel.errors import Unavailable


@dataclass
class Batch:
    telemetry: list[int]
    events: list[Any] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def ack(self) -> None:
        self.answers.append("ack")

    def nack(self) -> None:
        self.answers.append("nack")


class LinkExhausted(Exception):
    pass


class BatchSource:
    """Gives batches of the given sizes, one after the other."""

    def __init__(self, *sizes: int) -> None:
        self._left = list(sizes)

    async def receive(self, limit: int) -> Batch:
        if not self._left:
            raise LinkExhausted
        return Batch([0] * min(limit, self._left.pop(0)))


async def pauses(monkeypatch: pytest.MonkeyPatch, processing_s: float, *sizes: int) -> list[float]:
    """The worker's pauses after batches that each take `processing_s`."""
    now, found = [100.0], []

    async def sleep(seconds: float) -> None:
        found.append(round(seconds, 6))

    async def process(batch: Batch) -> None:
        now[0] += processing_s

    worker: Any = object.__new__(IngestWorker)
    worker._link, worker._process_batch = BatchSource(*sizes), process
    monkeypatch.setattr(ingest, "monotonic", lambda: now[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(LinkExhausted):
        await worker.run()
    return found


async def test_messages_that_arrive_right_after_a_transaction_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pauses(monkeypatch, 0.001, 1, 2) == [round(MIN_BATCH_INTERVAL_S - 0.001, 6)] * 2


async def test_no_pause_follows_a_long_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pauses(monkeypatch, MIN_BATCH_INTERVAL_S, 1, 2) == []


async def test_no_pause_follows_a_full_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pauses(monkeypatch, 0.001, BATCH_SIZE, 1) == [round(MIN_BATCH_INTERVAL_S - 0.001, 6)]


class FakePipeline:
    """Evaluates to three messages; `fail` raises instead of storing, and `stored` collects what each transaction held."""

    def __init__(self, batch: Batch, fail: Callable[[EvaluatedBatch], None] = lambda _: None) -> None:
        self.batch = batch
        self.fail = fail
        self.evaluations = 0
        self.stored: list[list[Any]] = []
        self.followed_up: list[Any] = []

    async def decode(self, batch: Any) -> DecodedBatch:
        return DecodedBatch()

    def evaluate(self, batch: Any, decoded: Any) -> EvaluatedBatch:
        self.evaluations += 1
        return EvaluatedBatch(results=[], messages=["a", "b", "c"])  # type: ignore[list-item]

    async def store(self, batch: EvaluatedBatch) -> FollowUps:
        assert self.batch.answers == []
        self.fail(batch)
        self.stored.append(list(batch.messages))
        return FollowUps(ready_devices=[(ord(str(each)), 0, 0) for each in batch.messages])

    async def follow_up(self, follow_ups: FollowUps) -> None:
        assert self.batch.answers == ["ack"]
        self.followed_up += [chr(number) for number, _, _ in follow_ups.ready_devices]


async def process(batch: Batch, pipeline: FakePipeline) -> IngestWorker:
    pieces: dict[str, Any] = {"link": None, "pipeline": pipeline, "fault_log": None}
    lock = asyncio.Lock()
    worker = IngestWorker(**pieces, engine_commit_lock=lock, last_seen=LastSeenBuffer(), rule_timer_wake=WakeEvent())
    await worker._process_batch(batch)  # type: ignore[arg-type]
    assert not lock.locked()
    return worker


async def test_a_batch_is_acknowledged_after_its_commit_and_before_its_follow_ups() -> None:
    batch = Batch([])
    pipeline = FakePipeline(batch)
    await process(batch, pipeline)
    assert (pipeline.stored, pipeline.followed_up, batch.answers) == ([["a", "b", "c"]], ["a", "b", "c"], ["ack"])


async def test_a_batch_waits_until_the_database_answers_and_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "RETRY_BACKOFF", Backoff((0.0,)))
    failures = [Unavailable("away"), Unavailable("away")]

    def fail(_: EvaluatedBatch) -> None:
        if failures:
            raise failures.pop()

    batch = Batch([])
    pipeline = FakePipeline(batch, fail)
    worker = await process(batch, pipeline)
    assert (pipeline.stored, pipeline.evaluations, worker.retries, worker.lost) == ([["a", "b", "c"]], 1, 2, 0)


async def test_a_message_that_cannot_be_stored_is_dropped_and_the_others_are_stored_one_by_one() -> None:
    def fail(part: EvaluatedBatch) -> None:
        if "b" in part.messages:  # type: ignore[comparison-overlap]
            raise ValueError("cannot be stored")

    batch = Batch([])
    pipeline = FakePipeline(batch, fail)
    worker = await process(batch, pipeline)
    assert (pipeline.stored, pipeline.followed_up, worker.lost) == ([["a"], ["c"]], ["a", "c"], 1)
    assert batch.answers == ["ack"]
