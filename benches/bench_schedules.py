"""Schedule firing, measured from outside: many slots due at once beside telemetry and the API, and the lateness of single slots.

The real program; its database is filled by copying one registered device and its slot, which makes a hundred thousand in
seconds. `LATCHBOARD_BENCH_SLOTS` sets how many are due; with `LATCHBOARD_TEST_POSTGRES_URL` everything runs on that database,
which is emptied first.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.engine import _native
from support.empty_database import empty_postgres
from support.service import EMAIL, PASSWORD, Service
from support.service_database import ServiceDatabase
from support.threaded_device import ThreadedDevice, cpu_seconds, register_device

POSTGRES_URL = os.environ.get("LATCHBOARD_TEST_POSTGRES_URL")
SLOTS = int(os.environ.get("LATCHBOARD_BENCH_SLOTS", "20000"))
ANSWERING = 200
"""Devices that are online and answer; the others are offline, and their commands wait."""
PUMPS, EDGES = 60, 8
"""A rule may fire ten times a minute before the loop guard disables it."""
HOT = {"name": "hot", "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}], "action": {"command": "OFF"}}
MINUTE, HOUR = 60, 3_600
SAMPLES = int(os.environ.get("LATCHBOARD_BENCH_SAMPLES", "220"))
"""Number of edges at two per second, without a burst."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings: dict[str, Any] = {"LATCHBOARD_INGEST_LIMIT": "0"}
    if POSTGRES_URL is not None:
        settings["LATCHBOARD_DATABASE_URL"] = asyncio.run(empty_postgres())
    service = Service(tmp_path, **settings)
    service.start()
    yield service
    if service.is_running:
        service.stop()


@pytest.fixture
def api(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=60) as client:
        login = client.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
        client.headers["Authorization"] = f"Bearer {login['accessToken']}"
        yield client


def bench_many_slots_due_in_the_same_second(benchmark: Any, service: Service, api: httpx.Client) -> None:
    """All due in one second: edges executed and recorded per second, and the delay of an API reader and a rule."""
    fleet = [register_device(api, f"d{number}") for number in range(ANSWERING)]
    pumps = _with_rules(service, api)
    due_ts = int(time.time()) + 24 + SLOTS // 10_000
    first = fleet[0][0]
    slot = {"slot": 0, "onTs": due_ts, "offTs": due_ts + HOUR}
    for device_id, _ in fleet:
        assert api.post(f"/devices/{device_id}/schedules", json=slot).status_code == 201
    tables = ServiceDatabase(service)
    tables.copy_slots(first, SLOTS - ANSWERING)
    simulation = _native.Simulation("127.0.0.1", service.mqtt_port, fleet, rate=200.0, seconds=600.0)
    time.sleep(1.0)
    quiet, edges_before = _read(api, first), _fire(pumps)
    time.sleep(4.0)
    quiet.stop()
    edges_before.stop()
    assert time.time() < due_ts - 0.5, "the machine is too slow to set this up in time"
    api.post(f"/devices/{first}/schedules", json=slot | {"slot": 1})  # wakes the schedule worker, which has not seen the copies
    time.sleep(max(0.0, due_ts - time.time()))
    before = cpu_seconds(service)
    reader, edges, person = _read(api, first), _fire(pumps), _switch(api, fleet)
    began = time.time()

    def burst() -> None:
        while tables.run("SELECT COUNT(*) FROM schedule_edges")[0][0] < SLOTS + 1:
            time.sleep(0.05)
            assert time.time() - began < 600

    benchmark.pedantic(burst, rounds=1)
    for meanwhile in (reader, edges, person):
        meanwhile.stop()
    took_s = tables.run("SELECT MAX(at_ms) FROM schedule_edges")[0][0] / 1000 - due_ts
    simulation.stop()
    benchmark.extra_info |= {
        "slots": SLOTS,
        "slots_per_s": round(SLOTS / took_s),
        "cpu_us_a_slot": round(1e6 * (cpu_seconds(service) - before) / SLOTS),
        "api_p50_p99_ms": _spread(reader.took),
        "api_before_p50_p99_ms": _spread(quiet.took),
        "switch_to_result_p50_p99_ms": _spread(person.took),
        "reading_to_command_p50_p99_ms": _spread(edges.took),
        "reading_to_command_before_p50_p99_ms": _spread(edges_before.took),
    }
    print(f"\n  {json.dumps(benchmark.extra_info)}")


