"""The database stalls for 30 seconds while a fleet sends at full speed: memory, and the time until it continues.

`tests/e2e/test_database_stalls.py` checks that no acknowledged message is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.engine import _native
from support.database_probe import writes_blocked
from support.service import EMAIL, PASSWORD, Service
from support.threaded_device import register_device, resident_mib
from support.transports import ALL_DATABASES, database_settings

FLEET = 500
STALL_S = 30.0


@pytest.fixture(params=ALL_DATABASES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, LATCHBOARD_INGEST_LIMIT="0", **database_settings(request.param))
    service.start()
    yield service
    service.stop()


def bench_database_stalled_for_30_seconds(benchmark: Any, service: Service) -> None:
    """Another connection holds a lock that writers need: they fail after 5 s and retry, and devices wait for their PUBACK."""
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=30) as api:
        login = api.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
        api.headers["Authorization"] = f"Bearer {login['accessToken']}"
        devices = [register_device(api, f"d{number}") for number in range(FLEET)]
    fleet = _native.Simulation("127.0.0.1", service.mqtt_port, devices, rate=1e9, qos=1, seconds=600.0)
    time.sleep(10)
    before_mib, begun = resident_mib(service), fleet.stats()["confirmed"]
    confirmed, peak_mib = benchmark.pedantic(stall, args=(service, fleet), rounds=1)
    freed = fleet.stats()["confirmed"]
    time.sleep(10)
    carried = fleet.stats()
    fleet.stop()
    benchmark.extra_info |= {
        "confirmed_per_s_before": round(begun / 10),
        "confirmed_in_the_stall_after_its_first_2_s": confirmed,
        "confirmed_per_s_after": round((carried["confirmed"] - freed) / 10),
        "resident_mib_before": before_mib,
        "resident_mib_peak": peak_mib,
        "resident_mib_after": resident_mib(service),
        "confirmed": carried["confirmed"],
        "fleet": {name: value for name, value in carried.items() if value and ("lost" in name or "connect" in name)},
    }


def stall(service: Service, fleet: _native.Simulation) -> tuple[int, int]:
    """The messages acknowledged while nothing can be stored, and the peak memory in that time."""
    return asyncio.run(_stall(service, fleet))


async def _stall(service: Service, fleet: _native.Simulation) -> tuple[int, int]:
    async with writes_blocked(service):
        await asyncio.sleep(2)
        confirmed, peak, ends = fleet.stats()["confirmed"], 0, time.monotonic() + STALL_S - 2
        while time.monotonic() < ends:
            peak = max(peak, resident_mib(service))
            await asyncio.sleep(0.2)
        return fleet.stats()["confirmed"] - confirmed, peak
