"""What a fleet file costs the service: apply, and plan of the same file again, on SQLite and on PostgreSQL.

    python benches/bench_fleet_file.py [times]

The service is the real process, started on an empty database for each apply. The figures are its processor seconds (on PostgreSQL
without the database server's) and the seconds until the answer, the median of `times` (3). Nothing is asserted.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_fleet import cpu_seconds
from support.empty_database import empty_postgres
from support.service import Service

RULE = {
    "name": "Too hot",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
}
SCHEDULE = {
    "slot": 0,
    "onTs": 1893456000,
    "offTs": 1893456600,
    "rrule": "FREQ=DAILY",
    "timezone": "Europe/Berlin",
    "onCommand": {"command": "ON"},
}


def plain_devices(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"externalId": f"pump-{number}", "name": f"Pump {number}", "boardType": "ESP32", "appType": "PUMP"}


def full_devices(count: int) -> Iterator[dict[str, Any]]:
    for device in plain_devices(count):
        yield {**device, "metrics": ["temperature"], "schedules": [SCHEDULE], "rules": [RULE]}


FILES: dict[str, dict[str, Any]] = {
    "2,000 devices": {"document": {"devices": list(plain_devices(2_000))}},
    "600 devices with slot, rule and credentials": {"document": {"devices": list(full_devices(600))}, "credentials": "NEW"},
}


async def measure(folder: Path, body: dict[str, Any], **settings: str) -> list[float]:
    """Processor and wall seconds of apply, then of the plan after it."""
    with Service(folder, **settings) as service:
        seconds: list[float] = []
        async with service.api() as api:
            for path in ("/fleet/apply", "/fleet/plan"):
                used, began = cpu_seconds(service), time.perf_counter()
                await api.post(path, body)
                seconds += [cpu_seconds(service) - used, time.perf_counter() - began]
    return seconds


def main(times: int) -> None:
    for name, body in FILES.items():
        for database in ("SQLite", "PostgreSQL"):
            runs: list[list[float]] = []
            for _ in range(times):
                settings = {} if database == "SQLite" else {"LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres())}
                with tempfile.TemporaryDirectory() as folder:
                    runs.append(asyncio.run(measure(Path(folder), body, **settings)))
            apply_cpu, apply_wall, plan_cpu, plan_wall = (statistics.median(each) for each in zip(*runs, strict=True))
            print(
                f"{name}, {database}: apply {apply_cpu:.1f} s of processor ({apply_wall:.1f} s until the answer), "
                f"plan again {plan_cpu:.1f} s ({plan_wall:.1f} s)"
            )


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:2] or ["3"]))
