"""Commands in virtual time: the real dispatch, presence and recovery, while senders are killed or hang at the wire and the database
goes back to an older copy.

A command is sent before it is recorded as sent. Who may have sent it is known beforehand: the instance that holds the device's
connection, in the table of connections; a single instance, for every device that was online. The checks are the promises: what ran
is never told as EXPIRED, stock firmware toggles at most once, everything ends, and no cursor goes on across a gap.

Everything is decided by the seed. A fault is taken where it can do harm: inside the call that sends. `make simulate` runs it too.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.workers.command_dispatch import CommandDispatchWorker
from app.workers.due import WakeEvent
from domain.commands.dispatch import CommandCrashRecovery, CommandDispatchService
from domain.commands.dispatch_queue import DispatchEntry, DispatchQueue
from domain.commands.model import Execution, ExecutionStatus, TriggeredBy
from domain.commands.reports import ExecutionChangeCollector, ReportService
from domain.devices.absence import AbsenceTracker
from domain.devices.link import PublishResult
from domain.devices.messages import OutboundCommand, OutboundMessage
from domain.devices.model import Device, FirmwareProfile
from domain.devices.presence import LOST, PresenceBatch, PresenceService
from domain.events.cursors import EventLogCursor, FeedCursor
from domain.events.dispatcher import EventDispatcher
from domain.events.model import Event
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.life import DatabaseLife, LifeCause, StoredLife
from domain.schedules.recovery import LifeRecovery
from support.device_world import ACCOUNT, DeviceWorld
from support.memory_storage.tables import Tables
from support.memory_storage.unit_of_work import MemoryTransaction, MemoryUnitOfWork
from support.simulated_front import Violation

DEVICES = 4
STEPS = 120
LEASE_MS = 2_000
"""Of an instance: after so long without a word its devices are given up, and it drops them itself when it goes on."""
QUIET_STEPS = 40
"""After the faults: longer than the longest deadline, the grace of a device and a lease."""
MAX_COPIES = 8


class _KilledError(BaseException):
    """The process ends at the wire."""


class _NoFeed:
    def publish(self, event: Event) -> None: ...

    def set_store_time(self, store_time_s: int) -> None: ...


@dataclass(slots=True)
class SimulatedDevice:
    device: Device
    node: Node | None = None
    ran: Counter[ExecutionId] = field(default_factory=Counter)
    unreported: list[ExecutionId] = field(default_factory=list)
    """What it ran and has not reported yet."""

    @property
    def is_native(self) -> bool:
        return self.device.profile is FirmwareProfile.NATIVE

    def receive(self, message: OutboundMessage, now_ms: int) -> None:
        """Our firmware knows the ids that it ran, and when a command is too old."""
        execution_id, expires_ms = ExecutionId(message.topic), int(message.payload)
        if self.is_native and (execution_id in self.ran or now_ms > expires_ms):
            return
        self.ran[execution_id] += 1
        self.unreported.append(execution_id)


class _Codec:
    def encode_command(
        self, profile: FirmwareProfile, device_id: str, command: OutboundCommand, now_ms: int
    ) -> Sequence[OutboundMessage]:
        return [OutboundMessage(command.execution_id, str(command.expires_ms).encode())]


class SimulatedDatabase:
    """The server of all instances. `copies`: older states that a standby or a backup may have."""

    def __init__(self, shared: MemoryUnitOfWork, ids: Any) -> None:
        self.shared = shared
        self.copies: list[Tables] = []
        self.turns = 0
        """How often it has gone back."""
        self._lives = 0
        shared._event_dispatcher = EventDispatcher(ids=ids, observers=(), feed=_NoFeed())

    def keep_copy(self) -> None:
        self.copies = [*self.copies[-MAX_COPIES + 1 :], self.shared._tables]

    def go_back(self, copy: Tables) -> None:
        self.shared._tables = copy
        self.copies = [each for each in self.copies if each is copy]
        self.turns += 1

    def new_life(self) -> str:
        self._lives += 1
        return f"life-{self._lives}"

    async def renew(self, began_ms: int, cause: LifeCause) -> None:
        async with self.shared.write() as tx:
            before = await tx.life.get()
            await tx.life.renew(before.life, StoredLife(self.new_life(), began_ms, cause))


class _NodeUnitOfWork:
    """An instance's way to the database. A new connection compares, as `postgres/continuity.py` does."""

    def __init__(self, database: SimulatedDatabase, life: DatabaseLife, now_ms: Any) -> None:
        self._database, self._life, self._now_ms = database, life, now_ms
        self._turns = database.turns

    async def _compare(self) -> None:
        if self._turns == self._database.turns:
            return
        self._turns = self._database.turns
        async with self._database.shared.read() as tx:
            stored = await tx.life.get()
        if self._life.is_unannounced(stored, went_back=True):
            await self._database.renew(self._now_ms(), LifeCause.FAILOVER)
            async with self._database.shared.read() as tx:
                stored = await tx.life.get()
        self._life.adopt(stored)

    @asynccontextmanager
    async def write(self, caller: Any = None, *needs: Any, **options: Any) -> AsyncIterator[MemoryTransaction]:
        await self._compare()
        async with self._database.shared.write(caller, *needs, **options) as tx:
            yield tx

    @asynccontextmanager
    async def read(self, *, one_statement: bool = False) -> AsyncIterator[MemoryTransaction]:
        await self._compare()
        async with self._database.shared.read(one_statement=one_statement) as tx:
            yield tx


