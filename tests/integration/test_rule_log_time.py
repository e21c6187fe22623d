"""A rule that is made in the moment in which its device speaks again: nothing fires at a time before there was the rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.in_process_app import ApiCaller, InProcessApp, in_process_app

QUIET = {"metric": "beat", "comparator": "silent", "value": 60}


async def _silent_device(app: InProcessApp) -> tuple[ApiCaller, str]:
    await app.create_account("ada@example.com")
    ada = await app.sign_in("ada@example.com")
    registered = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
    device_id: str = (await ada.send_ok("POST", "/devices/register", registered))["deviceId"]
    await ada.send_ok("POST", f"/devices/{device_id}/credentials")
    await app.report(device_id, beat=1)
    app.clock.forward(minutes=10)
    return ada, device_id


async def _matches(ada: ApiCaller, device_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await ada.send_ok("GET", f"/events?deviceId={device_id}&type=rule_matched"))["data"]
    return found


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("change", ["made", "switched on", "changed"])
async def test_a_silence_of_before_counts_from_the_rule(tmp_path: Path, engine: str, change: str) -> None:
    async with in_process_app(tmp_path, engine=engine) as app:
        ada, device_id = await _silent_device(app)
        wanted = {"name": "Quiet", "conditions": [QUIET], "action": {"command": "OFF"}}
        if change == "made":
            await ada.send_ok("POST", f"/devices/{device_id}/rules", wanted)
        else:
            first = {"switched on": {"enabled": False}, "changed": {"conditions": [QUIET | {"value": 3_600}]}}[change]
            rule = await ada.send_ok("POST", f"/devices/{device_id}/rules", wanted | first)
            app.clock.forward(minutes=1)
            after = {"switched on": {"enabled": True}, "changed": {"conditions": [QUIET]}}[change]
            await ada.send_ok("PATCH", f"/devices/{device_id}/rules/{rule['ruleId']}", after)
        since_ms = app.clock.now_ms()
        app.clock.forward(ms=50)
        await app.report(device_id, beat=2)
        [match] = await _matches(ada, device_id)
        assert match["timestamp"] == since_ms
