"""What a message costs in a cluster: processor time for a stored message, alone, as a cluster of one, and of two instances.

    python benches/bench_cluster.py [devices] [messages a second for each instance] [rounds]

PostgreSQL and three NATS nodes run on the same machine, as does the fleet, so processor time is compared: that of the instances, and
beside it that of the three nodes together and of PostgreSQL (without fsync, as in the tests).
A round runs the three arrangements one after the other; the medians are printed at the end. Time counts until everything that was
confirmed is stored. Nothing is asserted. `LATCHBOARD_BENCH_INSTANCES=1,2,4` says which arrangements (0: no cluster),
`LATCHBOARD_BENCH_PARTITIONS=64` how many partitions.
"""

from __future__ import annotations

import asyncio
import base64
import operator
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import asyncpg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from adapters.engine import _native
from bench_fleet import cpu_seconds, prepare
from support import postgres
from support.empty_database import empty_postgres
from support.nats import NatsNodes, nats_nodes
from support.service import Service

WARM_UP_S, PHASE_S, WAIT_S = 3.0, 12.0, 60.0
PARTITIONS = int(os.environ.get("LATCHBOARD_BENCH_PARTITIONS", "16"))
INSTANCES = [int(each) for each in os.environ.get("LATCHBOARD_BENCH_INSTANCES", "0,1,2").split(",")]
NAMES = {0: "single process", 1: "cluster of one", 2: "cluster of two", 4: "cluster of four"}
Identity = tuple[str, str]


@dataclass(frozen=True)
class Costs:
    """Processor time for a stored message, in microseconds; or in seconds, since the processes started."""

    instances: float
    nats: float
    postgres: float

    def __str__(self) -> str:
        return f"{self.instances:.1f} µs of the instances, {self.nats:.1f} of the NATS nodes, {self.postgres:.1f} of PostgreSQL"


def main(count: int, rate: float, rounds: int) -> None:
    measured: dict[str, list[Costs]] = {}
    with nats_nodes() as nodes, tempfile.TemporaryDirectory() as folder:
        asyncio.run(nodes.wait_until_ready())
        for turn in range(rounds):
            for instances in INSTANCES:
                name = NAMES[instances]
                costs = measure(Path(folder) / f"{turn}-{instances}", nodes, instances, count, rate)
                measured.setdefault(name, []).append(costs)
                print(f"{name}: {costs}", flush=True)
    medians = {name: Costs(*map(statistics.median, zip(*map(astuple, each), strict=True))) for name, each in measured.items()}
    for name, costs in medians.items():
        print(f"median, {name}: {costs}")
    first, *others = medians.items()
    for name, costs in others:
        print(f"{name}: × {costs.instances / first[1].instances:.2f} of the processor time of a {first[0]}")


def measure(folder: Path, nodes: NatsNodes, instances: int, count: int, rate: float) -> Costs:
    """`instances` 0: a single process without a cluster."""
    asyncio.run(nodes.delete_streams())
    shared: dict[str, Any] = {
        "LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres()),
        "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
        "LATCHBOARD_INGEST_LIMIT": 0,
    }
    devices = prepare(Service(folder / "prepared", **shared), count)
    if instances:
        shared |= {
            "LATCHBOARD_CLUSTER": nodes.url,
            "LATCHBOARD_CLUSTER_MONITOR": nodes.monitor_url,
            "LATCHBOARD_CLUSTER_LOG_MIB": 8,
            "LATCHBOARD_CLUSTER_PARTITIONS": PARTITIONS,
        }
    with ExitStack() as stack:
        services = [stack.enter_context(Service(folder / str(number), **shared)) for number in range(max(1, instances))]
        return asyncio.run(play(services, nodes, devices, rate, is_cluster=instances > 0))


async def play(
    services: Sequence[Service], nodes: NatsNodes, devices: Sequence[Identity], rate: float, *, is_cluster: bool
) -> Costs:
    postmaster = await postmaster_pid()

    def spent() -> Costs:
        return Costs(sum(map(cpu_seconds, services)), sum(map(tree_cpu_seconds, nodes.pids)), tree_cpu_seconds(postmaster))

    share = len(devices) // len(services)
    fleets = [
        _native.Simulation("127.0.0.1", service.mqtt_port, devices[number * share : (number + 1) * share], rate=rate)
        for number, service in enumerate(services)
    ]
    await asyncio.sleep(WARM_UP_S)
    if is_cluster:
        begun = time.monotonic()
        await wait_until(services, lambda found: is_shared_out(found, len(services)))
        print(f"shared out {time.monotonic() - begun:.1f} s after the warm-up of {WARM_UP_S:g} s")
    before, confirmed = spent(), sum(fleet.stats()["confirmed"] for fleet in fleets)
    await asyncio.sleep(PHASE_S)
    for fleet in fleets:
        await asyncio.to_thread(fleet.stop)
    if is_cluster:  # a single process has stored what it has confirmed
        await wait_until(services, lambda found: not any(each["waitingEntries"] for each in found["partitions"]))
    messages = sum(fleet.stats()["confirmed"] for fleet in fleets) - confirmed
    return Costs(*(1e6 * seconds / messages for seconds in map(operator.sub, astuple(spent()), astuple(before))))


async def postmaster_pid() -> int:
    connection = await asyncpg.connect(postgres.plain_url())
    try:
        return int(_stat_fields(await connection.fetchval("SELECT pg_backend_pid()"))[1])
    finally:
        await connection.close()


def tree_cpu_seconds(pid: int) -> float:
    """Of a process, its children, and those of them that have ended."""
    live = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sum(map(int, _stat_fields(pid)[11:15])) / 100 + sum(map(tree_cpu_seconds, live))


def _stat_fields(pid: int) -> list[str]:
    """From the state of the process on: parent, …, user, system, user and system of its ended children."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_shared_out(found: dict[str, Any], instances: int) -> bool:
    owned = [each["partitions"] for each in found["instances"] if each["isAlive"]]
    return bool(sum(owned) == PARTITIONS and max(owned) == -(-PARTITIONS // instances))


async def wait_until(services: Sequence[Service], is_so: Callable[[dict[str, Any]], bool]) -> None:
    async with services[0].api() as owner:
        await owner.wait_until("/cluster", is_so, within_s=WAIT_S)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 400, float(given[1]) if len(given) > 1 else 2_000.0, int(given[2]) if len(given) > 2 else 3)