class Node:
    """A process of the service, and the broker in it."""

    def __init__(self, simulation: CommandSimulation, name: str) -> None:
        self.simulation, self.name = simulation, name
        clock, database = simulation.world.clock, simulation.database
        self.life = DatabaseLife()
        self.uow: Any = _NodeUnitOfWork(database, self.life, clock.now_ms)
        self.recovery = LifeRecovery(uow=self.uow, clock=clock, life=self.life)
        front = name if simulation.is_cluster else None
        link: Any = self
        wake = WakeEvent()
        self.presence = PresenceService(uow=self.uow, clock=clock, link=link, wake=wake.set, grace_ms=1_000, front=front)
        self.queue = DispatchQueue(wake=wake.set)
        waiter: Any = simulation.world.outcomes
        self.reports = ReportService(execution_waiter=waiter)
        self.dispatch = CommandDispatchService(
            uow=self.uow,
            clock=clock,
            link=link,
            codec=_Codec(),
            execution_waiter=waiter,
            dispatch_queue=self.queue,
            absence=AbsenceTracker(uow=self.uow, clock=clock),
            wake=wake.set,
            life=self.life,
            front=front,
        )
        recovery = None if simulation.is_cluster else CommandCrashRecovery(uow=self.uow, clock=clock)
        self.worker = CommandDispatchWorker(wake_event=wake, dispatch=self.dispatch, recovery=recovery)
        self.loaded = ""
        self.life.on_change(lambda: setattr(self.life, "is_stale", True))
        self.alive, self.seen_ms = True, clock.now_ms()
        self.hung: asyncio.Task[float] | None = None
        self.hangs, self.goes_on = asyncio.Event(), asyncio.Event()
        self.subscribed: dict[str, int] = {}
        self.unannounced: list[SimulatedDevice] = []

    async def start(self) -> None:
        await self.recovery.load()
        await self.recovery.recover()
        self.loaded = self.life.current
        await self.presence.recover()

    async def follow_life(self) -> None:
        """As `DatabaseLifeWorker`."""
        await self.recovery.recover()
        if self.life.current != self.loaded:
            self.loaded = self.life.current
            await self.presence.begin_life()
            self.life.is_stale = False
            self.dispatch.begin_life()

    def is_connected(self, device_id: str) -> bool:
        return self.simulation.devices[DeviceId(device_id)].node is self

    def last_subscribed_ms(self, device_id: str) -> int:
        return self.subscribed.get(device_id, 0)

    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        device, simulation = self.simulation.devices[DeviceId(device_id)], self.simulation
        if device.node is not self:
            return PublishResult.NOT_SENT
        fate = simulation.random.random() if simulation.has_faults else 1.0
        if fate < 0.04:
            raise _KilledError
        device.receive(message, simulation.now_ms)
        if fate < 0.12:
            raise _KilledError
        if fate < 0.2:
            self.goes_on.clear()
            self.hangs.set()
            await self.goes_on.wait()
        return PublishResult.SENT