def bench_slots_due_within_a_minute(benchmark: Any, service: Service, api: httpx.Client) -> None:
    """Spread evenly over sixty seconds, beside telemetry, an API reader with ten requests per second, and matching rules: the
    lateness of each edge, and the delay of the others."""
    fleet = [register_device(api, f"d{number}") for number in range(ANSWERING)]
    pumps = _with_rules(service, api)
    base = int(time.time()) + 24 + SLOTS // 8_000
    for device_id, _ in fleet:
        slot = {"slot": 0, "onTs": base, "offTs": base + HOUR}
        assert api.post(f"/devices/{device_id}/schedules", json=slot).status_code == 201
    first, tables = fleet[0][0], ServiceDatabase(service)
    alarm_clock = register_device(api, "alarm clock")[0]
    tables.copy_slots(first, SLOTS - ANSWERING)
    tables.run(f"UPDATE schedules SET on_ts = {base} + seq % {MINUTE}, next_fire_ts = {base} + seq % {MINUTE}")
    simulation = _native.Simulation("127.0.0.1", service.mqtt_port, fleet, rate=200.0, seconds=600.0)
    time.sleep(1.0)
    quiet, edges_before = _read(api, first, every_s=0.1), _fire(pumps)
    time.sleep(4.0)
    quiet.stop()
    edges_before.stop()
    assert time.time() < base - 0.5, "the machine is too slow to set this up in time"
    # Wakes the schedule worker, which has not seen the copies. This slot is not counted.
    times = {"slot": 1, "onTs": base + HOUR, "offTs": base + 2 * HOUR}
    assert api.post(f"/devices/{alarm_clock}/schedules", json=times).status_code == 201
    time.sleep(max(0.0, base - time.time()))
    before = cpu_seconds(service)
    reader, edges, person = _read(api, first, every_s=0.1), _fire(pumps), _switch(api, fleet)

    def minute() -> None:
        while tables.run("SELECT COUNT(*) FROM schedule_edges")[0][0] < SLOTS:
            time.sleep(0.5)
            assert time.time() < base + 10 * MINUTE

    benchmark.pedantic(minute, rounds=1)
    for meanwhile in (reader, edges, person):
        meanwhile.stop()
    simulation.stop()
    twice = "SELECT COUNT(*) FROM (SELECT schedule_id FROM schedule_edges GROUP BY schedule_id HAVING COUNT(*) > 1) twice"
    assert tables.run(twice)[0][0] == 0
    late = [row[0] for row in tables.run("SELECT at_ms - due_ts * 1000 FROM schedule_edges")]
    benchmark.extra_info |= {
        "slots": SLOTS,
        "all_after_s": tables.run("SELECT MAX(at_ms) FROM schedule_edges")[0][0] / 1000 - base,
        "cpu_us_a_slot": round(1e6 * (cpu_seconds(service) - before) / SLOTS),
        "api_p50_p99_ms": _spread(reader.took),
        "api_before_p50_p99_ms": _spread(quiet.took),
        "switch_to_result_p50_p99_ms": _spread(person.took),
        "reading_to_command_p50_p99_ms": _spread(edges.took),
        "reading_to_command_before_p50_p99_ms": _spread(edges_before.took),
    } | _lateness(late)
    print(f"\n  {json.dumps(benchmark.extra_info)}")


