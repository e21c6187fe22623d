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
    # What a Viewer may call as well: his own channels, and the report on a group's devices, whose executions he may read.
    chosen = [row for row in await idempotent_rows(people) if ROWS[row]["Viewer"] == 403]
    assert len(chosen) >= 19
    wrong: list[str] = []
    owner = people.callers["Owner"]
    for row in chosen:
        ids = await people.ours.create(row)
        body = BODIES[row](ids) if row in BODIES else None
        caller, membership_id = await a_member(people, "Owner")
        first = await send(people, caller, row, ids, body)
        await owner.send_ok("PATCH", f"/members/{membership_id}", {"role": "Viewer"})
        denied = await send(people, caller, row, ids, body)
        await owner.send_ok("PATCH", f"/members/{membership_id}", {"role": "Owner"})
        again = await send(people, caller, row, ids, body)
        event = (await owner.send_ok("GET", "/events?limit=1"))["data"][0]["eventType"]
        law = "GRANT_MISSING" if "#query" in row else "ROLE_REQUIRED"  # a Viewer may send a QUERY where it is granted
        if not first.is_success or (denied.status_code, denied.json().get("error")) != (403, law):
            wrong.append(f"{row}: {first.status_code}, then {denied.status_code} {denied.text[:120]}")
        if (again.status_code, again.content) != (
            first.status_code,
            first.content,
        ) or "Idempotency-Replayed" not in again.headers:
            wrong.append(f"{row}: {first.text[:120]}, again {again.status_code} {again.text[:120]}")
        if event != "response_replayed":
            wrong.append(f"{row}: the log ends with {event}")
    assert wrong == []


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
