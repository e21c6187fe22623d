"""What one account costs another one: a switch of a quiet account, alone and beside the worst of a loud one.

    python benches/bench_tenants.py [seconds] [SQLite|PostgreSQL|both] [name of a load] [another built checkout]

The quiet account sends ON to a real MQTT device at a steady pace; each figure is the time from the request until the device has the
command. Beside it, the loud account repeats one kind of request over several connections and never waits after a refusal longer than
the service asks. Prints p50, p99 and the longest in milliseconds, p99 as a multiple of that alone, and what the loud account got.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from adapters.engine import _native
from bench_fleet_file import plain_devices
from support.empty_database import empty_postgres
from support.service import EMAIL, PASSWORD, Service, environment, program_command
from support.threaded_device import ThreadedDevice, register_device

CONNECTIONS = 8
EVERY_S = 0.1
QUIET_DEVICES = 12
"""They do not answer, so one alone would soon have too many open commands."""
DEVICES, MEMBERS, MESSAGES = 2_400, 200, 60_000
LOUD_EMAIL = "loud@example.com"
VIEWER_EMAIL = "viewer@example.com"

Request = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Load:
    name: str
    requests: Callable[[], Iterator[Request]]
    is_viewer: bool = False


def repeated(path: str, body: dict[str, Any]) -> Callable[[], Iterator[Request]]:
    def again() -> Iterator[Request]:
        while True:
            yield path, body

    return again


def in_turn(path: str, *bodies: dict[str, Any]) -> Callable[[], Iterator[Request]]:
    def again() -> Iterator[Request]:
        while True:
            yield from ((path, body) for body in bodies)

    return again


def new_schemas(device_id: str) -> Iterator[Request]:
    """Each as large and as slow to compile as the service accepts."""
    number = 0
    while True:
        number += 1
        fields = {
            f"f{number}_{each}": {"type": "string", "pattern": f"^[0-9]{{9}}[a-z]{{1,20}}{number}_{each}$"} for each in range(100)
        }
        schema = {"type": "object", "properties": fields}
        yield f"/devices/{device_id}/commands", {"name": f"SET_{time.time_ns()}", "label": "Set", "paramsSchema": schema}


def new_devices() -> Iterator[Request]:
    while True:
        rows = [{"name": f"Lamp {number}", "boardType": "ESP32", "appType": "LIGHT"} for number in range(200)]
        yield "/devices/register/bulk", {"devices": rows, "credentials": "NEW"}


def make_loads(world: World) -> list[Load]:
    document = {"devices": list(plain_devices(DEVICES))}
    plan = {"document": document}
    changed, back = (
        {"document": {"devices": [{**one, "location": place} for one in document["devices"]]}} for place in ("Hall", "Yard")
    )
    slot = {"slot": 0, "onTs": 4_000_000_000, "offTs": 4_000_000_600, "onCommand": {"command": "ON"}}
    test = {
        "conditions": [{"metric": "temperature", "comparator": ">", "value": 1e6}],
        "from": int(time.time() * 1000) - 86_400_000,
        "to": int(time.time() * 1000) + 60_000,
    }
    return [
        Load("plan of 2,400 devices, no change", repeated("/fleet/plan", plan)),
        Load("the same by a Viewer", repeated("/fleet/plan", plan), is_viewer=True),
        Load("plan that changes all 2,400", repeated("/fleet/plan", changed)),
        Load("apply that changes all 2,400", in_turn("/fleet/apply", changed, back)),
        Load("slot of a group of 200", repeated(f"/groups/{world.group_id}/schedules", slot)),
        Load("preview of a command to 200", repeated(f"/groups/{world.group_id}/command/preview", {"cmd": "ON"})),
        Load("command to a group of 200", repeated(f"/groups/{world.group_id}/command", {"cmd": "ON", "ttlSeconds": 1})),
        Load("rule test over all telemetry", repeated(f"/devices/{world.talker}/rules/test", test)),
        Load("new parameter schemas", lambda: new_schemas(world.talker)),
        Load("registration of 200 devices", new_devices),
    ]


@dataclass
class World:
    """Both accounts, and what the loud one has."""

    service: Service
    quiet: httpx.AsyncClient
    devices: list[ThreadedDevice]
    loud: httpx.AsyncClient
    viewer: httpx.AsyncClient
    group_id: str
    talker: str
    """A device of the loud account with much telemetry."""

    async def switch(self) -> float:
        """Seconds until the device has the command."""
        device = self.devices.pop(0)
        self.devices.append(device)
        device._arrived.clear()
        began = time.perf_counter()
        answer = await self.quiet.post(f"/devices/{device.device_id}/command", json={"cmd": "ON"})
        if answer.status_code != 200:
            return 5.0
        await asyncio.to_thread(device._arrived.wait, 5.0)
        return time.perf_counter() - began

    async def measure(self, seconds: float) -> list[float]:
        took: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            took.append(await self.switch())
            await asyncio.sleep(max(0.0, EVERY_S - took[-1]))
        return sorted(took)


async def shout(client: httpx.AsyncClient, load: Load, answers: Counter[int]) -> None:
    requests = load.requests()

    async def connection() -> None:
        for path, body in requests:
            with suppress(httpx.TransportError):
                answer = await client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
                answers[answer.status_code] += 1
                if answer.status_code == 400:
                    raise SystemExit(f"{load.name}: {answer.text[:500]}")
                await asyncio.sleep(float(answer.headers.get("Retry-After", 0)))

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))


def describe(took: list[float]) -> tuple[float, float, float]:
    return took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3, took[-1] * 1e3


async def sign_in(service: Service, email: str) -> httpx.AsyncClient:
    client = httpx.AsyncClient(base_url=f"{service.url}/api/v1", timeout=60)
    login = await client.post("/auth/login", json={"email": email, "password": PASSWORD})
    client.headers["Authorization"] = f"Bearer {login.json()['accessToken']}"
    return client


def make_accounts(service: Service) -> None:
    """With the command of the operator, before the service starts."""
    service.folder.mkdir(parents=True, exist_ok=True)
    service._create_database()
    for name, email in (("Quiet", EMAIL), ("Loud", LOUD_EMAIL)):
        make_account(service, name, email)


def make_account(service: Service, name: str, email: str) -> None:
    command = [*program_command(), "account", "create", "--name", name, "--email", email]
    settings = {**service.settings, "LATCHBOARD_NEW_PASSWORD": PASSWORD}
    done = subprocess.run(command, env=environment(**settings), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@asynccontextmanager
async def open_world(service: Service) -> AsyncIterator[World]:
    quiet, loud = await sign_in(service, EMAIL), await sign_in(service, LOUD_EMAIL)
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=60, headers=dict(quiet.headers)) as api:
        devices = [ThreadedDevice(service, *register_device(api, f"pump{number}")) for number in range(QUIET_DEVICES)]
    member = {"email": VIEWER_EMAIL, "password": PASSWORD, "name": "V", "role": "Viewer"}
    made = await loud.post("/members", json=member)
    assert made.status_code == 201, made.text
    applied = await loud.post("/fleet/apply", json={"document": {"devices": list(plain_devices(DEVICES))}})
    assert applied.status_code == 200, applied.text
    ids = [each["id"] for each in applied.json()["objects"]]
    group = await loud.post("/groups", json={"name": "All", "deviceIds": ids[:MEMBERS]})
    assert group.status_code == 201, group.text
    for each in ids[:MEMBERS]:
        (await loud.post(f"/devices/{each}/credentials", json={})).raise_for_status()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=60, headers=dict(loud.headers)) as api:
        talker = register_device(api, "talker")
    fleet = _native.Simulation("127.0.0.1", service.mqtt_port, [talker], rate=1e9, qos=1, seconds=60.0)
    until = time.monotonic() + 8
    while (confirmed := fleet.stats()["confirmed"]) < MESSAGES and time.monotonic() < until:
        await asyncio.sleep(0.2)
    fleet.stop()
    print(f"stored telemetry: {confirmed:,} messages", flush=True)
    try:
        yield World(service, quiet, devices, loud, await sign_in(service, VIEWER_EMAIL), group.json()["groupId"], talker[0])
    finally:
        await quiet.aclose()
        await loud.aclose()


async def run(database: str, seconds: float, only: str, checkout: str) -> None:
    sources = [Path(checkout).resolve() / "src"] if checkout else []
    settings = {} if database == "SQLite" else {"LATCHBOARD_DATABASE_URL": await empty_postgres()}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        service = Service(Path(folder), *sources, LATCHBOARD_INGEST_LIMIT="0", **settings)
        make_accounts(service)
        stack.enter_context(service)
        async with open_world(service) as world:
            await world.measure(1)
            alone = describe(await world.measure(seconds))
            print(f"{database}, load {os.getloadavg()[0]:.1f}; p50, p99, longest in ms", flush=True)
            print(f"{'alone':38} {alone[0]:7.0f} {alone[1]:7.0f} {alone[2]:7.0f}", flush=True)
            for load in make_loads(world):
                if only not in load.name:
                    continue
                answers: Counter[int] = Counter()
                shouting = asyncio.create_task(shout(world.viewer if load.is_viewer else world.loud, load, answers))
                await asyncio.sleep(0.5)
                p50, p99, longest = describe(await world.measure(seconds))
                shouting.cancel()
                with suppress(asyncio.CancelledError):
                    await shouting
                got = ", ".join(f"{count} × {status}" for status, count in sorted(answers.items()))
                print(f"{load.name:38} {p50:7.0f} {p99:7.0f} {longest:7.0f}  {p99 / alone[1]:5.1f} ×   {got}", flush=True)
                await asyncio.sleep(2)


def main(seconds: str = "10", database: str = "both", only: str = "", checkout: str = "") -> None:
    for each in ("SQLite", "PostgreSQL") if database == "both" else (database,):
        asyncio.run(run(each, float(seconds), only, checkout))


if __name__ == "__main__":
    main(*sys.argv[1:])
