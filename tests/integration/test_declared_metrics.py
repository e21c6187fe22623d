"""Metrics that are made known before the device reports them: rules may name them, and nobody else's device gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.rules.service import MAX_METRICS_PER_DEVICE
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

DEVICE = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
DRY = {"name": "Dry", "conditions": [{"metric": "moisture", "comparator": "<", "value": 20}], "action": {"command": "ON"}}


@pytest.fixture(params=DATABASES)
async def app(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[InProcessApp]:
    chosen = {"database_url": await empty_postgres(), "secret_keys": KEY_RING} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        yield program


async def device_path(caller: ApiCaller) -> str:
    return f"/devices/{(await caller.send_ok('POST', '/devices/register', DEVICE))['deviceId']}"


async def code(caller: ApiCaller, path: str, body: Any) -> Any:
    answer = await caller.send("POST", path, body)
    return answer.status_code if answer.is_success else answer.json()["error"]


async def test_a_rule_names_a_metric_that_was_made_known(app: InProcessApp) -> None:
    account = await app.create_account("ada@example.com")
    ada = await app.sign_in("ada@example.com")
    path, other = await device_path(ada), await device_path(ada)
    refused = (await ada.send("POST", f"{path}/rules", DRY)).json()
    assert refused["error"] == "UNKNOWN_METRIC"
    assert "POST /devices/{deviceId}/metrics" in refused["message"]
    for names in (["moisture", "rssi"], ["moisture"]):
        known = await ada.send_ok("POST", f"{path}/metrics", {"metrics": names})
        assert known == {"metrics": ["moisture", "rssi"]}
    assert (await ada.send_ok("GET", f"{path}/rules/context"))["metrics"] == ["moisture", "rssi"]
    assert await code(ada, f"{path}/rules", DRY) == 201
    assert await code(ada, f"{other}/rules", DRY) == "UNKNOWN_METRIC"
    log = [each["description"] for each in (await ada.send_ok("GET", "/events"))["data"]]
    assert log.count("Metrics made known: moisture, rssi") == 1

    await app.create_member(account, "bob@example.com", Role.VIEWER)
    bob = await app.sign_in("bob@example.com")
    assert await code(bob, f"{path}/metrics", {"metrics": ["depth"]}) == "ROLE_REQUIRED"
    many = [f"m{number}" for number in range(MAX_METRICS_PER_DEVICE - 1)]
    assert await code(ada, f"{path}/metrics", {"metrics": many}) == "VALIDATION_ERROR"
    assert await code(ada, f"{path}/metrics", {"metrics": many[:-1]}) == 200


async def test_a_rule_on_a_metric_that_was_never_reported_waits_and_starts_with_the_first_report(app: InProcessApp) -> None:
    await app.create_account("ada@example.com")
    ada = await app.sign_in("ada@example.com")
    path = await device_path(ada)
    device_id = path.rpartition("/")[2]
    await ada.send_ok("POST", f"{path}/credentials")
    await ada.send_ok("POST", f"{path}/metrics", {"metrics": ["moisture", "depth"]})
    made = await ada.send_ok("POST", f"{path}/rules", DRY)
    assert (made["enabled"], made["waitsFor"]) == (False, ["moisture"])
    depth = {"metric": "depth", "comparator": "silent", "value": 60}
    both = await ada.send_ok("POST", f"{path}/rules", DRY | {"name": "Both", "conditions": [*DRY["conditions"], depth]})
    assert both["waitsFor"] == ["depth", "moisture"]
    either = await ada.send_ok("POST", f"{path}/rules", DRY | {"name": "Any", "match": "ANY", "conditions": both["conditions"]})
    assert (either["enabled"], either["waitsFor"]) == (False, ["depth", "moisture"])
    off = await ada.send_ok("PATCH", f"{path}/rules/{either['ruleId']}", {"enabled": False})
    assert (off["enabled"], off["waitsFor"]) == (False, [])  # its owner does not want it, whatever is reported
    on = await ada.send_ok("PATCH", f"{path}/rules/{either['ruleId']}", {"enabled": True})
    assert on["waitsFor"] == ["depth", "moisture"]

    await app.report(device_id, moisture=10)
    shown = {rule["name"]: rule for rule in await ada.send_ok("GET", f"{path}/rules")}
    assert {name: (rule["enabled"], rule["waitsFor"]) for name, rule in shown.items()} == {
        "Dry": (True, []),
        "Both": (False, ["depth"]),
        "Any": (True, []),
    }
    assert {name for name, rule in shown.items() if rule["lastMatched"]} == {"Dry", "Any"}
