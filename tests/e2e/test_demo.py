"""`latchboard demo`: ten simulated devices, two rules and a schedule."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from support.service import PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S


class DemoService(Service):
    starts_on_nothing = True

    def launch(self, *_: str) -> Any:
        return super().launch("demo")


async def test_the_demo_runs_ten_devices_that_report_and_carry_out_commands(tmp_path: Path) -> None:
    with DemoService(tmp_path) as service:
        async with service.api() as owner, asyncio.timeout(TIMEOUT_S):
            while len(devices := [one for one in await owner.get("/devices") if one["isOnline"]]) < 10:
                await asyncio.sleep(0.2)
            paths = {device["name"]: f"/devices/{device['deviceId']}" for device in devices}
            for path in paths.values():
                while not await owner.get(f"{path}/telemetry?metric=temperature&limit=1"):
                    await asyncio.sleep(0.2)
            while len(await owner.get(f"{paths['Greenhouse pump']}/rules")) < 2:
                await asyncio.sleep(0.2)
            while not await owner.get(f"{paths['Yard light']}/schedules"):
                await asyncio.sleep(0.2)
            await assert_it_shows_what_is_special(service, owner, paths)
            result = await owner.post(f"{paths['Gate']}/command", {"cmd": "ON", "waitSeconds": 30})
            assert result["status"] == "DONE"
            await assert_its_board_has_channels(owner, paths["Greenhouse board"])
        service.stop()
        assert service.error_lines() == []


async def assert_it_shows_what_is_special(service: Service, owner: ApiClient, paths: dict[str, str]) -> None:
    await owner.wait_until("/members", lambda members: len(members) == 2)  # the last thing that is made
    [waiting] = await owner.get("/approvals?status=PENDING")
    assert (waiting["cmd"], waiting["params"]) == ("OPEN", {"seconds": 60})
    names = sorted(key["name"] for key in await owner.get("/keys"))
    assert names == ["Delivery robot", "Evening light", "Irrigation bot"]
    assert {project["name"]: project["deviceCount"] for project in await owner.get("/projects")} == {"House": 8, "Greenhouse": 2}
    [daily] = await owner.get(f"{paths['Greenhouse pump']}/schedules")
    assert (daily["label"], daily["rrule"]) == ("Watering", "FREQ=DAILY")
    day_ago = int(time.time() * 1000) - 86_400_000
    early = await owner.get(
        f"{paths['Boiler']}/telemetry?metric=temperature&limit=1000&since={day_ago}&until={day_ago + 43_200_000}"
    )
    assert len(early) > 60, "the first half of the day before"
    signed_in = await owner.post("/auth/login", {"email": "viewer@latchboard.local", "password": PASSWORD})
    async with service.api(Authorization=f"Bearer {signed_in['accessToken']}") as viewer:
        assert (await viewer.get("/auth/me"))["role"] == "Viewer"
        await viewer.post(f"{paths['Gate']}/command", {"cmd": "ON"}, expect=403)


async def assert_its_board_has_channels(owner: ApiClient, board: str) -> None:
    channels = (await owner.get(board))["channels"]
    assert [(each["kind"], each["name"]) for each in channels] == [
        ("RELAY", "Pump"), ("LEVEL", "Light"), ("COVER", "Vent"), ("INPUT", "Door button"),
    ]  # fmt: skip
    wanted = (
        (2, "SET_LEVEL", {"level": 40}, {"power": "ON", "level": 40}),
        (3, "SET_POSITION", {"position": 30}, {"position": 30, "moving": None}),
    )
    for channel, cmd, params, state in wanted:
        body = {"cmd": cmd, "channel": channel, "params": params, "waitSeconds": 30}
        assert (await owner.post(f"{board}/command", body))["status"] == "DONE"
        assert (await owner.get(board))["channels"][channel - 1]["state"] == state
    [rule] = await owner.wait_until(f"{board}/rules", lambda rules: rules)
    assert (rule["action"]["command"], rule["action"]["channel"]) == ("TOGGLE", 2)
