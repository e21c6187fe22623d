"""Instances of a cluster over one storage and one log: claims, planned moves, takeovers, and what stops a partition."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.workers import cluster_partitions
from app.workers.cluster_partitions import OwnedPartitionLogReader, PartitionInboundBatch
from domain.devices.absence import AbsenceTracker
from domain.ingest.partitions import TAKEOVER_MS, PartitionOwnershipService
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, RuleId
from domain.partitions.liveness import LEASE_MS, LOST_MS, OWN_LEASE_MS, STEADY_MS, SUSPECT_MS, InboundLogReachabilityMonitor
from domain.partitions.model import NOBODY, PartitionLostError, partition_of
from domain.partitions.ownership import OwnedPartitions
from domain.rules.model import Comparator, Rule, RuleAction, RuleCondition, RuleState
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support.manual_clock import ManualClock
from support.memory_inbound_log import MemoryInboundLog
from support.memory_storage import MemoryUnitOfWork
from support.waiting import TIMEOUT_S, eventually

COUNT = 8


def read_json_blocks(blocks: Sequence[bytes]) -> Any:
    return PythonTelemetryBatch.of([(1, 0, json.dumps(json.loads(block)).encode()) for block in blocks])


class Instance:
    def __init__(self, name: str, world: World, count: int = COUNT) -> None:
        self.ownership = OwnedPartitions(name, count)
        self.engine = ReferenceTelemetryEngine()
        self.log_reach = InboundLogReachabilityMonitor(world.clock)
        self.reaches_log = True
        self.restored = 0
        self.owned_at_flush = self.takeovers = 0
        self.service = PartitionOwnershipService(
            uow=world.uow,
            membership_uow=world.uow,
            clock=world.clock,
            engine=self.engine,
            engine_commit_lock=asyncio.Lock(),
            absence=AbsenceTracker(uow=world.uow, clock=world.clock),
            log=world.log,
            ownership=self.ownership,
            calls=world,
            log_reach=self.log_reach,
            on_restored=self.on_restored,
            on_takeover=self.on_takeover,
            before_release=self.before_release,
        )
        self.inbound = OwnedPartitionLogReader(
            log=world.log, ownership=self.ownership, read_blocks=read_json_blocks, drop=self.service.drop
        )

    def on_restored(self) -> None:
        self.restored += 1

    def on_takeover(self) -> None:
        self.takeovers += 1

    async def before_release(self) -> None:
        self.owned_at_flush = len(self.ownership)

    async def step(self) -> None:
        if self.reaches_log:
            self.log_reach.on_answer()
        await self.service.beat()
        await self.service.run_round()


class World:
    def __init__(self) -> None:
        self.uow, self.clock, self.log = MemoryUnitOfWork(), ManualClock(), MemoryInboundLog(COUNT)
        self.without_connection: set[str] = set()

    async def find_gone(self, instances: Collection[str]) -> frozenset[str]:
        return frozenset(instances) & self.without_connection

    async def steps(self, *instances: Instance, times: int = 6) -> None:
        for _ in range(times):
            self.clock.forward(seconds=0.5)
            for instance in instances:
                await instance.step()

    async def owners(self) -> list[str]:
        async with self.uow.read() as tx:
            return [row.owner for row in await tx.partitions.list_all()]

    async def store(self, batch: PartitionInboundBatch) -> None:
        async with self.uow.write() as tx:
            for progress in batch.progress:
                await tx.partitions.advance(progress)
        batch.ack()


@pytest.fixture
async def world() -> World:
    return World()


async def joined(world: World, *names: str) -> list[Instance]:
    instances = [Instance(name, world) for name in names]
    for instance in instances:
        await instance.service.prepare()
    await world.steps(*instances)
    return instances


@asynccontextmanager
async def reading(instance: Instance) -> AsyncIterator[Callable[[], Any]]:
    """Yields a call that receives the next batch."""
    instance.inbound.follow_ownership()
    try:
        yield lambda: asyncio.wait_for(instance.inbound.receive(1), 5)
    finally:
        await instance.inbound.stop()


async def test_a_single_instance_owns_everything_and_shares_it_with_one_that_joins(world: World) -> None:
    [a] = await joined(world, "a")
    assert await world.owners() == ["a"] * COUNT
    assert (len(a.ownership), a.restored) == (COUNT, COUNT)
    b = Instance("b", world)
    await world.steps(a, b)
    owners = await world.owners()
    assert (owners.count("a"), owners.count("b")) == (COUNT // 2, COUNT // 2)
    assert {*a.ownership.partitions} | {*b.ownership.partitions} == set(range(COUNT))


async def test_an_instance_that_leaves_gives_its_partitions_up_at_once(world: World) -> None:
    a, b = await joined(world, "a", "b")
    await b.service.leave()
    assert (await world.owners()).count(NOBODY) == COUNT // 2
    await a.step()
    assert await world.owners() == ["a"] * COUNT


async def test_an_instance_that_is_silent_is_replaced_and_cannot_store_afterwards(world: World) -> None:
    a, b = await joined(world, "a", "b")
    partition = b.ownership.partitions[0]
    await world.log.append(partition, b'{"n": 1}', "1")
    async with reading(b) as receive:
        batch = await receive()
        await world.steps(a, times=LEASE_MS // 500 + 1)
        assert await world.owners() == ["a"] * COUNT
        assert world.clock.monotonic_ms() - b.service.last_beat_ms >= OWN_LEASE_MS
        with pytest.raises(PartitionLostError):
            await world.store(batch)
    await b.step()
    assert partition not in b.ownership
    async with reading(a) as receive:
        again = await receive()
        assert [(each.before, each.after) for each in again.progress] == [(0, 1)]
        await world.store(again)


async def test_an_instance_whose_process_is_gone_is_replaced_before_its_lease_ends(world: World) -> None:
    a, _ = await joined(world, "a", "b")
    await a.step()
    world.clock.forward(seconds=(SUSPECT_MS - 1) / 1000)
    await a.step()
    world.without_connection.add("b")
    assert a.service.live == {"a", "b"}
    world.clock.forward(seconds=0.001)
    await a.step()
    assert a.service.live == {"a"}
    assert await world.owners() == ["a"] * COUNT
    assert a.takeovers == 1


async def test_what_a_dead_instance_has_locked_is_freed_before_its_partitions_are_claimed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_answer(_: object) -> dict[int, str]:
        return {}

    a, _ = await joined(world, "a", "b")
    await a.step()
    assert a.service.ended_sessions == 0
    world.clock.forward(seconds=SUSPECT_MS / 1000)
    world.without_connection.add("b")
    monkeypatch.setattr(world.log, "log_ids", no_answer)
    await a.step()
    assert a.service.ended_sessions == 1
    assert (await world.owners()).count("b") == COUNT // 2
    monkeypatch.undo()
    await a.step()
    assert await world.owners() == ["a"] * COUNT


async def test_an_instance_that_does_not_reach_the_log_is_replaced_while_another_one_does(world: World) -> None:
    a, b = await joined(world, "a", "b")
    await world.steps(a, b, times=STEADY_MS // 500)
    b.reaches_log = False
    await world.steps(a, b, times=LOST_MS // 500 - 1)
    assert (await world.owners()).count("b") == COUNT // 2
    await world.steps(b, a, times=2)
    assert await world.owners() == ["a"] * COUNT
    await b.step()
    assert (len(b.ownership), b.service.is_replaced, a.service.is_replaced) == (0, True, False)
    assert a.service.ended_sessions == 0  # it beats: what it has locked it frees itself
    b.reaches_log = True
    await world.steps(a, b)
    assert (len(b.ownership), b.service.is_replaced) == (COUNT // 2, False)


async def test_while_no_instance_reaches_the_log_and_a_moment_after_nothing_moves(world: World) -> None:
    a, b = await joined(world, "a", "b")
    await world.steps(a, b, times=STEADY_MS // 500)
    owners = await world.owners()
    for each in (a, b):
        each.reaches_log = False
    await world.steps(a, b, times=2 * LOST_MS // 500)
    a.reaches_log = True
    await world.steps(a, b, times=STEADY_MS // 500 - 1)
    assert await world.owners() == owners
    assert not b.service.is_replaced
    await world.steps(a, b, times=3)
    assert await world.owners() == ["a"] * COUNT


async def test_an_instance_that_is_not_a_member_ends_no_sessions(world: World) -> None:
    a, b = await joined(world, "a", "b")
    await world.steps(b, times=LEASE_MS // 500 + 1)
    a.service.live = frozenset()
    await a.service.run_round()
    assert a.service.ended_sessions == 0


async def test_an_instance_beats_again_when_a_silent_one_has_to_be_judged(world: World) -> None:
    a, _ = await joined(world, "a", "b")
    await a.step()
    assert a.service.next_judgement_s() == SUSPECT_MS / 1000
    world.clock.forward(seconds=SUSPECT_MS / 1000)
    await a.step()
    assert a.service.next_judgement_s() == SUSPECT_MS / 1000  # its own beat was new just now
    for silent_ms in (1_000, LEASE_MS - SUSPECT_MS - 1_100):
        world.clock.forward(seconds=silent_ms / 1000)
        await a.step()
    assert a.service.next_judgement_s() == 0.1


async def test_readings_are_announced_before_another_instance_may_store_the_next(world: World) -> None:
    a, b = await joined(world, "a", "b")
    assert a.owned_at_flush == COUNT // 2  # of the last partition that a gave to b, before it was free
    await b.service.leave()
    assert b.owned_at_flush == COUNT // 2
    await a.step()
    assert (a.takeovers, b.takeovers) == (0, 0)


async def test_a_batch_that_is_not_stored_drops_its_partitions_which_are_claimed_and_read_again(world: World) -> None:
    [a] = await joined(world, "a")
    await world.log.append(3, b'{"n": 1}', "1")
    async with reading(a) as receive:
        (await receive()).nack()
        assert 3 not in a.ownership
        await a.step()
        assert a.ownership.epoch(3) == 2
        a.inbound.follow_ownership()
        await world.store(await receive())
        assert a.ownership.position(3) == 1


async def test_entries_of_several_partitions_are_stored_together_and_continue_where_they_were(world: World) -> None:
    [a] = await joined(world, "a")
    async with reading(a) as receive:
        for number in range(1, 4):
            for partition in (1, 5):
                await world.log.append(partition, b'{"n": %d}' % number, f"{partition}-{number}")
            stored = {1: 0, 5: 0}
            while stored != {1: number, 5: number}:
                batch = await receive()
                await world.store(batch)
                stored = {partition: a.ownership.position(partition) for partition in stored}


async def test_an_instance_owns_the_rules_of_its_own_devices_only(world: World) -> None:
    a, b = await joined(world, "a", "b")
    for device_no in range(1, 50):
        owner = a if partition_of(device_no, COUNT) in a.ownership else b
        assert [each.service.owns_device(device_no) for each in (a, b)] == [owner is a, owner is b]


async def test_a_cluster_keeps_its_number_of_partitions(world: World) -> None:
    await joined(world, "a")
    with pytest.raises(ValidationFailed) as refused:
        await Instance("b", world, COUNT * 2).service.prepare()
    assert "Set it to 8" in refused.value.details[0].message


async def test_a_partition_of_a_log_that_was_made_again_is_not_claimed(world: World) -> None:
    [a] = await joined(world, "a")
    await a.service.leave()
    world.log = MemoryInboundLog(COUNT)
    b = Instance("b", world)
    await world.steps(b)
    assert (len(b.ownership), len(b.service.foreign_logs)) == (0, COUNT)
    assert "docs/how-to/cluster.md" in b.service.foreign_logs[0]


async def test_a_partition_whose_entries_are_missing_stands_still_and_says_so(world: World) -> None:
    [a] = await joined(world, "a")
    for number in range(3):
        await world.log.append(2, b'{"n": 1}', str(number))
    await world.log.trim(2, 2)
    await world.log.append(4, b"no block", "x")
    async with reading(a):
        receiving = asyncio.create_task(a.inbound.receive(1))
        async with asyncio.timeout(TIMEOUT_S):
            while set(a.inbound.damaged) != {2, 4}:
                await asyncio.sleep(0.01)
        receiving.cancel()
        await asyncio.wait([receiving])
    assert 2 in a.ownership  # nobody else would fare better


async def test_stored_entries_are_deleted_after_a_while(world: World) -> None:
    [a] = await joined(world, "a")
    await world.log.append(1, b'{"n": 1}', "1")
    async with reading(a) as receive:
        await world.store(await receive())
        await a.service.trim_logs()
        assert len(await world.log.read(1, 0, 9, 0)) == 1
        await a.service.trim_logs()
    assert world.log.first(1) == 2


async def test_after_a_time_without_the_database_nobody_is_taken_for_dead(world: World) -> None:
    a, b = await joined(world, "a", "b")
    epochs = [a.ownership.epoch(each) for each in a.ownership.partitions]
    world.clock.forward(seconds=20)
    await world.steps(a, times=LEASE_MS // 500 - 1)  # b reaches the database a little later
    await world.steps(a, b)
    assert [a.ownership.epoch(each) for each in a.ownership.partitions] == epochs
    assert (await world.owners()).count("b") == COUNT // 2
    await world.steps(a, times=LEASE_MS // 500 + 1)
    assert await world.owners() == ["a"] * COUNT


async def test_a_batch_goes_on_without_the_partitions_that_were_given_up_since_it_was_read(world: World) -> None:
    """The engine has no state of them: they would be evaluated without rules, and the database would take the result."""
    [a] = await joined(world, "a")
    for partition in (1, 5):
        await world.log.append(partition, b'{"n": 1}', str(partition))
    async with reading(a) as receive:
        batch = await receive()
        while len(batch.progress) < 2:
            batch = PartitionInboundBatch(
                a.inbound,
                {**batch.entries, **(other := await receive()).entries},
                other.telemetry,
                [*batch.progress, *other.progress],
            )
        assert batch.still_owned() is batch
        a.service.drop([5])
        await a.step()
        assert (5 in a.ownership, a.ownership.epoch(5)) == (True, 2)
        rest = batch.still_owned()
        assert [each.partition for each in rest.progress] == [1]
        assert len(rest.telemetry) == 1
        batch.nack()
        assert (1 in a.ownership, 5 in a.ownership) == (False, True)  # 5 is held anew, with the state of the database


async def test_rows_that_were_read_before_a_claim_do_not_take_it_away(world: World) -> None:
    [a] = await joined(world, "a")
    read_before = a.service._rows
    a.service.drop([3])
    await a.step()
    assert a.ownership.epoch(3) == 2
    a.service._rows = read_before
    await a.service.run_round()
    assert (3 in a.ownership, a.service.lost) == (True, 1)


async def test_timers_wait_until_the_log_is_read_to_its_end_and_run_with_its_messages_until_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_partitions, "END_WAIT_S", 0.01)
    [a] = await joined(world, "a")
    device_no, now_ms = 1, world.clock.now_ms()
    partition = partition_of(device_no, COUNT)
    await world.log.append(partition, b'{"n": 1}', "1")
    assert a.inbound.evaluated_until_ms(now_ms) == 0
    async with reading(a) as receive:
        batch = await receive()
        assert a.inbound.evaluated_until_ms(now_ms) == 0
        a.inbound.on_evaluated(batch.progress, [(device_no, now_ms - 1_000)])
        assert a.inbound.evaluated_until_ms(now_ms) in (0, now_ms - 1_000)  # 0: not all other logs have ended
        await eventually(lambda: a.inbound.evaluated_until_ms(now_ms) == now_ms - 1_000)
        await world.store(batch)
        await eventually(lambda: a.inbound.evaluated_until_ms(now_ms) == now_ms)
        await world.log.append(partition, b'{"n": 2}', "2")
        await receive()
        assert a.inbound.evaluated_until_ms(now_ms) == now_ms - 1_000


async def test_a_takeover_stops_the_timers_of_those_devices_only_that_nobody_heard(world: World) -> None:
    a, b = await joined(world, "a", "b")
    heard, came_back, gone = [each for each in range(1, 50) if partition_of(each, COUNT) in b.ownership][:3]
    held = RuleState(held_since_ms=world.clock.now_ms())
    async with world.uow.write() as tx:
        for device_no in (heard, came_back, gone):
            condition = RuleCondition("hot", Comparator.EQUAL, 1)
            ids = RuleId(f"rul_{device_no}"), 0, AccountId("acc"), DeviceId(f"dev_{device_no}"), device_no, "held"
            await tx.rules.add(Rule(*ids, (condition,), RuleAction("OFF"), for_seconds=60, state=held))
        await tx.device_sessions.attach({heard: 0}, "a")
        await tx.device_sessions.attach({gone: 0}, "b")
    await world.steps(a, b, times=2 * TAKEOVER_MS // 500)
    async with world.uow.write() as tx:
        await tx.device_sessions.attach({came_back: world.clock.now_ms()}, "a")
    await world.steps(a, times=LEASE_MS // 500 + 1)
    assert await world.owners() == ["a"] * COUNT
    judged = a.engine.tick(world.clock.now_ms() + 600_000).rule_transitions
    assert {each.device_no for each in judged} == {heard, came_back}
    async with world.uow.read() as tx:
        stored = {rule.device_no: rule.state.held_since_ms for rule in await tx.rules.list_enabled()}
    assert held.held_since_ms is not None
    assert (stored[heard], stored[gone]) == (held.held_since_ms, held.held_since_ms)
    assert held.held_since_ms < (stored[came_back] or 0)
