"""Refusals name the field of the body that was sent, and say in plain words what it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from support.in_process_app import ApiCaller, in_process_app

pytestmark = pytest.mark.asyncio(loop_scope="module")
NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
SILENT = {"metric": "temperature", "comparator": "silent", "value": 60}
SLOT = {"slot": 0, "onTs": 4_000_000_000, "offTs": 4_000_003_600}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiCaller]:
    async with in_process_app(tmp_path_factory.mktemp("messages")) as program:
        await program.create_account("owner@example.com")
        yield await program.sign_in("owner@example.com")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def device(owner: ApiCaller) -> str:
    answer = await owner.send("POST", "/devices/register", NEW)
    return f"/devices/{answer.json()['deviceId']}"


def rule(**fields: Any) -> dict[str, Any]:
    return {"name": "Warm", "conditions": [SILENT], "action": {"command": "OFF"}} | fields


@pytest.mark.parametrize(
    ("path", "body", "field", "message"),
    [
        ("/command", {"cmd": "ON", "target": "x"}, "target", "must be null."),
        ("/schedules", SLOT | {"label": "x" * 65}, "label", "must have at most 64 characters."),
        ("/rules", rule(conditions=[SILENT] * 11), "conditions", "must have at most 10 items."),
        ("/rules", rule(conditions=[]), "conditions", "must have at least 1 item."),
        ("/rules", rule(conditions=[SILENT | {"value": None}]), "conditions.0.value", "must be a number or text."),
        ("/rules", rule(conditions=[SILENT | {"value": "x" * 257}]), "conditions.0.value", "must have at most 256 characters."),
        (
            "/rules/rul_00000000000000000000/test",
            {"readings": {"float": None}},
            "readings.float",
            "must be true or false, a number or text.",
        ),
        ("/schedules", SLOT | {"onCommand": {"command": "FLY"}}, "onCommand.command", "is not a command of this device."),
    ],
)
async def test_the_field_that_was_sent_is_named_with_what_it_takes(
    owner: ApiCaller, device: str, path: str, body: dict[str, Any], field: str, message: str
) -> None:
    answer = await owner.send("POST", device + path, body)
    assert answer.status_code == 400, answer.text
    assert {fault["field"]: fault["message"] for fault in answer.json()["details"]}[field] == message


async def test_a_device_without_credentials_cannot_be_disabled_and_the_refusal_says_what_to_do(
    owner: ApiCaller, device: str
) -> None:
    answer = await owner.send("PATCH", f"{device}/toggle")
    assert (answer.status_code, answer.json()["error"]) == (409, "DEVICE_STATE")
    assert answer.json()["message"] == "This is not possible while the device is PENDING. Generate credentials first."
