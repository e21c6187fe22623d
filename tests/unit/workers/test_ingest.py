"""The ingest worker: how batches follow each other, when they are acknowledged, and what happens when one cannot be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.workers import ingest
from app.workers.due import WakeEvent
from app.workers.ingest import BATCH_SIZE, MIN_BATCH_INTERVAL_S, IngestWorker
from domain.devices.health import ClockSkewService, LastSeenBuffer
from domain.devices.link import InboundDeviceConnected, InboundMessage
from domain.devices.messages import StockFirmwareTelemetryReport
from domain.ingest.device_messages import DecodedBatch, DecodedMessage, FollowUps
from domain.ingest.pipeline import EvaluatedBatch
from domain.ingest.ports import IngestDeadLetter
from domain.ingest.results import NOTHING, IngestResult
from domain.kernel.backoff import Backoff
from domain.kernel.errors import Unavailable
from support.manual_clock import ManualClock


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

    def has_waiting(self) -> bool:
        return bool(self._left)

    async def receive(self, limit: int) -> Batch:
        if not self._left:
            raise LinkExhausted
        return Batch([0] * min(limit, self._left.pop(0)))


async def pauses(
    monkeypatch: pytest.MonkeyPatch, processing_s: float, *sizes: int, senders: Sequence[int | None] = ()
) -> list[float]:
    """The worker's pauses after batches that each take `processing_s`, and come from a single device where `senders` names one."""
    now, found, left = [100.0], [], list(senders)

    async def sleep(seconds: float) -> None:
        found.append(round(seconds, 6))

    async def process(batch: Batch) -> None:
        now[0] += processing_s
        worker._only_sender = left.pop(0) if left else None

    worker: Any = object.__new__(IngestWorker)
    worker.link, worker._process_batch = BatchSource(*sizes), process
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


