"""The whole program from outside: start time, durable telemetry throughput, and the delay from a reading to a rule's command.

A real process (broker, engine, SQLite, HTTP) on free ports; the extension simulates the fleet on its own threads, on the
same cores. Run it on an otherwise idle machine: `make bench` prints medians, `--benchmark-json` keeps the extra figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.engine import _native
from support.service import EMAIL, PASSWORD, Service
from support.threaded_device import ThreadedDevice, cpu_seconds, register_device, resident_mib
from support.transports import ALL_DATABASES, database_settings

FLEET = 200
SECONDS = 10.0
PUMPS, EDGES = 12, 9
"""A rule may fire ten times a minute before the loop guard disables it."""
HOT = {"name": "hot", "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}], "action": {"command": "OFF"}}


@pytest.fixture(params=ALL_DATABASES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, LATCHBOARD_INGEST_LIMIT="0", **database_settings(request.param))
    service.start()
    yield service
    service.stop()


@pytest.fixture
def api(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=30) as client:
        login = client.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
        client.headers["Authorization"] = f"Bearer {login['accessToken']}"
        yield client


def bench_second_start_to_ready(benchmark: Any, tmp_path: Path) -> None:
    service = Service(tmp_path)
    service.start()
    service.stop()
    benchmark.pedantic(service.start, teardown=lambda: service.stop(), rounds=5)


def bench_durable_telemetry_flat_out(benchmark: Any, service: Service, api: httpx.Client) -> None:
    """QoS 1, five metrics: published, evaluated, stored, synced, and then acknowledged."""
    devices = [register_device(api, f"d{number}") for number in range(FLEET)]
    before = cpu_seconds(service)
    stats = benchmark.pedantic(play, args=(service, devices, 1e9, SECONDS), rounds=1)
    benchmark.extra_info["messages_per_s"] = round(stats["confirmed"] / SECONDS)
    benchmark.extra_info["puback_p50_ms"] = stats["confirmation_p50_us"] / 1000
    benchmark.extra_info["service_cpu_s_per_s"] = round((cpu_seconds(service) - before) / SECONDS, 2)
    benchmark.extra_info["resident_mib"] = resident_mib(service)


def bench_reading_to_command_at_1000_messages_a_second(benchmark: Any, service: Service, api: httpx.Client) -> None:
    """From the publish of a reading that makes a rule match to the command on the device's socket."""
    devices = [register_device(api, f"d{number}") for number in range(FLEET)]
    pumps = [ThreadedDevice(service, *register_device(api, f"pump {number}")) for number in range(PUMPS)]
    for pump in pumps:
        pump.report(20)
        assert api.post(f"/devices/{pump.device_id}/rules", json=HOT).status_code == 201
    fleet = _native.Simulation("127.0.0.1", service.mqtt_port, devices, rate=1_000.0, seconds=60.0)
    time.sleep(2.0)
    took = sorted(benchmark.pedantic(lambda: [pump.seconds_to_command() for _ in range(EDGES) for pump in pumps], rounds=1))
    fleet.stop()
    benchmark.extra_info["edges"] = len(took)
    benchmark.extra_info["p50_ms"] = round(statistics.median(took) * 1000, 2)
    benchmark.extra_info["p99_ms"] = round(took[int(len(took) * 0.99) - 1] * 1000, 2)
    benchmark.extra_info["resident_mib"] = resident_mib(service)


def play(service: Service, devices: list[tuple[str, str]], rate: float, seconds: float) -> dict[str, int]:
    simulation = _native.Simulation("127.0.0.1", service.mqtt_port, devices, rate=rate, qos=1, seconds=seconds)
    while simulation.is_running():
        time.sleep(0.05)
    return simulation.stats()
