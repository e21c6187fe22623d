"""Throughput of the embedded broker, with the fleet simulator over real sockets.

Under pytest-benchmark each function is one measurement. Run as a program (`python benches/bench_broker.py 10000`), it opens
that many connections from another process and prints connections per second and the memory of one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.engine import _native

DEVICES = 200
MESSAGES = 50_000


def fleet(count: int) -> list[tuple[str, str]]:
    return [(f"dev_{number:020d}", f"{number:032d}") for number in range(count)]


def a_broker(devices: list[tuple[str, str]]) -> Any:
    broker = _native.Broker(rate_per_second=0.0)
    broker.start([("tcp", False, "127.0.0.1", 0)])
    for number, (device_id, password) in enumerate(devices):
        broker.upsert_credentials(device_id, number, password, "native")
    return broker


def drain(broker: Any, wanted: int) -> None:
    """Take and acknowledge until so many telemetry messages have come."""
    seen = 0
    while seen < wanted:
        batch = broker.take_batch(1000)
        if batch is None:
            time.sleep(0.0005)
            continue
        seen += len(batch.telemetry)
        batch.ack()


@pytest.fixture(params=[1, 0], ids=["qos1", "qos0"])
def flat_out(request: pytest.FixtureRequest) -> Iterator[Any]:
    devices = fleet(DEVICES)
    broker = a_broker(devices)
    simulation = _native.Simulation("127.0.0.1", broker.ports()[0], devices, rate=0.0, qos=request.param)
    yield broker
    simulation.stop()
    broker.stop()


def test_messages_through_sockets_into_acknowledged_batches(benchmark: Any, flat_out: Any) -> None:
    drain(flat_out, MESSAGES)
    benchmark.extra_info["messages"] = MESSAGES
    benchmark.pedantic(drain, args=(flat_out, MESSAGES), rounds=5)
    benchmark.extra_info["messages_per_second"] = round(MESSAGES / benchmark.stats["mean"])


def test_a_command_to_a_device_and_its_done_back(benchmark: Any) -> None:
    devices = fleet(1)
    broker = a_broker(devices)
    simulation = _native.Simulation("127.0.0.1", broker.ports()[0], devices, rate=1.0)
    device_id = devices[0][0]

    def results() -> int:
        batch = broker.take_batch(100)
        if batch is None:
            return 0
        batch.ack()
        return sum(event[0] == "publish" and b'"done"' in event[4] for event in batch.events)

    def command() -> None:
        while not broker.publish(device_id, "cmd", b'{"id":"exe_1","cmd":"TOGGLE"}'):
            time.sleep(0.001)
        while not results():
            time.sleep(0.00005)

    benchmark(command)
    simulation.stop()
    broker.stop()


def test_admitting_a_device(benchmark: Any) -> None:
    broker = _native.Broker()
    numbers = iter(range(100_000_000))
    benchmark(lambda: broker.upsert_credentials(f"dev_{next(numbers):020d}", 1, "p" * 32, "native"))


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


_FLEET = """
import json, sys, time
from adapters.engine import _native
port, count, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
devices = [(f"dev_{n:020d}", f"{n:032d}") for n in range(count)]
simulation = _native.Simulation("127.0.0.1", port, devices, rate=rate)
start = time.perf_counter()
while simulation.stats()["connected"] < count and time.perf_counter() - start < 120:
    time.sleep(0.01)
print(json.dumps({"seconds": time.perf_counter() - start, **simulation.stats()}), flush=True)
sys.stdin.readline()
print(json.dumps(simulation.stats()), flush=True)
simulation.stop()
"""


async def connections(count: int, rate: float) -> None:
    broker = a_broker(fleet(count))
    before = resident_kib()
    command = [sys.executable, "-c", _FLEET, str(broker.ports()[0]), str(count), str(rate)]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    first = asyncio.create_task(process.stdout.readline())
    while not first.done():
        await _acknowledge(broker)
    arrived = json.loads(await first)
    deadline = asyncio.get_running_loop().time() + 10
    while asyncio.get_running_loop().time() < deadline:
        await _acknowledge(broker)
    used = resident_kib() - before
    process.stdin.write(b"\n")
    last = json.loads(await process.stdout.readline())
    stats = broker.stats()
    broker.stop()
    await process.wait()
    print(f"{arrived['connected']} connections in {arrived['seconds']:.2f} s: {count / arrived['seconds']:.0f}/s")
    print(f"resident memory: {used} KiB more, {used / count:.1f} KiB a connection")
    print(
        f"{stats['inbound_telemetry']} telemetry messages; confirmation p50 {last['confirmation_p50_us']} us,"
        f" p99 {last['confirmation_p99_us']} us; lost {last['lost']}, failed {last['failed']}"
    )


async def _acknowledge(broker: Any) -> None:
    batch = broker.take_batch(1000)
    if batch is None:
        await asyncio.sleep(0.001)
    else:
        batch.ack()
        await asyncio.sleep(0)


if __name__ == "__main__":
    arguments = [float(text) for text in sys.argv[1:]]
    asyncio.run(connections(int(arguments[0]) if arguments else 1000, arguments[1] if len(arguments) > 1 else 1000.0))