async def test_no_pause_follows_while_one_device_sends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses follow the first batch, the one from several devices, and the first one after it."""
    pause = round(MIN_BATCH_INTERVAL_S - 0.001, 6)
    assert await pauses(monkeypatch, 0.001, 1, 1, 1, senders=[7, 7, 7]) == [pause]
    assert await pauses(monkeypatch, 0.001, 1, 1, 2, 1, 1, senders=[7, 7, None, 7, 7]) == [pause] * 3
    assert await pauses(monkeypatch, 0.001, 1, 1, 1, senders=[7, 8, 7]) == [pause] * 3


def test_the_only_sender_of_a_batch_sent_its_telemetry_and_its_other_messages() -> None:
    assert EvaluatedBatch([], [a_message(1)], last_seen=[(1, 7)]).only_sender == 1
    assert EvaluatedBatch([], [a_message(2)], last_seen=[(1, 7)]).only_sender is None
    assert EvaluatedBatch([], [], last_seen=[(1, 7), (2, 7)]).only_sender is None
    assert EvaluatedBatch([], []).only_sender is None


def a_message(device_no: int, *reports: Any) -> DecodedMessage:
    return DecodedMessage(InboundMessage(device_no, f"dev_{device_no}", "state", b"%d" % device_no, 1, False, 7), reports)


def rows_of(*devices: int) -> IngestResult:
    """A result with a new metric and a row of each of these devices."""
    return replace(
        NOTHING, new_metrics=[(no, 100 + no, f"m{no}", None) for no in devices], rows=[(no, 7, 0, b"") for no in devices]
    )


class FakePipeline:
    """Evaluates to three messages, or what it is given; `fail` raises instead of storing, and `stored` has the devices of each
    transaction."""

    def __init__(
        self, batch: Batch, fail: Callable[[EvaluatedBatch], None] = lambda _: None, evaluated: EvaluatedBatch | None = None
    ) -> None:
        self.batch = batch
        self.fail = fail
        self.evaluated = evaluated or EvaluatedBatch([], [a_message(1), a_message(2), a_message(3)])
        self.evaluations = 0
        self.stored: list[list[int]] = []
        self.parts: list[EvaluatedBatch] = []
        self.followed_up: list[Any] = []

    async def device_ids(self, numbers: Any) -> list[str]:
        return [f"dev_{number}" for number in sorted(numbers)]

    async def decode(self, batch: Any) -> DecodedBatch:
        return DecodedBatch()

    async def evaluate(self, batch: Any, decoded: Any, assign_names: Any) -> EvaluatedBatch:
        self.evaluations += 1
        return self.evaluated

    async def store(self, batch: EvaluatedBatch) -> FollowUps:
        assert self.batch.answers == []
        self.fail(batch)
        self.stored.append(sorted(batch.device_nos))
        self.parts.append(batch)
        return FollowUps(ready_devices=[(message.event.device_no, 0, 0) for message in batch.messages])

    async def follow_up(self, follow_ups: FollowUps) -> None:
        assert self.batch.answers == ["ack"]
        self.followed_up += [number for number, _, _ in follow_ups.ready_devices]


class FakeDeadLetters:
    """`errors` are raised first, one by one."""

    def __init__(self, batch: Batch, *errors: Exception) -> None:
        self.batch = batch
        self.errors = list(errors)
        self.letters: list[IngestDeadLetter] = []

    async def set_aside(self, letters: list[IngestDeadLetter]) -> None:
        assert self.batch.answers == []
        if self.errors:
            raise self.errors.pop(0)
        self.letters += letters


class FakeTelemetry:
    """Native telemetry of devices, one message each."""

    def __init__(self, *devices: int) -> None:
        self.devices = devices

    def __len__(self) -> int:
        return len(self.devices)

    def messages(self) -> list[tuple[int, int, bytes]]:
        return [(no, 7, b"t%d" % no) for no in self.devices]


async def _nothing() -> None: ...


async def process(batch: Batch, pipeline: FakePipeline, dead_letters: FakeDeadLetters | None = None) -> IngestWorker:
    pieces: dict[str, Any] = {"link": None, "pipeline": pipeline, "fault_log": None}
    pieces["ensure_interest_current"] = _nothing
    pieces["clock_offsets"] = ClockSkewService(uow=None, clock=ManualClock())  # type: ignore[arg-type]
    pieces["dead_letters"] = dead_letters or FakeDeadLetters(batch)
    lock = asyncio.Lock()
    worker = IngestWorker(**pieces, engine_commit_lock=lock, last_seen=LastSeenBuffer(), rule_timer_wake=WakeEvent())
    await worker._process_batch(batch)  # type: ignore[arg-type]
    assert not lock.locked()
    return worker


def refuse(*devices: int) -> Callable[[EvaluatedBatch], None]:
    """Refuse the readings and messages of these devices."""

    def fail(part: EvaluatedBatch) -> None:
        rows = {row[0] for result in part.results for row in result.rows}
        if (rows | {message.event.device_no for message in part.messages}) & {*devices}:
            raise ValueError("no\x00 thanks")

    return fail


async def test_a_batch_is_acknowledged_after_its_commit_and_before_its_follow_ups() -> None:
    batch = Batch([])
    pipeline = FakePipeline(batch)
    await process(batch, pipeline)
    assert (pipeline.stored, pipeline.followed_up, batch.answers) == ([[1, 2, 3]], [1, 2, 3], ["ack"])


async def test_a_batch_waits_until_the_database_answers_and_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "RETRY_BACKOFF", Backoff((0.0,)))
    failures = [Unavailable("away"), Unavailable("away")]

    def fail(_: EvaluatedBatch) -> None:
        if failures:
            raise failures.pop()

    batch = Batch([])
    pipeline, dead_letters = FakePipeline(batch, fail), FakeDeadLetters(batch)
    worker = await process(batch, pipeline, dead_letters)
    assert (pipeline.stored, pipeline.evaluations, worker.retries, dead_letters.letters) == ([[1, 2, 3]], 1, 2, [])


async def test_a_refused_message_is_set_aside_before_the_acknowledgement_and_the_others_are_stored() -> None:
    batch = Batch([])
    pipeline, dead_letters = FakePipeline(batch, refuse(2)), FakeDeadLetters(batch)
    worker = await process(batch, pipeline, dead_letters)
    assert (pipeline.stored, pipeline.followed_up, worker.lost) == ([[1], [3]], [1, 3], 0)
    assert dead_letters.letters == [IngestDeadLetter(0, 2, None, "state", b"2", 7, "ValueError: no\ufffd thanks")]
    assert batch.answers == ["ack"]


async def test_a_refused_device_among_many_costs_few_transactions_and_only_its_telemetry_is_set_aside() -> None:
    devices = range(1, 1_001)
    batch = Batch(FakeTelemetry(*devices))  # type: ignore[arg-type]
    pipeline = FakePipeline(batch, refuse(500), EvaluatedBatch([rows_of(*devices)], []))
    dead_letters = FakeDeadLetters(batch)
    await process(batch, pipeline, dead_letters)
    assert [(letter.device_no, letter.kind, letter.payload) for letter in dead_letters.letters] == [(500, "telemetry", b"t500")]
    rows = [row[0] for part in pipeline.parts for result in part.results for row in result.rows]
    metrics = {each[0] for part in pipeline.parts for result in part.results for each in result.new_metrics}
    assert (sorted(rows), metrics) == ([no for no in devices if no != 500], set(devices))
    assert len(pipeline.stored) < 15
    assert batch.answers == ["ack"]


async def test_refused_readings_of_stock_firmware_set_its_own_message_aside_once() -> None:
    batch = Batch([])
    sensor, state = a_message(2, StockFirmwareTelemetryReport(b"{}")), a_message(2)
    evaluated = EvaluatedBatch([rows_of(2)], [sensor, state])

    def fail(part: EvaluatedBatch) -> None:
        if any(result.rows for result in part.results) or sensor in part.messages:
            raise ValueError("no")

    dead_letters = FakeDeadLetters(batch)
    await process(batch, FakePipeline(batch, fail, evaluated), dead_letters)
    assert [(letter.kind, letter.payload) for letter in dead_letters.letters] == [("state", b"2")]


async def test_a_refused_connect_has_no_bytes_and_is_counted() -> None:
    batch = Batch([])
    connect = DecodedMessage(InboundDeviceConnected(2, "dev_2", "mqtt/5", "::1", 7))
    dead_letters = FakeDeadLetters(batch)
    worker = await process(batch, FakePipeline(batch, refuse(2), EvaluatedBatch([], [connect])), dead_letters)
    assert (worker.lost, dead_letters.letters, batch.answers) == (1, [], ["ack"])


async def test_setting_aside_waits_until_the_database_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "RETRY_BACKOFF", Backoff((0.0,)))
    batch = Batch([])
    dead_letters = FakeDeadLetters(batch, Unavailable("away"), Unavailable("away"))
    await process(batch, FakePipeline(batch, refuse(2)), dead_letters)
    assert (len(dead_letters.letters), batch.answers) == (1, ["ack"])


async def test_a_batch_whose_refused_message_cannot_be_set_aside_is_never_acknowledged() -> None:
    batch = Batch([1])

    class OneBatch:
        def has_waiting(self) -> bool:
            return False

        async def receive(self, limit: int) -> Batch:
            return batch

    pieces: dict[str, Any] = {"link": OneBatch(), "pipeline": FakePipeline(batch, refuse(2)), "fault_log": None}
    pieces["ensure_interest_current"] = _nothing
    pieces["clock_offsets"] = ClockSkewService(uow=None, clock=ManualClock())  # type: ignore[arg-type]
    pieces["dead_letters"] = FakeDeadLetters(batch, ValueError("that neither"))
    worker = IngestWorker(**pieces, engine_commit_lock=asyncio.Lock(), last_seen=LastSeenBuffer(), rule_timer_wake=WakeEvent())
    with pytest.raises(ValueError, match="that neither"):
        await worker.run()
    assert batch.answers == ["nack"]