def bench_a_slot_keeps_its_second(benchmark: Any, service: Service, api: httpx.Client) -> None:
    """Two edges per second of online devices: from the due second to the command on the device's socket."""
    pumps = [ThreadedDevice(service, *register_device(api, f"pump {number}")) for number in range(SAMPLES // 10)]
    base = int(time.time()) + 8 + SAMPLES // 40
    for place in range(SAMPLES // 2):
        on_ts = base + place // 2
        times = {"slot": place % 5, "onTs": on_ts, "offTs": on_ts + SAMPLES // 4}
        assert api.post(f"/devices/{pumps[place // 5].device_id}/schedules", json=times).status_code == 201
    assert time.time() < base - 0.5, "the machine is too slow to set this up in time"

    def watch() -> None:
        while sum(len(pump.arrivals) for pump in pumps) < SAMPLES:
            time.sleep(0.1)
            assert time.time() < base + SAMPLES + 30

    benchmark.pedantic(watch, rounds=1)
    arrivals = sorted(at for pump in pumps for at in pump.arrivals)
    late = [1000 * (at - base - place // 2) for place, at in enumerate(arrivals)]
    recorded = [row[0] for row in ServiceDatabase(service).run("SELECT at_ms - due_ts * 1000 FROM schedule_edges")]
    benchmark.extra_info |= {"on the socket": _lateness(late), "taken up": _lateness(recorded)}
    print(f"\n  {json.dumps(benchmark.extra_info)}")


def bench_a_thousand_slots_of_one_second(benchmark: Any, service: Service, api: httpx.Client) -> None:
    """How late each of many edges is executed, in milliseconds past its second."""
    first = register_device(api, "first")[0]
    tables, rounds, slots = ServiceDatabase(service), 3, 1_000
    base = int(time.time()) + 6
    for number in range(rounds):
        at = base + number * 4
        assert api.post(f"/devices/{first}/schedules", json={"slot": number, "onTs": at, "offTs": at + HOUR}).status_code == 201
    tables.copy_slots(first, slots - 1)
    api.put(f"/devices/{first}/schedules/0", json={"label": "woken"})
    until = base + (rounds - 1) * 4 + 3
    benchmark.pedantic(lambda: time.sleep(max(0.0, until - time.time())), rounds=1)
    late = [row[0] for row in tables.run("SELECT at_ms - due_ts * 1000 FROM schedule_edges")]
    benchmark.extra_info |= _lateness(late)
    print(f"\n  {json.dumps(benchmark.extra_info)}")


def _with_rules(service: Service, api: httpx.Client) -> list[ThreadedDevice]:
    pumps = [ThreadedDevice(service, *register_device(api, f"pump {number}")) for number in range(PUMPS)]
    for pump in pumps:
        pump.report(20)
        assert api.post(f"/devices/{pump.device_id}/rules", json=HOT).status_code == 201
    return pumps


def _lateness(late: list[float]) -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(late)
    return {
        "edges": len(ordered),
        "late_p50_ms": round(statistics.median(ordered), 1),
        "late_p99_ms": round(ordered[int(len(ordered) * 0.99) - 1], 1),
        "late_max_ms": round(ordered[-1], 1),
    }


class _Repeated:
    """Makes one call after another in a thread of its own, until stopped or out of calls, and keeps how long each took."""

    def __init__(self, calls: Iterable[Callable[[], float]], every_s: float) -> None:
        self.took: list[float] = []
        self._calls = calls
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for call in self._calls:
            if self._done.wait(self._every_s):
                return
            self.took.append(call())

    def stop(self) -> None:
        self._done.set()
        self._thread.join(60)


def _read(api: httpx.Client, device_id: str, every_s: float = 0.01) -> _Repeated:
    """Reads one device."""
    return _Repeated(repeat(lambda: _seconds(lambda: api.get(f"/devices/{device_id}"), 200)), every_s)


def _fire(pumps: list[ThreadedDevice]) -> _Repeated:
    """From a reading to its rule's command. A rule that fires more than ten times a minute would be disabled."""
    return _Repeated(islice(cycle(pump.seconds_to_command for pump in pumps), EDGES * len(pumps)), 0.1)


def _switch(api: httpx.Client, fleet: list[tuple[str, str]]) -> _Repeated:
    """A person switches one device after the other and waits for its result."""
    body = {"cmd": "ON", "waitSeconds": 30}
    return _Repeated(
        (partial(_seconds, partial(api.post, f"/devices/{device_id}/command", json=body), 200) for device_id, _ in cycle(fleet)),
        0.1,
    )


def _seconds(send: Callable[[], httpx.Response], status: int) -> float:
    began = time.perf_counter()
    response = send()
    assert response.status_code == status, response.text
    return time.perf_counter() - began


def _spread(took: list[float]) -> list[float]:
    ordered = sorted(took)
    return [round(1000 * statistics.median(ordered), 1), round(1000 * ordered[max(0, int(len(ordered) * 0.99) - 1)], 1)]
