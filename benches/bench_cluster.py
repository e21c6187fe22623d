"""What a message costs in a cluster: processor time of Latchboard for a stored message, alone, as a cluster of one, and of two instances.

    python benches/bench_cluster.py [devices] [messages a second for each instance] [rounds]

PostgreSQL and three NATS nodes run on the same machine, as does the fleet, so only the processor time of the instances is compared.
A round runs the three arrangements one after the other; the medians are printed at the end. Time counts until everything that was
confirmed is stored. Nothing is asserted.
"""

from __future__ import annotations

import asyncio
import base64
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from adapters.engine import _native
from bench_fleet import cpu_seconds, prepare
from support.empty_database import empty_postgres
from support.nats import NatsNodes, nats_nodes
from support.service import Service

WARM_UP_S, PHASE_S, WAIT_S = 3.0, 12.0, 60.0
PARTITIONS = 64
Identity = tuple[str, str]


def main(count: int, rate: float, rounds: int) -> None:
    measured: dict[str, list[float]] = {}
    with nats_nodes() as nodes, tempfile.TemporaryDirectory() as folder:
        asyncio.run(nodes.wait_until_ready())
        for turn in range(rounds):
            for name, instances in (("single process", 0), ("cluster of one", 1), ("cluster of two", 2)):
                cost_us = measure(Path(folder) / f"{turn}-{instances}", nodes, instances, count, rate)
                measured.setdefault(name, []).append(cost_us)
                print(f"{name}: {cost_us:.1f} µs of processor a stored message", flush=True)
    single, one, two = (statistics.median(each) for each in measured.values())
    print(f"medians: single {single:.1f} µs, cluster of one {one:.1f} µs (× {one / single:.2f}), of two {two:.1f} µs")
    print(f"messages per processor second with two instances: × {one / two:.2f} of those with one")


def measure(folder: Path, nodes: NatsNodes, instances: int, count: int, rate: float) -> float:
    """Microseconds of the instances' processor time for a stored message. `instances` 0: a single process without a cluster."""
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
        }
    with ExitStack() as stack:
        services = [stack.enter_context(Service(folder / str(number), **shared)) for number in range(max(1, instances))]
        return asyncio.run(play(services, devices, rate, is_cluster=instances > 0))


async def play(services: Sequence[Service], devices: Sequence[Identity], rate: float, *, is_cluster: bool) -> float:
    share = len(devices) // len(services)
    fleets = [
        _native.Simulation("127.0.0.1", service.mqtt_port, devices[number * share : (number + 1) * share], rate=rate)
        for number, service in enumerate(services)
    ]
    await asyncio.sleep(WARM_UP_S)
    if is_cluster:
        await wait_until(services, lambda found: is_shared_out(found, len(services)))
    cpu_s, confirmed = sum(map(cpu_seconds, services)), sum(fleet.stats()["confirmed"] for fleet in fleets)
    await asyncio.sleep(PHASE_S)
    for fleet in fleets:
        await asyncio.to_thread(fleet.stop)
    if is_cluster:  # a single process has stored what it has confirmed
        await wait_until(services, lambda found: not any(each["waitingEntries"] for each in found["partitions"]))
    messages = sum(fleet.stats()["confirmed"] for fleet in fleets) - confirmed
    return 1e6 * (sum(map(cpu_seconds, services)) - cpu_s) / messages


def is_shared_out(found: dict[str, Any], instances: int) -> bool:
    owned = [each["partitions"] for each in found["instances"] if each["isAlive"]]
    return bool(sum(owned) == PARTITIONS and max(owned) == -(-PARTITIONS // instances))


async def wait_until(services: Sequence[Service], is_so: Callable[[dict[str, Any]], bool]) -> None:
    async with services[0].api() as owner:
        await owner.wait_until("/cluster", is_so, within_s=WAIT_S)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 400, float(given[1]) if len(given) > 1 else 2_000.0, int(given[2]) if len(given) > 2 else 3)
