"""A machine's clock that jumps, or that is behind at the start, does nothing that cannot be undone; people are told."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.device import Device, create_device
from support.empty_database import empty_postgres
from support.machine_clock import DOUBTING, MachineClock
from support.service import ApiClient, Service, environment, program_command
from support.transports import ALL_DATABASES
from support.waiting import TIMEOUT_S

DAY_S = 86_400
EVERY_OTHER_MINUTE = "FREQ=MINUTELY;INTERVAL=2"


@pytest.fixture(params=ALL_DATABASES)
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres())} if request.param == "postgres" else {}


@contextmanager
def doubting(folder: Path, clock: MachineClock, database: dict[str, Any]) -> Iterator[Service]:
    with Service(folder / "service", folder, **database, **clock.settings | DOUBTING) as service:
        yield service


async def warning_of(service: Service) -> str | None:
    async with httpx.AsyncClient() as client:
        found: str | None = (await client.get(f"{service.url}/readyz")).json().get("warnings", {}).get("clock")
        return found


def types_of(events: dict[str, Any]) -> list[str]:
    return [one["eventType"] for one in events["data"]]


async def wait_for_warning(service: Service, is_wanted: Callable[[str | None], bool]) -> str:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_wanted(found := await warning_of(service)):
            await asyncio.sleep(0.2)
    return found or ""


async def run_program(service: Service, clock: MachineClock, *arguments: str) -> str:
    settings = {**service.settings, **clock.settings}
    ran = await asyncio.to_thread(
        subprocess.run, [*program_command(), *arguments], env=environment(**settings), capture_output=True, text=True, check=False
    )
    return ran.stdout + ran.stderr


async def put_slot(owner: ApiClient, device: Device, slot: int, on_ts: int, **more: Any) -> None:
    await owner.post(f"{device.path}/schedules", {"slot": slot, "onTs": on_ts, "offTs": on_ts + 60, **more}, expect=201)


async def test_a_clock_that_is_ahead_for_a_minute_leaves_no_trace(tmp_path: Path, database: dict[str, Any]) -> None:
    clock = MachineClock(tmp_path / "clock")
    with doubting(tmp_path, clock, database) as service:
        async with service.api() as owner:
            await service.sign_in_again(owner)
            pump = await create_device(owner)
            async with pump.online(service) as line:
                await line.report(t=20)
                now_ts = clock.now_ms() // 1_000
                await put_slot(owner, pump, 0, now_ts + 3_600)
                await put_slot(owner, pump, 1, now_ts + 900, rrule=EVERY_OTHER_MINUTE)
                before = await owner.get(f"{pump.path}/schedules")

                clock.step(hours=40 * 24)
                assert "jumped 40 d ahead" in await wait_for_warning(service, bool)
                await line.report(t=21)
                await owner.post(
                    f"{pump.path}/schedules", {"slot": 4, "onTs": now_ts + 9_000, "offTs": now_ts + 9_060}, expect=201
                )
                assert (await owner.get(f"{pump.path}/schedules"))[:2] == before
                assert "jumped" in await run_program(service, clock, "doctor")
                network = await owner.get("/network")
                assert [found["code"] for found in network["problems"] if found["code"].startswith("CLOCK")] == ["CLOCK_DOUBTED"]

                clock.step(hours=-40 * 24)
                await wait_for_warning(service, lambda found: found is None)
                await line.report(t=22)
            readings = await owner.wait_until(f"{pump.path}/telemetry", lambda found: len(found) == 3)
            assert len({reading["recordedAt"][:10] for reading in readings}) == 1
            events = await owner.wait_until("/events?limit=200", lambda found: "clock_trusted" in types_of(found))
            assert [kind for kind in types_of(events) if kind.startswith("clock_")] == ["clock_trusted", "clock_doubted"]
            assert await owner.get(f"{pump.path}/schedules/history") == []
            assert (await owner.get(f"{pump.path}/schedules"))[:2] == before


@pytest.mark.parametrize("behind_s", [2 * DAY_S, None], ids=["two days", "1970"])
async def test_a_start_behind_the_data_goes_on_from_there(tmp_path: Path, database: dict[str, Any], behind_s: int | None) -> None:
    clock = MachineClock(tmp_path / "clock")
    with doubting(tmp_path, clock, database) as service:
        async with service.api() as owner:
            await service.sign_in_again(owner)
            pump = await create_device(owner)
            async with pump.online(service) as line:
                await line.report(t=20)
            condition = {"metric": "t", "comparator": ">", "value": 30}
            body = {"name": "hot", "conditions": [condition], "action": {"command": "ON"}}
            await owner.post(f"{pump.path}/rules", body, expect=201)
            service.stop()
            clock.set(-(clock.now_ms() // 1_000 if behind_s is None else behind_s))
            service.start()
            assert "behind the newest data" in await wait_for_warning(service, bool)
            await service.wait_for_log("behind the newest data")
            await service.sign_in_again(owner)
            async with pump.online(service) as line:
                for value in (21, 31):
                    await line.publish("telemetry", {"ts": time.time_ns() // 1_000_000, "m": {"t": value}})
                assert (await line.next_command())["cmd"] == "ON"
            readings = await owner.wait_until(f"{pump.path}/telemetry", lambda found: len(found) == 3)
            assert [reading["value"] for reading in readings] == [31, 21, 20]

            clock.set(0)
            await wait_for_warning(service, lambda found: found is None)


async def test_a_first_start_without_the_time_keeps_what_devices_report(tmp_path: Path, database: dict[str, Any]) -> None:
    clock = MachineClock(tmp_path / "clock")
    clock.set(-2 * DAY_S)
    with doubting(tmp_path, clock, database) as service:
        async with service.api() as owner:
            await service.sign_in_again(owner)
            pump = await create_device(owner)
            async with pump.online(service) as line:
                await line.publish("telemetry", {"ts": clock.now_ms() + 2 * DAY_S * 1_000, "m": {"t": 31}})
            [reading] = await owner.wait_until(f"{pump.path}/telemetry", lambda found: len(found) == 1)
            assert reading["reportedAt"] > reading["recordedAt"]
            skew = await owner.wait_until(
                f"/events?deviceId={pump.device_id}&type=device_clock_skew", lambda page: page["data"], within_s=TIMEOUT_S
            )
            assert "ahead" in skew["data"][0]["description"]


async def test_a_person_confirms_a_step(tmp_path: Path, database: dict[str, Any]) -> None:
    clock = MachineClock(tmp_path / "clock")
    with doubting(tmp_path, clock, database) as service:
        async with service.api() as owner:
            await service.sign_in_again(owner)
            clock.step(hours=-3)
            assert "jumped 3 h back" in await wait_for_warning(service, bool)
            assert "believes it within" in await run_program(service, clock, "clock", "trust")
            await wait_for_warning(service, lambda found: found is None)
            await service.sign_in_again(owner)
            told = (await owner.get("/events?limit=200&type=clock_trusted"))["data"]
            assert "3 h back" in told[0]["description"]


async def test_a_start_far_ahead_ends_nothing_that_the_right_clock_would_not(tmp_path: Path, database: dict[str, Any]) -> None:
    clock = MachineClock(tmp_path / "clock")
    with doubting(tmp_path, clock, database) as service:
        async with service.api() as owner:
            await service.sign_in_again(owner)
            pump = await create_device(owner)
            brew = {"name": "BREW", "label": "Brew", "requiresApproval": True}
            await owner.post(f"{pump.path}/commands", brew, expect=201)
            made = await owner.post("/keys", {"name": "Brewer"}, expect=201)
            await owner.post(f"{pump.path}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]}, expect=201)
            async with service.api(**{"X-Api-Key": made["key"]}) as key:
                request = await key.post(f"{pump.path}/command", {"cmd": "BREW"}, expect=202)
            async with pump.online(service) as line:
                await line.report(t=20)
            now_ts = clock.now_ms() // 1_000
            await put_slot(owner, pump, 0, now_ts + 3_600)
            await put_slot(owner, pump, 1, now_ts + 3_600, rrule=EVERY_OTHER_MINUTE)
            before = await owner.get(f"{pump.path}/schedules")
            service.stop()

            clock.step(hours=40 * 24)
            service.start()
            assert "40 d ahead of the newest data" in await wait_for_warning(service, bool)
            await service.sign_in_again(owner)
            await owner.wait_until(f"{pump.path}/schedules", lambda found: found[1]["nextFireAt"] > before[1]["nextFireAt"])
            assert (await owner.get(f"{pump.path}/schedules"))[0] == before[0]
            approval = f"{pump.path}/approvals/{request['approvalId']}"
            assert (await owner.get(approval))["status"] == "PENDING"

            clock.step(hours=-40 * 24)
            await wait_for_warning(service, lambda found: found is None)
            await service.sign_in_again(owner)
            healed = await owner.wait_until(
                f"{pump.path}/schedules", lambda found: found[1]["nextFireAt"][:10] == before[1]["nextFireAt"][:10]
            )
            assert healed[0] == before[0]
            assert await owner.get(f"{pump.path}/schedules/history") == []
            assert (await owner.get(approval))["status"] == "PENDING"
            assert len(await owner.get(f"{pump.path}/telemetry")) == 1
