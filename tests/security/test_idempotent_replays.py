"""A stored response is given again to whoever may make the request at that moment, and to nobody else; and it is on record.

For every operation of the document that takes an `Idempotency-Key`.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from security.access_table import operation_of, rows
from security.calls import BODIES, Ids
from security.people import ALL, People, a_key, gather
from support.http import PASSWORD
from support.in_process_app import ApiCaller, in_process_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = rows()
OWN = "POST /auth/notifications/channels"
"""A member's own channels: every role may make one."""
WITHDRAWAL = "POST /devices/{deviceId}/approvals/{approvalId}/withdraw"
"""Only who asked may, whatever the role."""
GROUP_ACTIONS = ["POST /groups/{groupId}/command", "POST /groups/{groupId}/schedules", "POST /groups/{groupId}/rules"]
HIDING = [
    "POST /devices/{deviceId}/command",
    "POST /devices/{deviceId}/schedules",
    "POST /devices/{deviceId}/rules",
    *GROUP_ACTIONS,
]
BLINKING = {"schedules": {"onCommand": {"command": "BLINK"}}, "rules": {"action": {"command": "BLINK"}}}
BY_KEY = [row for row in ROWS if row.startswith("POST /devices/{deviceId}/command") and ROWS[row]["keyW"] < 300]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people() -> AsyncIterator[People]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            yield await gather(program)


async def idempotent_rows(people: People) -> list[str]:
    paths: Any = (await people.app.http.get("/openapi.json")).json()["paths"]
    found = []
    for row in ROWS:
        method, path = operation_of(row)
        parameters = paths[f"/api/v1{path}"][method.lower()].get("parameters", [])
        if any(one["name"] == "Idempotency-Key" for one in parameters):
            found.append(row)
    return found


async def send(people: People, caller: ApiCaller, row: str, ids: Ids, body: Any) -> httpx.Response:
    method, path = operation_of(row)
    return await caller.send(method, path.format(**ids), body, headers={"Idempotency-Key": row})


async def a_member(people: People, role: str) -> tuple[ApiCaller, str]:
    email = f"victim{people.ours.number()}@example.com"
    new = {"email": email, "name": "Grace", "role": role, "password": PASSWORD}
    made = await people.callers["Owner"].send_ok("POST", "/members", new)
    return await people.app.sign_in(email), made["membershipId"]


async def test_a_demoted_member_gets_no_stored_response_and_a_reinstated_one_does(people: People) -> None:
    rows = [row for row in await idempotent_rows(people) if row not in (OWN, WITHDRAWAL)]
    assert len(rows) >= 30
    wrong: list[str] = []
    owner = people.callers["Owner"]
    for row in rows:
        ids = await people.ours.create(row)
        body = BODIES[row](ids) if row in BODIES else None
        caller, membership_id = await a_member(people, "Owner")
        first = await send(people, caller, row, ids, body)
        if not first.is_success:
            wrong.append(f"{row}: {first.status_code} {first.text[:120]}")
        for role in roles_that_may_not(row):
            await owner.send_ok("PATCH", f"/members/{membership_id}", {"role": role})
            denied = await send(people, caller, row, ids, body)
            code = denied.json().get("error")
            by_grant = "#query" in row or (role == "Member" and ROWS[row]["Member+"] < 300)  # a Viewer may send a QUERY as well
            if (denied.status_code, code) != (403, "GRANT_MISSING" if by_grant else "ROLE_REQUIRED"):
                wrong.append(f"{row} as {role}: {denied.status_code} {denied.text[:120]}")
        await owner.send_ok("PATCH", f"/members/{membership_id}", {"role": "Owner"})
        again = await send(people, caller, row, ids, body)
        event = (await owner.send_ok("GET", "/events?limit=1"))["data"][0]["eventType"]
        same = (again.status_code, again.content) == (first.status_code, first.content)
        if not same or "Idempotency-Replayed" not in again.headers:
            wrong.append(f"{row}: {first.text[:120]}, again {again.status_code} {again.text[:120]}")
        if event != "response_replayed":
            wrong.append(f"{row}: the log ends with {event}")
    assert wrong == []


def roles_that_may_not(row: str) -> list[str]:
    """Of a group, each device is decided on its own: the call is accepted, and its report says what it refuses."""
    if row in GROUP_ACTIONS:
        return ["Member", "Viewer"]
    return [role for role in ("Admin", "Member", "Viewer") if ROWS[row][role] == 403]


