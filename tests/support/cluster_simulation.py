"""A cluster in virtual time, without sockets: the real assignment, ownership and fencing under kills, cut networks and slow nodes.

Each instance is a few generators that yield how long they wait. The table of partitions and the logs are shared; an instance
that is cut off does not reach one of them. What an instance does between reading and writing may take seconds, so it acts on old
knowledge, as a process that was stopped does. The checks are the promises of the cluster: each entry of a log has its effect
exactly once and in order, one instance commits in an epoch, and after the faults every partition is owned and read to its end.
`simulated_front` has the promises to devices: an instance that is cut off alone confirms nothing, a revoked device is refused, and a
database that is away for all closes nothing.

`python -m support.cluster_simulation 10000` runs ten thousand seeds (`make simulate`).
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from domain.partitions.liveness import ClusterFailureDetector
from domain.partitions.model import ClusterMember, LogAdvanceAlreadyCommittedError, Partition, PartitionLostError, assign
from domain.partitions.ownership import OwnedPartitions
from support.simulated_front import DEVICES, SimulatedFleet, SimulatedFront, Violation

ROUND_MS = 500
BOUND_MS = 60_000
"""From the end of the faults until every partition is owned and read: a lease, a few rounds, and the moves, four at a time."""

Steps = Generator[int, None, None]


@dataclass(frozen=True, slots=True)
class Size:
    instances: int
    partitions: int
    faults_ms: int


@dataclass(slots=True)
class Node:
    name: str
    ownership: OwnedPartitions
    clock_offset_ms: int
    liveness: ClusterFailureDetector = field(default_factory=ClusterFailureDetector)
    engine: dict[int, int] = field(default_factory=dict)
    """Partition → how many entries its state is made of; stands for the values and rules of its devices."""
    alive: bool = True
    sees_table: bool = True
    sees_log: bool = True
    slow_until_ms: int = 0
    evaluating: bool = False
    """Holds the engine commit lock: between a change of the engine and the commit that stores it."""
    front: SimulatedFront = field(init=False)


class ClusterSimulation:
    def __init__(self, seed: int, size: Size | None = None) -> None:
        self.random = random.Random(seed)
        self.size = size or self._any_size()
        self.now_ms = 0
        self.table = [Partition(number) for number in range(self.size.partitions)]
        self.members: dict[str, int] = {}
        self.log = [0] * self.size.partitions
        """How many entries the log of each partition has confirmed."""
        self.effects = [0] * self.size.partitions
        self.committers: dict[tuple[int, int], str] = {}
        self.nodes: list[Node] = []
        self.kills = self.moves = self.rejected = 0
        self.fleet = SimulatedFleet(self)
        self._queue: list[tuple[int, int, Node | None, Steps]] = []
        self._number = 0
        self._faults = True

    def _any_size(self) -> Size:
        if self.random.random() < 0.02:
            return Size(self.random.randint(20, 50), 256, 5_000)
        return Size(self.random.randint(1, 8), self.random.choice([1, 4, 16, 32]), self.random.randint(3_000, 20_000))

    def run(self) -> None:
        """Raises Violation."""
        for _ in range(self.size.instances):
            self._start_node()
        self._spawn(None, self._devices())
        self._spawn(None, self.fleet.people())
        self._spawn(None, self._fault_injector())
        self._run_until(lambda: self.now_ms >= self.size.faults_ms)
        self._end_faults()
        if self.fleet.kept_changes == DEVICES:
            self._stop_database()
        deadline_ms = self.now_ms + BOUND_MS
        self._run_until(lambda: self.now_ms >= deadline_ms or self._is_at_rest())
        if not self._is_at_rest():
            raise Violation(f"after {BOUND_MS} ms without faults some partitions are not owned, or not read to the end")

    def _spawn(self, node: Node | None, steps: Steps) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms, self._number, node, steps))

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.now_ms, number, node, steps = heapq.heappop(self._queue)
            if node is not None and not node.alive:
                continue
            pause_ms = next(steps, None)
            if pause_ms is not None:
                heapq.heappush(self._queue, (self.now_ms + pause_ms, number, node, steps))

    def _start_node(self) -> None:
        name = f"instance-{len(self.nodes)}"
        node = Node(name, OwnedPartitions(name, self.size.partitions), self.random.randint(0, 10**6))
        self.nodes.append(node)
        node.front = SimulatedFront(self, node)
        self._spawn(node, node.front.accept())
        self._spawn(node, node.front.poll())
        self._spawn(node, self._membership(node))
        self._spawn(node, self._ingest(node))

    def delay(self, node: Node) -> int:
        """How long a step of the node takes: usually milliseconds, seconds on a slow or stopped node."""
        return self.random.randint(0, 4) + max(0, node.slow_until_ms - self.now_ms)

    def _membership(self, node: Node) -> Steps:
        yield self.random.randint(0, ROUND_MS)
        while True:
            if node.sees_table:
                self.members[node.name] = self.members.get(node.name, 0) + 1
                node.front.on_beat()
                rows, members = list(self.table), [ClusterMember(*each) for each in self.members.items()]
                yield self.delay(node)
                yield from self._round(node, rows, members)
            yield ROUND_MS + self.delay(node)

    def _round(self, node: Node, rows: list[Partition], members: list[ClusterMember]) -> Steps:
        node.front.members = frozenset(each.instance for each in members)
        plan = node.ownership.plan(rows, node.liveness.observe(members, self.now_ms + node.clock_offset_ms, node.name))
        yield from self._engine_lock(node)
        for partition in plan.lost:
            self._drop(node, partition)
        for partition, epoch in plan.release:
            yield from self._engine_lock(node)
            self._drop(node, partition)
            yield self.delay(node)
            released = self.table[partition].released_at(epoch)
            if node.sees_table and released is not None:
                self.table[partition] = released
                self.moves += 1
        for row in plan.claim:
            yield self.delay(node)
            claimed = self.table[row.partition].claimed_by(node.name, row.epoch)
            if node.sees_table and claimed is not None:
                self.table[row.partition] = claimed
                yield self.delay(node)  # the answer may come late: another instance may own it by now
                if self.random.random() < 0.02:
                    continue  # the answer is lost
                yield from self._engine_lock(node)
                node.ownership.add(claimed)
                node.engine[row.partition] = claimed.position  # restored from what is stored

    def _engine_lock(self, node: Node) -> Steps:
        while node.evaluating:
            yield 1

    def _drop(self, node: Node, partition: int) -> None:
        node.ownership.drop(partition)
        node.engine.pop(partition, None)

    def _ingest(self, node: Node) -> Steps:
        while True:
            worked = False
            for partition in node.ownership.partitions:
                if partition in node.ownership and node.sees_log and self.log[partition] > node.ownership.position(partition):
                    worked = True
                    node.evaluating = True
                    yield from self._process(node, partition)
                    node.evaluating = False
            yield 10 if worked else 100

    def _process(self, node: Node, partition: int) -> Steps:
        before = node.ownership.position(partition)
        after = min(self.log[partition], before + self.random.randint(1, 20))
        progress = node.ownership.progress_to(partition, after)
        node.engine[partition] += after - before
        yield self.delay(node)
        while not node.sees_table:
            yield 200
        try:
            self._commit(node, partition, progress.epoch, self.table[partition].advanced(progress))
            if self.random.random() < 0.02:  # the answer is lost: the transaction is repeated
                yield self.delay(node)
                self._commit(node, partition, progress.epoch, self.table[partition].advanced(progress))
        except PartitionLostError:
            self.rejected += 1
            self._drop(node, partition)
            return
        except LogAdvanceAlreadyCommittedError:
            pass
        node.ownership.on_committed(progress)

    def _commit(self, node: Node, partition: int, epoch: int, row: Partition) -> None:
        before = self.table[partition].position
        if before != self.effects[partition] or row.position <= before or row.position > self.log[partition]:
            raise Violation(f"partition {partition}: effects {self.effects[partition]}, committed {before} to {row.position}")
        if node.engine.get(partition) != row.position:
            raise Violation(f"partition {partition}: committed with the state of {node.engine.get(partition)} entries")
        owner = self.committers.setdefault((partition, epoch), node.name)
        if owner != node.name or epoch != self.table[partition].epoch:
            raise Violation(f"partition {partition}: {node.name} commits in epoch {epoch}, which is not its own")
        self.table[partition], self.effects[partition] = row, row.position

    def _devices(self) -> Steps:
        while self._faults:
            for _ in range(min(8, self.size.partitions)):
                self.log[self.random.randrange(self.size.partitions)] += 1
            yield self.random.randint(20, 200)

    def _fault_injector(self) -> Steps:
        while self._faults:
            yield self.random.randint(50, 2_000)
            if not self._faults:
                return
            node = self.random.choice([each for each in self.nodes if each.alive])
            match self.random.randrange(7):
                case 0:
                    node.alive = False
                    self.kills += 1
                    self._start_node()
                case 1:
                    node.sees_table = not node.sees_table
                case 2:
                    node.sees_log = not node.sees_log
                case 3:
                    node.front.sees_bus = not node.front.sees_bus
                case 4:
                    self.fleet.toggle_database()
                case 5:
                    node.slow_until_ms = self.now_ms + self.random.randint(100, 10_000)
                case _:
                    self._start_or_stop(node)

    def _start_or_stop(self, node: Node) -> None:
        """A member joins, or one leaves without a word; the cluster keeps at least one and at most twice its size."""
        living = sum(each.alive for each in self.nodes)
        if living > 1 and self.random.random() < 0.5:
            node.alive = False
            self.kills += 1
        elif living < 2 * self.size.instances:
            self._start_node()

    def _end_faults(self) -> None:
        self._faults = False
        for node in self.nodes:
            node.sees_table = node.sees_log = node.front.sees_bus = True
            node.slow_until_ms = 0

    def _stop_database(self) -> None:
        """Nothing else fails: no front may close, and no partition may move."""
        deadline_ms = self.now_ms + BOUND_MS
        self._run_until(lambda: self.now_ms >= deadline_ms or self._is_at_rest())
        self.members = {node.name: self.members.get(node.name, 0) for node in self.nodes if node.alive}
        self.wait(14_000)  # the longest pause of a slow node, and a lease
        epochs, self.fleet.must_stay_open = [row.epoch for row in self.table], True
        for is_there, pause_ms in ((False, self.random.randint(1_000, 30_000)), (True, 5_000)):
            for node in self.nodes:
                node.sees_table = is_there
            self.wait(pause_ms)
        self.fleet.must_stay_open = False
        if epochs != [row.epoch for row in self.table]:
            raise Violation("partitions have moved although the database was away for all")

    def wait(self, pause_ms: int) -> None:
        until_ms = self.now_ms + pause_ms
        self._run_until(lambda: self.now_ms >= until_ms)

    def _is_at_rest(self) -> bool:
        living = frozenset(node.name for node in self.nodes if node.alive)
        owners = assign(self.size.partitions, living)
        return self.effects == self.log and all(row.owner == owners[row.partition] for row in self.table)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    kills = moves = rejected = effects = 0
    for seed in range(seeds):
        simulation = ClusterSimulation(seed)
        try:
            simulation.run()
        except Violation as error:
            sys.exit(f"seed {seed}, {simulation.size}: {error}")
        kills, moves, rejected = kills + simulation.kills, moves + simulation.moves, rejected + simulation.rejected
        effects += sum(simulation.effects)
    print(
        f"{seeds} seeds, {effects} entries, {kills} kills, {moves} moves, {rejected} commits rejected by the fence: no violation"
    )


if __name__ == "__main__":
    main()
