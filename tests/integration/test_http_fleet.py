"""The fleet as a file over HTTP: plan, apply, export, prune; who may; and where an error is."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.team.operator_accounts import CreatedAccount
from support.in_process_app import RECEIVER_URL, ApiCaller, InProcessApp, in_process_app

SOON_S = 1_800_003_600
EVERY_DAY = {"slot": 0, "onTs": SOON_S, "offTs": SOON_S + 600, "rrule": "FREQ=DAILY", "timezone": "Europe/Berlin"}
HOT = {
    "name": "Too hot",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
    "forSeconds": 60,
}
LEVEL = {"name": "SET_LEVEL", "label": "Level", "paramsSchema": {"type": "integer"}, "requiresApproval": True}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "projects": [{"name": "Default"}, {"name": "Greenhouse"}],
    "deviceTypes": [{"name": "Pump", "commands": [LEVEL]}],
    "devices": [
        {
            "externalId": "pump-1",
            "name": "Pump 1",
            "boardType": "ESP32",
            "appType": "PUMP",
            "project": "Greenhouse",
            "deviceType": "Pump",
            "tags": ["north"],
            "commands": [{"name": "BLINK", "label": "Blink"}],
            "schedules": [EVERY_DAY],
        },
        {"externalId": "pump-2", "name": "Pump 2", "boardType": "ESP32", "appType": "PUMP", "project": "Greenhouse"},
    ],
    "groups": [{"name": "Pumps", "project": "Greenhouse", "devices": ["pump-1", "pump-2"]}],
    "apiKeys": [{"name": "nightly"}],
    "grants": [
        {"apiKey": "nightly", "group": "Pumps", "project": "Greenhouse", "commands": ["ON", "OFF"]},
        {"apiKey": "nightly", "project": "Greenhouse", "commands": ["*"], "scope": "READ"},
        {"apiKey": "nightly", "device": "pump-1", "commands": ["BLINK"], "expiresAt": "2028-01-01T00:00:00.000Z"},
        {"member": "ada@example.com", "device": "pump-2", "commands": ["*"], "rateLimitPerMinute": 5},
    ],
    "webhooks": [{"apiKey": "nightly", "url": RECEIVER_URL, "types": ["relay_changed"]}],
}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        yield program


@pytest.fixture
async def account(app: InProcessApp) -> CreatedAccount:
    return await app.create_account("ada@example.com")


@pytest.fixture
async def ada(app: InProcessApp, account: CreatedAccount) -> ApiCaller:
    return await app.sign_in("ada@example.com")


async def fleet(caller: ApiCaller, step: str, document: Any, **options: Any) -> Any:
    return await caller.send_ok("POST", f"/fleet/{step}", {"document": document, **options})


async def refusal(caller: ApiCaller, document: Any, *, step: str = "plan", **options: Any) -> tuple[str, list[str]]:
    answer = await caller.send("POST", f"/fleet/{step}", {"document": document, **options})
    assert answer.is_error, answer.text
    body = answer.json()
    return body["error"], [each["field"] for each in body.get("details", ())]


def shown(planned: Any) -> list[tuple[Any, ...]]:
    """(action, section, name, changed fields) of each object."""
    return [
        (each["action"], each["section"], each["name"], *(change["field"] for change in each["changes"]))
        for each in planned["objects"]
    ]


def changed(**sections: Any) -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT) | sections


async def test_a_plan_changes_nothing_and_an_apply_does_what_it_said_once(app: InProcessApp, ada: ApiCaller) -> None:
    planned = await fleet(ada, "plan", DOCUMENT)
    assert planned["counts"] == {"create": 13, "change": 0, "delete": 0, "unchanged": 1}
    assert await ada.send_ok("GET", "/devices") == []
    assert len(await ada.send_ok("GET", "/projects")) == 1

    applied = await fleet(ada, "apply", DOCUMENT, credentials="NEW")
    assert shown(applied)[0] == ("CREATE", "projects", "Greenhouse")
    assert applied["counts"]["create"] == 13
    secrets = [each["secret"] for each in applied["objects"] if each["secret"]]
    assert [secret.partition("_")[0] for secret in secrets] == ["sk", "whsec"]
    assert len({each["credentials"]["mqttPassword"] for each in applied["objects"] if each["credentials"]}) == 2
    assert [each["name"] for each in await ada.send_ok("GET", "/devices")] == ["Pump 1", "Pump 2"]

    again = await fleet(ada, "apply", DOCUMENT, credentials="NEW")
    assert again == {"counts": {"create": 0, "change": 0, "delete": 0, "unchanged": 14}, "objects": []}


async def test_an_export_planned_again_changes_nothing(app: InProcessApp, ada: ApiCaller) -> None:
    await fleet(ada, "apply", DOCUMENT)
    exported = await ada.send_ok("GET", "/fleet")
    assert exported["leftOut"] == []
    planned = await fleet(ada, "plan", exported["document"], prune=True)
    assert planned["objects"] == []
    for section in DOCUMENT.keys() - {"version", "devices"}:
        assert len(exported["document"][section]) == len(DOCUMENT[section])
    first = exported["document"]["devices"][0]
    assert first == DOCUMENT["devices"][0] | {"profile": "native"}