@pytest.mark.parametrize("row", HIDING)
async def test_no_state_of_the_device_hides_that_a_grant_is_gone(people: People, row: str) -> None:
    """Its command is no longer defined, it is disabled, or the rule is there: neither gives the response to who lost the grant."""
    owner = people.callers["Owner"]
    ids = await people.ours.create("/{deviceId} /{groupId} /{metric}")
    path = f"/devices/{ids['deviceId']}"
    await owner.send_ok(
        "PATCH", f"/groups/{ids['groupId']}/devices", {"add": [ids["deviceId"]], "remove": await members(owner, ids)}
    )
    guarded = await owner.send_ok("POST", f"{path}/commands", {"name": "BLINK", "label": "Blink"})
    body = {"cmd": "BLINK"} if "command" in row else BODIES[row](ids) | BLINKING[row.rpartition("/")[2]]
    caller, membership_id = await a_member(people, "Member")
    grant = await owner.send_ok("POST", f"{path}/grants", ALL | {"membershipId": membership_id})
    first = await send(people, caller, row, ids, body)
    assert first.is_success, first.text
    await owner.send_ok("DELETE", f"{path}/commands/{guarded['commandId']}")
    await owner.send_ok("PATCH", f"{path}/toggle")
    again = await send(people, caller, row, ids, body)
    assert (again.content, again.headers["Idempotency-Replayed"]) == (first.content, "true")
    await owner.send_ok("DELETE", f"{path}/grants/{grant['grantId']}")
    denied = await send(people, caller, row, ids, body)
    assert (denied.status_code, denied.json()["error"]) == (403, "GRANT_MISSING")


async def members(owner: ApiCaller, ids: Ids) -> list[str]:
    return [each["deviceId"] for each in (await owner.send_ok("GET", f"/groups/{ids['groupId']}"))["devices"]]


async def test_a_report_on_a_group_is_given_to_who_may_send_to_each_device_that_it_names(people: People) -> None:
    """A key has a grant on each of two devices; one of them leaves the group, loses its grant, and is deleted."""
    owner = people.callers["Owner"]
    row = "POST /groups/{groupId}/command"
    ids = await people.ours.create("/{groupId} /{deviceId}")
    [stays] = await members(owner, ids)
    joined = ids["deviceId"]
    await owner.send_ok("PATCH", f"/groups/{ids['groupId']}/devices", {"add": [joined]})
    caller, key_id = await a_key(owner)
    grants = [
        await owner.send_ok("POST", f"/devices/{each}/grants", {"commands": ["ON"], "apiKeyId": key_id})
        for each in (stays, joined)
    ]
    first = await send(people, caller, row, ids, {"cmd": "ON"})
    assert first.json()["queued"] == 2

    await owner.send_ok("PATCH", f"/groups/{ids['groupId']}/devices", {"remove": [joined]})
    again = await send(people, caller, row, ids, {"cmd": "ON"})
    assert again.content == first.content, "it has its grant on the device that left"
    await owner.send_ok("DELETE", f"/devices/{joined}/grants/{grants[1]['grantId']}")
    assert (await send(people, caller, row, ids, {"cmd": "ON"})).json()["error"] == "GRANT_MISSING"
    await owner.send_ok("DELETE", f"/devices/{joined}")
    assert (await send(people, caller, row, ids, {"cmd": "ON"})).status_code == 404


async def test_a_report_of_refusals_is_given_again(people: People) -> None:
    """The first answer refused a member each device: the retry gets the same answer, not another status."""
    row = "POST /groups/{groupId}/command"
    ids = await people.ours.create(row)
    caller, _ = await a_member(people, "Member")
    first = await send(people, caller, row, ids, {"cmd": "ON"})
    assert first.json()["refused"] == 1
    again = await send(people, caller, row, ids, {"cmd": "ON"})
    assert (again.status_code, again.content) == (200, first.content)


async def test_a_key_without_its_grant_gets_no_stored_response(people: People) -> None:
    owner = people.callers["Owner"]
    wrong: list[str] = []
    for row in BY_KEY:
        ids = await people.ours.create(row)
        body = BODIES[row](ids) if row in BODIES else None
        caller, key_id = await a_key(owner)
        grants = f"/devices/{ids['deviceId']}/grants"
        limited = ALL | {"apiKeyId": key_id, "rateLimitPerMinute": 1}
        grant = await owner.send_ok("POST", grants, limited)
        first = await send(people, caller, row, ids, body)
        again = await send(people, caller, row, ids, body)  # counts nothing, and needs no use of the limit
        await owner.send_ok("DELETE", f"{grants}/{grant['grantId']}")
        denied = await send(people, caller, row, ids, body)
        if not first.is_success or again.content != first.content or denied.json()["error"] != "GRANT_MISSING":
            wrong.append(f"{row}: {first.status_code}, {again.status_code}, {denied.status_code} {denied.text[:120]}")
    assert wrong == []


async def test_a_replay_changes_nothing_else(people: People) -> None:
    """The command is not sent again, and nothing waits twice for approval."""
    row = "POST /devices/{deviceId}/command"
    ids = await people.ours.create(row)
    path = f"/devices/{ids['deviceId']}"
    for _ in range(3):
        answer = await send(people, people.callers["Owner"], row, ids, {"cmd": "ON"})
        assert answer.is_success, answer.text
    assert len((await people.callers["Owner"].send_ok("GET", f"{path}/executions"))["data"]) == 1
    await people.callers["Owner"].send_ok("PATCH", f"{path}/toggle")
    answer = await send(people, people.callers["Owner"], row, ids, {"cmd": "ON"})
    assert "Idempotency-Replayed" in answer.headers, "a disabled device says nothing about who asks"
