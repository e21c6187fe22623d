"""An id of another account in a body or query is treated as unknown."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from security.calls import MAKERS, Ids
from security.people import People, gather
from security.test_access_matrix import made_up, story
from support.in_process_app import in_process_app

Named = tuple[str, str, Callable[[Ids, Ids], Any]]

# The kind of our object that is named, the call on Eve's own device, and its body from (her ids, ours).
REFERENCES: list[Named] = [
    ("projectId", "POST /devices/register", lambda own, ids: {"name": "P", "boardType": "B", "appType": "A", **ids}),
    ("deviceTypeId", "POST /devices/register", lambda own, ids: {"name": "P", "boardType": "B", "appType": "A", **ids}),
    ("projectId", "PUT /devices/{deviceId}", lambda own, ids: ids),
    ("deviceTypeId", "PUT /devices/{deviceId}", lambda own, ids: ids),
    ("keyId", "POST /devices/{deviceId}/grants", lambda own, ids: {"commands": ["ON"], "apiKeyId": ids["keyId"]}),
    ("membershipId", "POST /devices/{deviceId}/grants", lambda own, ids: {"commands": ["ON"], **ids}),
    ("keyId", "GET /devices/{deviceId}/access?cmd=ON&apiKeyId={keyId}", lambda own, ids: None),
    ("membershipId", "GET /devices/{deviceId}/access?cmd=ON&membershipId={membershipId}", lambda own, ids: None),
    ("projectId", "GET /devices?projectId={projectId}", lambda own, ids: None),
    ("deviceId", "GET /events?deviceId={deviceId}", lambda own, ids: None),
    ("deviceId", "GET /events?type=telemetry&deviceId={deviceId}", lambda own, ids: None),
    ("keyId", "POST /webhooks", lambda own, ids: {"keyId": ids["keyId"], "url": "http://127.0.0.1:9/"}),
]


@pytest.fixture
async def people() -> AsyncIterator[People]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            yield await gather(program)


async def test_a_reference_into_another_account_is_not_found(people: People) -> None:
    eve = people.callers["other"]
    wrong: list[str] = []
    for name, template, body in REFERENCES:
        own = await people.theirs.create("/devices/{deviceId}")
        ours: Ids = await MAKERS[name](people.ours, {})
        reported = []
        for ids in (ours, made_up("", ours)):
            method, path = template.format(**(own | ids)).split(" ", 1)
            status, text, *more = story(await eve.send(method, path, body(own, ids)), own | ids)
            text = re.sub(r'"cursor":"[^"]*"', "", text)  # made of the request alone, with the id in it
            reported.append((status, text, *more))
        if reported[0] != reported[1]:
            wrong.append(f"{template} {name}: {reported[0]} against {reported[1]}")
        if reported[0][0] < 300 and not template.startswith("GET"):
            wrong.append(f"{template} took a {name} of another account")
    assert wrong == []


async def test_a_cursor_of_one_account_opens_nothing_of_another(people: People) -> None:
    ours = await people.ours.create("/devices/{deviceId}/executions/{executionId}")
    owner, eve = people.callers["Owner"], people.callers["other"]
    cursor = (await owner.send_ok("GET", "/events?limit=1"))["cursor"]
    seen = await eve.send_ok("GET", f"/events?limit=200&cursor={cursor}")
    assert [event for event in seen["data"] if event["deviceId"] == ours["deviceId"]] == []


async def test_lists_of_one_account_hold_nothing_of_another(people: People) -> None:
    await people.ours.create("/devices/{deviceId}/approvals/{approvalId}")
    await people.ours.create("/webhooks/{webhookId}/deliveries/{deliveryId}")
    owner, eve = people.callers["Owner"], people.callers["other"]
    for path in ("/members", "/projects", "/keys", "/devices", "/device-types", "/approvals", "/events?limit=200", "/webhooks"):
        ours = await owner.send_ok("GET", path)
        for one in ours["data"] if isinstance(ours, dict) else ours:
            name = next(iter(one.values()))
            assert name not in (await eve.send("GET", path)).text, path
