"""`latchboard demo`: ten simulated devices, two rules and a schedule."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from support.service import Service

TIMEOUT_S = 60


class DemoService(Service):
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
            result = await owner.post(f"{paths['Gate']}/command", {"cmd": "ON", "waitSeconds": 10})
            assert result["status"] == "DONE"
        assert service.stop() < 5
        assert service.error_lines() == []
