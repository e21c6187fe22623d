"""Two checkouts of the program in turn: on a noisy machine, only what ran within the same seconds is comparable.

    python benches/pair.py OLD NEW command [connections] [turns] [directory]

OLD and NEW are folders with a built checkout (with the extension in it), `directory` is where both databases lie. Instead of
`command` it may be `latest` (the authorised read) or `lone`: one device that waits for each PUBACK, beside one-row commits of
SQLite alone on the same file system, which no service on that disk can exceed.

Prints, of each, the medians and the lowest processor time; then the median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from bench_http import DEVICES, Site, open_site, request, send_requests
from support.mqtt_packets import connect, publish
from support.service import Service
from support.threaded_device import register_device
from support.waiting import TIMEOUT_S

REQUESTS, LONE_S = 400, 2.0
CONNACK, PUBACK = 0x20, 0x40
COLUMNS = ("cpu_us", "per_s", "p50_ms", "p99_ms", "switches")


@dataclass(frozen=True)
class Runner:
    name: str
    pid: int
    run: Callable[[], Sequence[float]]
    """Returns how long each operation took, in seconds."""

    def turn(self) -> tuple[float, ...]:
        cpu_ns, switches, began = *self._spent(), time.perf_counter()
        took = sorted(self.run())
        elapsed_s = time.perf_counter() - began
        time.sleep(0.2)  # the devices' answers
        cpu_after, switches_after = self._spent()
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        cpu_us, switched = (cpu_after - cpu_ns) / 1e3 / len(took), (switches_after - switches) / len(took)
        return cpu_us, len(took) / elapsed_s, 1e3 * p50, 1e3 * p99, switched

    def _spent(self) -> tuple[int, int]:
        """Processor time in ns, and how often a thread waited, of all threads."""
        threads = list(Path(f"/proc/{self.pid}/task").iterdir())
        cpu_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
        lines = [line for thread in threads for line in (thread / "status").read_text().splitlines()]
        return cpu_ns, sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def send(site: Site, kind: str, connections: int) -> Sequence[float]:
    devices = [site.devices[number % DEVICES] for number in range(REQUESTS)]
    took: list[float] = []
    if kind == "latest":
        requests = [request("GET", f"/devices/{device}/telemetry/latest", X_Api_Key=site.key) for device in devices]
    else:
        requests = [request("POST", f"/devices/{device}/command", b'{"cmd":"ON"}', X_Api_Key=site.key) for device in devices]
    asyncio.run(send_requests(site.server.port, requests, took, connections=connections))
    return took


def publish_alone(connection: socket.socket, device_id: str) -> Sequence[float]:
    """One message after the PUBACK of the one before."""
    took: list[float] = []
    until = time.perf_counter() + LONE_S
    while (began := time.perf_counter()) < until:
        values = b'{"temperature":%d.5,"humidity":40,"power":7,"relay":true,"mode":"eco"}' % (len(took) % 30)
        connection.sendall(publish(f"devices/{device_id}/telemetry", values, qos=1, packet_id=len(took) % 60_000 + 1))
        assert connection.recv(64)[0] == PUBACK
        took.append(time.perf_counter() - began)
    return took


def commit_alone(connection: sqlite3.Connection) -> Sequence[float]:
    took: list[float] = []
    until = time.perf_counter() + LONE_S
    while (began := time.perf_counter()) < until:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO readings (packed) VALUES (?)", (bytes(30),))
        connection.execute("COMMIT")
        took.append(time.perf_counter() - began)
    return took


def open_database(folder: Path) -> sqlite3.Connection:
    """With the pragmas of the service's writer that concern commits."""
    connection = sqlite3.connect(folder / "alone.db", isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE readings (at INTEGER PRIMARY KEY, packed BLOB)")
    return connection


def open_runner(stack: ExitStack, name: str, checkout: Path, folder: Path, kind: str, connections: int) -> Runner:
    service = Service(folder / name, checkout / "src", LATCHBOARD_INGEST_LIMIT="0")
    site = stack.enter_context(open_site(service))
    if kind != "lone":
        return Runner(name, site.server.pid, lambda: send(site, kind, connections))
    device_id, password = register_device(site.api, "lone")
    device = stack.enter_context(socket.create_connection(("127.0.0.1", service.mqtt_port), timeout=TIMEOUT_S))
    device.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    device.sendall(connect(device_id, password))
    assert device.recv(64)[0] == CONNACK
    return Runner(name, site.server.pid, lambda: publish_alone(device, device_id))


def main(old: str, new: str, kind: str, connections: str = "8", turns: str = "20", directory: str = "") -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory or None)))
        pairs = (("old", Path(old)), ("new", Path(new)))
        runners = [open_runner(stack, name, path.resolve(), folder, kind, int(connections)) for name, path in pairs]
        if kind == "lone":
            alone = open_database(folder)
            runners.append(Runner("SQLite alone", os.getpid(), lambda: commit_alone(alone)))
        for runner in runners:
            runner.turn()
        found: dict[str, list[tuple[float, ...]]] = {runner.name: [] for runner in runners}
        for turn in range(int(turns)):
            for runner in runners if turn % 2 else runners[::-1]:
                found[runner.name].append(runner.turn())
    for name, rows in found.items():
        print(f"{name:12}", describe(rows), f"lowest cpu_us {min(row[0] for row in rows):.0f}")
    ratios = [
        tuple(b / a if a else 1.0 for a, b in zip(*both, strict=True)) for both in zip(found["old"], found["new"], strict=True)
    ]
    print(f"{'new / old':12}", describe(ratios), "load", os.getloadavg()[0])


def describe(rows: Sequence[tuple[float, ...]]) -> str:
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    return "  ".join(f"{name} {value:.2f}" for name, value in zip(COLUMNS, medians, strict=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
