"""The messages of a cluster's devices that wait for the database: bounded, in order, and rejected with the lease."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.workers.cluster_ingest import ClusterDeviceEventWorker, NonTelemetryEventQueue
from domain.devices.link import InboundDeviceConnected, InboundMessage
from domain.ingest.device_messages import DecodedBatch, FollowUps
from domain.kernel.errors import Unavailable
from domain.partitions.model import LeaseLostError
from support.waiting import TIMEOUT_S


@dataclass
class Batch:
    events: list[Any]
    telemetry: tuple[()] = ()
    answers: list[str] = field(default_factory=list)

    def ack(self) -> None:
        self.answers.append("ack")

    def nack(self) -> None:
        self.answers.append("nack")


def message(at_ms: int, device_id: str = "dev_1") -> InboundMessage:
    return InboundMessage(1, device_id, "state", b"ON", 1, False, at_ms)


async def test_the_queue_is_bounded_and_keeps_the_order() -> None:
    queue = NonTelemetryEventQueue(limit=2)
    batches: list[Any] = [Batch([message(1)]), Batch([message(2)]), Batch([message(3)])]
    await queue.put(batches[0])
    await queue.put(batches[1])
    third = asyncio.create_task(queue.put(batches[2]))
    await asyncio.sleep(0)
    assert (third.done(), queue.pending) == (False, 2)
    assert (await queue.receive(9)).events == [message(1)]
    await third
    assert [(await queue.receive(9)).events for _ in range(2)] == [[message(2)], [message(3)]]


async def test_messages_of_a_device_that_has_moved_are_not_stored_after_what_it_sends_elsewhere() -> None:
    queue, connected = NonTelemetryEventQueue(), InboundDeviceConnected(1, "dev_1", "mqtt/5", "", 1)
    batch: Any = Batch([connected, message(2), message(2, "dev_2"), message(9)])
    await queue.put(batch)
    queue.drop_moved([("dev_1", 5)])
    assert (await queue.receive(9)).events == [connected, message(2, "dev_2"), message(9)]


class Pipeline:
    """Its database does not answer until it is set free."""

    def __init__(self) -> None:
        self.is_free = asyncio.Event()
        self.stored = 0

    async def decode(self, batch: Any) -> DecodedBatch:
        if not self.is_free.is_set():
            raise Unavailable("The database does not answer.")
        return DecodedBatch()

    async def store(self, batch: Any) -> FollowUps:
        self.stored += 1
        return FollowUps()

    async def follow_up(self, found: FollowUps) -> None: ...


class Lease:
    is_valid = True

    def require(self) -> None:
        if not self.is_valid:
            raise LeaseLostError("gone")


class Appender:
    async def append(self, telemetry: object) -> None: ...


def worker(queue: NonTelemetryEventQueue, pipeline: Pipeline, lease: Lease) -> ClusterDeviceEventWorker:
    unused: Any = None

    class Fields:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    parts: Any = {"last_seen": Fields(), "fault_log": Fields(), "clock_offsets": Fields(), "dead_letters": unused}
    return ClusterDeviceEventWorker(
        link=queue,
        appender=Appender(),  # type: ignore[arg-type]
        make_batch=lambda telemetry: unused,
        require_lease=lease.require,
        pipeline=pipeline,
        engine_commit_lock=asyncio.Lock(),
        ensure_interest_current=unused,
        rule_timer_wake=unused,
        **parts,
    )


@pytest.fixture
async def running() -> Any:
    queue, pipeline, lease = NonTelemetryEventQueue(), Pipeline(), Lease()
    batches: list[Any] = [Batch([message(1)]), Batch([message(2)])]
    for batch in batches:
        await queue.put(batch)
    task = asyncio.create_task(worker(queue, pipeline, lease).run())
    yield pipeline, lease, batches
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_answered(batches: list[Batch]) -> list[list[str]]:
    async with asyncio.timeout(TIMEOUT_S):
        while not all(batch.answers for batch in batches):
            await asyncio.sleep(0.01)
    return [batch.answers for batch in batches]


async def test_events_are_confirmed_when_the_database_is_back(running: Any) -> None:
    pipeline, _, batches = running
    pipeline.is_free.set()
    assert await until_answered(batches) == [["ack"], ["ack"]]


async def test_without_a_lease_what_waits_is_rejected_and_not_stored_later(running: Any) -> None:
    pipeline, lease, batches = running
    lease.is_valid = False
    assert await until_answered(batches) == [["nack"], ["nack"]]
    pipeline.is_free.set()
    assert pipeline.stored == 0