class CommandSimulation:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_cluster = self.random.random() < 0.6
        self.world = DeviceWorld()
        self.database = SimulatedDatabase(self.world.uow, self.world.ids)
        self.nodes: list[Node] = []
        self.devices: dict[DeviceId, SimulatedDevice] = {}
        self.ends: dict[ExecutionId, set[str]] = {}
        """Execution → what the service has told of its end, in all lives."""
        self.toggles: set[ExecutionId] = set()
        self.has_faults = True
        self.kills = self.hangs = self.restores = self.failovers = 0
        self.client = FeedClient(self)

    @property
    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    @property
    def awake(self) -> list[Node]:
        return [node for node in self.nodes if node.alive and node.hung is None]

    async def run(self) -> None:
        """Raises Violation."""
        await self.world.populate()
        for number in range(DEVICES):
            profile = FirmwareProfile.TASMOTA if number % 2 else FirmwareProfile.NATIVE
            device = await self.world.device(profile=profile)
            self.devices[device.device_id] = SimulatedDevice(device)
        for _ in range(self.random.randint(2, 3) if self.is_cluster else 1):
            await self._start_node()
        for _ in range(STEPS):
            await self._step()
        self.has_faults = False
        for node in self.nodes:
            await self._resume(node)
        if not self.awake:
            await self._start_node()
        for _ in range(QUIET_STEPS):
            self.world.clock.forward(1_000)
            await self._connect_all()
            await self._work()
        await self._check()

    async def _step(self) -> None:
        self.world.clock.forward(self.random.randint(1, 700))
        if self.random.random() < 0.2:
            self.database.keep_copy()
        await self._connect_some()
        if self.awake and self.random.random() < 0.6:
            await self._submit(self.random.choice(self.awake))
        await self._inject_fault()
        await self._work()

    async def _work(self) -> None:
        for node in self.awake:
            await self._run(node)
            if node in self.awake:
                await self._report(node)
        if self.awake:
            await self.client.poll(self.random.choice(self.awake))
        self._note_ends()

    async def _run(self, node: Node) -> None:
        """A round of what the process does besides answering people; it may end or hang at the wire."""
        now_ms = node.seen_ms = self.now_ms
        await node.follow_life()
        await self._announce(node)
        if self.is_cluster:
            live = {each.name for each in self.nodes if each.alive and now_ms - each.seen_ms < LEASE_MS}
            await node.presence.start_grace_of_lost_instances(live)
        await node.presence.expire_due()
        if self.random.random() < 0.3:
            node.dispatch.rescan_and_reset()
        node.hangs.clear()
        task = asyncio.ensure_future(node.worker.run_once())
        hangs = asyncio.ensure_future(node.hangs.wait())
        await asyncio.wait({task, hangs}, return_when=asyncio.FIRST_COMPLETED)
        hangs.cancel()
        if not task.done():
            node.hung = task
            self.hangs += 1
        elif isinstance(task.exception(), _KilledError):
            await self._kill(node)
        else:
            task.result()
            await node.follow_life()

    async def _submit(self, node: Node) -> None:
        one = self.random.choice(list(self.devices.values()))
        cmd = self.random.choice(("ON", "OFF", "TOGGLE"))
        execution = Execution(
            execution_id=ExecutionId(f"exe_{self.random.getrandbits(80):020x}"),
            seq=0,
            account_id=ACCOUNT,
            device_id=one.device.device_id,
            device_no=one.device.device_no,
            cmd=cmd,
            params=None,
            status=ExecutionStatus.QUEUED,
            source=TriggeredBy.USER,
            requested_by="user:usr_1",
            grant_id=None,
            created_ms=self.now_ms,
            expires_ms=self.now_ms + self.random.randint(300, 6_000),
        )
        if cmd == "TOGGLE":
            self.toggles.add(execution.execution_id)
        async with node.uow.write() as tx:
            await tx.executions.add_many([execution])
        async with node.uow.read() as tx:
            stored = await tx.executions.find(execution.execution_id)
        if stored is not None:
            node.queue.put([DispatchEntry(one.device, stored)])

    async def _report(self, node: Node) -> None:
        """Some devices answer, some never do: then the deadline decides."""
        for one in self.devices.values():
            while one.unreported and one.node is node:
                execution_id = one.unreported.pop(0)
                if self.random.random() < 0.5:
                    continue
                async with node.uow.write() as tx:
                    _, executions = await tx.command_contexts.list_reported((), [execution_id])
                    changes = ExecutionChangeCollector(tx, executions, self.now_ms)
                    await node.reports.on_result_report(changes, one.device, execution_id, "done", None, None, None, self.now_ms)
                    await node.reports.write_changes(changes)

    async def _connect_some(self) -> None:
        for one in self.devices.values():
            if self.awake and self.random.random() < (0.3 if one.node is None else 0.03):
                await self._connect(one, self.random.choice(self.awake))

    async def _connect_all(self) -> None:
        for one in self.devices.values():
            if one.node is None:
                await self._connect(one, self.random.choice(self.awake))

    async def _connect(self, one: SimulatedDevice, node: Node) -> None:
        """A device that connects to another instance is taken over there: the earlier connection ends."""
        await self._disconnect(one)
        one.node = node
        node.subscribed[one.device.device_id] = self.now_ms
        node.unannounced.append(one)

    async def _disconnect(self, one: SimulatedDevice) -> None:
        node, one.node = one.node, None
        if node in self.awake and node is not None:
            async with node.uow.write() as tx:
                batch = PresenceBatch()
                node.presence.on_disconnected(batch, await self._stored(tx, one), LOST, self.now_ms)
                await batch.write(tx)

    async def _announce(self, node: Node) -> None:
        """What devices have done at the broker is ingested a moment later, as `DeviceMessageApplier` does."""
        pending, node.unannounced = node.unannounced, []
        for one in pending:
            if one.node is not node:
                continue
            at_ms = node.subscribed[one.device.device_id]
            async with node.uow.write() as tx:
                batch = PresenceBatch()
                node.presence.on_connected(batch, await self._stored(tx, one), at_ms)
                if self.is_cluster and await tx.device_sessions.attach({one.device.device_no: at_ms}, node.name):
                    await tx.executions.mark_possibly_sent(self.now_ms, {one.device.device_id})
                await batch.write(tx)
            node.dispatch.on_device_ready(one.device.device_no, at_ms)

    async def _stored(self, tx: MemoryTransaction, one: SimulatedDevice) -> Device:
        found = await tx.devices.find(one.device.device_id)
        assert found is not None
        return found

    async def _inject_fault(self) -> None:
        node = self.random.choice(self.nodes) if self.nodes else None
        match self.random.randrange(16):
            case 0 if node is not None and node.alive:
                await self._kill(node)
            case 1 | 2 | 3 if node is not None:
                await self._resume(node)
            case 4 if self.database.copies:
                await self._go_back()
            case 5 | 6:
                await self._disconnect(self.random.choice(list(self.devices.values())))
            case _:
                pass
        if len([each for each in self.nodes if each.alive]) < (2 if self.is_cluster else 1):
            await self._start_node()

    async def _start_node(self) -> None:
        for each in self.awake:
            await each.follow_life()
        node = Node(self, f"instance-{len(self.nodes)}")
        self.nodes.append(node)
        await node.start()

    async def _kill(self, node: Node) -> None:
        self.kills += 1
        node.alive = False
        if node.hung is not None:
            node.hung.cancel()
            await asyncio.wait({node.hung})
            node.hung = None
        for one in self.devices.values():
            if one.node is node:
                one.node = None

    async def _resume(self, node: Node) -> None:
        """A process that was stopped goes on. Where its lease is over, it has no device any more."""
        task, node.hung = node.hung, None
        if task is None or not node.alive:
            return
        if self.now_ms - node.seen_ms >= LEASE_MS:
            for one in self.devices.values():
                if one.node is node and self.is_cluster:
                    one.node = None
        node.hangs.clear()
        node.goes_on.set()
        hangs = asyncio.ensure_future(node.hangs.wait())
        await asyncio.wait({task, hangs}, return_when=asyncio.FIRST_COMPLETED)
        hangs.cancel()
        if not task.done():
            node.hung = task
        elif isinstance(task.exception(), _KilledError):
            await self._kill(node)
        else:
            task.result()

    async def _go_back(self) -> None:
        """A standby takes over that did not have the last commits; or everything is stopped and a backup is put in place."""
        self._note_ends()
        copy = self.random.choice(self.database.copies)
        if self.is_cluster and self.awake and self.random.random() < 0.7:
            self.failovers += 1
            self.database.go_back(copy)
            return
        self.restores += 1
        for node in self.nodes:
            if node.alive:
                await self._kill(node)
        self.database.go_back(copy)
        await self.database.renew(0, LifeCause.RESTORE)

    def _note_ends(self) -> None:
        for event in self.world.uow.emitted_events:
            if event.kind == "command_result" and event.source == "service":
                self.ends.setdefault(ExecutionId(event.data["executionId"]), set()).add(event.data["status"])
        self.world.uow.emitted_events.clear()

    async def _check(self) -> None:
        self._note_ends()
        ran = sum((one.ran for one in self.devices.values()), Counter[ExecutionId]())
        for execution_id, ends in self.ends.items():
            if ran[execution_id] and "EXPIRED" in ends:
                raise Violation(f"{execution_id} ran and was told as {sorted(ends)}")
        for one in self.devices.values():
            for execution_id, count in one.ran.items():
                if count > 1 and execution_id in self.toggles:
                    raise Violation(f"{execution_id}, a TOGGLE, ran {count} times")
        async with self.world.uow.read() as tx:
            if open_ := list(await tx.executions.list_expired(self.now_ms, 100)):
                raise Violation(f"{len(open_)} executions have no end: {open_[0]}")
        await self.client.check()


class FeedClient:
    """Reads the log page by page with its cursor, at any instance, and begins anew where it is told `resync`."""

    def __init__(self, simulation: CommandSimulation) -> None:
        self._simulation = simulation
        self._cursor: str | None = None
        self._begun = EventLogCursor()
        self.heard: list[str] = []
        self.resyncs = 0

    async def poll(self, node: Node) -> None:
        cursor = None if self._cursor is None else FeedCursor.decode(self._cursor)
        log = self._begun if cursor is None else cursor.log
        async with node.uow.read() as tx:
            end, events = (
                await tx.events.end(),
                await tx.events.list_public_after(ACCOUNT, log, self._simulation.random.randint(1, 9)),
            )
        if cursor is None or cursor.life != node.life.current:
            self.resyncs += cursor is not None
            self._begun, self.heard, log, events = end, [], end, []
        self.heard += [event.event_id for event in events]
        self._cursor = FeedCursor(log.after(events), None, node.life.current).encode()

    async def check(self) -> None:
        for _ in range(200):
            await self.poll(self._simulation.awake[0])
        async with self._simulation.database.shared.read() as tx:
            stored = await tx.events.list_public_after(ACCOUNT, self._begun, 10_000)
        if self.heard != [event.event_id for event in stored]:
            raise Violation(f"a client heard {len(self.heard)} events without a word of a gap; the log has {len(stored)}")


async def run_seeds(seeds: Sequence[int]) -> Counter[str]:
    """Raises Violation. Returns how often what happened."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        simulation = CommandSimulation(seed)
        try:
            await simulation.run()
        except Violation as error:
            raise Violation(f"seed {seed}: {error}") from None
        ends = Counter(status for ends in simulation.ends.values() for status in ends)
        happened += Counter(
            kills=simulation.kills,
            hangs=simulation.hangs,
            restores=simulation.restores,
            failovers=simulation.failovers,
            resyncs=simulation.client.resyncs,
            ran=sum(one.ran.total() for one in simulation.devices.values()),
            **{status.lower(): count for status, count in ends.items()},
        )
    return happened


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    try:
        happened = asyncio.run(run_seeds(range(seeds)))
    except Violation as error:
        sys.exit(str(error))
    print(f"{seeds} seeds, {json.dumps(happened)}: no violation")


if __name__ == "__main__":
    main()
