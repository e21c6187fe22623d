"""Conditional requests (RFC 9110, 13), for every operation of the document: each object has an ETag, and a change with a stale one is
refused and changes nothing."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from security.access_table import rows, target_of
from security.calls import BODIES, Ids, Targets
from security.people import People, gather
from support.in_process_app import ApiCaller, in_process_app
from support.two_instances import DATABASES, TwoInstances, two_instances

pytestmark = pytest.mark.asyncio(loop_scope="module")

STALE = '"00000000000000000000000000000000"'
OWN = {"channelId", "sessionId", "passkeyId"}
"""Of the caller alone: the objects of the table are another's."""
NO_OBJECT = {
    "POST /devices/{deviceId}/executions/cancel",
    "POST /devices/{deviceId}/rules/test",
    "POST /devices/register/bulk",
    "DELETE /auth/sessions",
    "POST /auth/step-up",
    "POST /auth/step-up/passkey-options",
    "POST /auth/password/request-otp",
    "POST /auth/password/change",
    "POST /auth/change-password",
    "POST /auth/passkeys/options",
}
"""Beside what creates: these change many things, or none that has an address."""
CHANGES = [row for row in rows() if not row.startswith("GET ") and rows()[row]["nobody"] == 401 and "#" not in row]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people() -> AsyncIterator[People]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            yield await gather(program)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def paths(people: People) -> dict[str, Any]:
    found: dict[str, Any] = (await people.app.http.get("/openapi.json")).json()["paths"]
    return {path.removeprefix("/api/v1"): methods for path, methods in found.items()}


def has_header(operation: dict[str, Any], name: str) -> bool:
    return any(one["name"] == name for one in operation.get("parameters", ()))


def object_of(row: str, paths: dict[str, Any]) -> str | None:
    """The path of the GET whose ETag the change is about."""
    method, path = target_of(row)
    if path.endswith("/schedules") and path.startswith("/devices/") and method in ("POST", "PUT"):
        return f"{path}/{{slot}}"
    while path:
        if "get" in paths.get(path, {}):
            return path if has_header(paths[path]["get"], "If-None-Match") else None
        path = path.rpartition("/")[0]
    return None


def filled(path: str, ids: Ids) -> str:
    return re.sub(r"\{(\w+)\}", lambda part: ids[part[1]], path)


async def call(caller: ApiCaller, row: str, ids: Ids, **headers: str) -> httpx.Response:
    method, path = target_of(row)
    body = BODIES[row](ids) if row in BODIES else None
    return await caller.send(
        method, filled(path, ids), body, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )


async def test_every_id_has_a_get_of_its_object(paths: dict[str, Any]) -> None:
    ends = {re.sub(r"(.*\}).*", r"\1", path) for path in paths if "{" in path}
    ends |= {path for path in paths if path.endswith("}")}
    missing = [path for path in sorted(ends) if path != "/groups/{groupId}/schedules/{slot}" and "get" not in paths.get(path, {})]
    assert missing == []


async def test_every_get_of_one_object_has_an_etag_and_answers_304(people: People, paths: dict[str, Any]) -> None:
    owner = people.callers["Owner"]
    wrong: list[str] = []
    for path, methods in paths.items():
        if not path.endswith("}") or "get" not in methods or any(f"{{{name}}}" in path for name in OWN):
            continue
        ids = await people.ours.create(f"GET {path}")
        first = await owner.send("GET", filled(path, ids))
        tag = first.headers.get("ETag", "")
        again = await owner.send("GET", filled(path, ids), headers={"If-None-Match": f'"other", W/{tag}'})
        other = await owner.send("GET", filled(path, ids), headers={"If-None-Match": STALE})
        if (first.status_code, again.status_code, again.content, again.headers.get("ETag"), other.status_code) != (
            200,
            304,
            b"",
            tag,
            200,
        ):
            wrong.append(f"GET {path}: {first.status_code} {tag} {again.status_code} {other.status_code}")
    assert wrong == []


async def test_every_change_of_one_object_is_documented_with_its_condition(paths: dict[str, Any]) -> None:
    wrong: list[str] = []
    for row in CHANGES:
        method, path = target_of(row)
        operation = paths[path][method.lower()]
        creates = "201" in operation["responses"] and object_of(row, paths) is None
        expected = not creates and row not in NO_OBJECT
        if has_header(operation, "If-Match") != expected or "412" not in operation["responses"]:
            wrong.append(row)
    assert wrong == []


async def test_a_stale_condition_changes_nothing_and_a_present_one_holds(people: People, paths: dict[str, Any]) -> None:
    owner = people.callers["Owner"]
    wrong: list[str] = []
    for row in CHANGES:
        target = object_of(row, paths)
        if target is None or any(f"{{{name}}}" in row for name in OWN):
            continue
        ids = await people.ours.create(f"{row} {target}")
        present = await owner.send("GET", filled(target, ids))
        refused = await call(owner, row, ids, If_Match=STALE)
        after = await owner.send("GET", filled(target, ids))
        if refused.status_code != 412 or refused.json()["error"] != "PRECONDITION_FAILED" or after.content != present.content:
            wrong.append(f"{row}, stale: {refused.status_code} {refused.text[:200]}")
        made = await call(owner, row, ids, If_Match=f'"other", {after.headers["ETag"]}')
        if made.status_code != rows()[row]["Owner"]:
            wrong.append(f"{row}, present: {made.status_code} {made.text[:200]}")
            continue
        if target_of(row)[0] not in ("PATCH", "PUT") or not made.is_success or target_of(row)[1] != target:
            continue
        shown = await owner.send("GET", filled(target, ids))
        if {key: value for key, value in made.json().items() if key not in ("ok", "details")} != shown.json():
            wrong.append(f"{row}: it answers {made.text[:300]}, GET {shown.text[:300]}")
        if (shown.headers["ETag"] == after.headers["ETag"]) != (shown.content == after.content):
            wrong.append(f"{row}: the ETag does not follow what is shown")
    assert wrong == []


async def test_what_is_the_callers_own_has_its_conditions_too(people: People) -> None:
    owner = people.callers["Owner"]
    telegram = {"name": "Phone", "telegram": {"botToken": "1:secret", "chatId": "2"}}
    channel = (await owner.send_ok("POST", "/auth/notifications/channels", telegram))["channelId"]
    second = await people.app.sign_in("owner@example.com")
    sessions = await second.send_ok("GET", "/auth/sessions")
    session = next(one["sessionId"] for one in sessions if one["current"])
    for path in (f"/auth/notifications/channels/{channel}", f"/auth/sessions/{session}"):
        tag = (await owner.send("GET", path)).headers["ETag"]
        assert (await owner.send("DELETE", path, headers={"If-Match": STALE})).status_code == 412
        assert (await owner.send("DELETE", path, headers={"If-Match": tag})).status_code == 200
        assert (await owner.send("GET", path)).status_code == 404


async def test_a_request_about_no_single_object_is_not_made_under_a_condition(people: People) -> None:
    owner = people.callers["Owner"]
    refused = await owner.send("POST", "/keys", {"name": "Robot"}, headers={"If-Match": STALE})
    assert (refused.status_code, refused.json()["error"]) == (412, "PRECONDITION_FAILED")
    assert (await owner.send("POST", "/keys", {"name": "Robot"}, headers={"If-Match": "*"})).status_code == 201


async def test_a_repeated_request_gets_its_answer_though_the_object_has_changed_since(people: People) -> None:
    owner = people.callers["Owner"]
    ids = await people.ours.create("POST /webhooks/{webhookId}/rotate-secret")
    path = filled("/webhooks/{webhookId}", ids)
    headers = {"If-Match": (await owner.send("GET", path)).headers["ETag"], "Idempotency-Key": "rotate once"}
    first = await owner.send("POST", f"{path}/rotate-secret", headers=headers)
    again = await owner.send("POST", f"{path}/rotate-secret", headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["secret"] == again.json()["secret"]


RACES: list[tuple[str, str, Callable[[int], Any] | None]] = [
    ("/devices/{deviceId}", "PUT", lambda number: {"name": f"Pump of {number}"}),
    ("/devices/{deviceId}", "PATCH /toggle", None),
    ("/keys/{keyId}", "PATCH", lambda number: {"name": f"Robot of {number}"}),
    ("/projects/{projectId}", "PATCH", lambda number: {"name": f"Project of race {number}"}),
    ("/members/{membershipId}", "PATCH", lambda number: {"name": f"Grace {number}"}),
    ("/groups/{groupId}", "PATCH", lambda number: {"name": f"Group of race {number}"}),
    ("/groups/{groupId}/grants/{grantId}", "PATCH", lambda number: {"rateLimitPerMinute": number + 1}),
    ("/devices/{deviceId}/grants/{grantId}", "PATCH", lambda number: {"rateLimitPerMinute": number + 1}),
    ("/devices/{deviceId}/rules/{ruleId}", "PATCH", lambda number: {"name": f"Rule {number}"}),
    ("/devices/{deviceId}/schedules/{slot}", "PUT", lambda number: {"label": f"Slot {number}"}),
    ("/devices/{deviceId}/commands/{commandId}", "PATCH", lambda number: {"label": f"Label {number}"}),
    ("/device-types/{deviceTypeId}", "PATCH", lambda number: {"name": f"Type of race {number}"}),
    ("/webhooks/{webhookId}", "PATCH", lambda number: {"url": f"http://127.0.0.1:1/{number}"}),
    ("/webhooks/{webhookId}", "POST /rotate-secret", None),
    ("/provisioning-codes/{codeId}", "DELETE", None),
]


@pytest_asyncio.fixture(params=DATABASES, loop_scope="module")
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TwoInstances]:
    async with two_instances(tmp_path, request.param) as made:
        yield made


async def test_of_many_changes_with_one_etag_one_is_made(pair: TwoInstances) -> None:
    """Over two programs, so that no lock of one process orders them."""
    key = await pair.owner.send_ok("POST", "/keys", {"name": "Requester"})
    at = Targets(pair.first, pair.owner, pair.first.caller(X_Api_Key=key["key"]), pair.account.account.account_id)
    found = [(f"{change} {target}", await race(pair, at, target, change, body)) for target, change, body in RACES]
    wrong = [each for each in found if each[1].count(200) != 1 or not set(each[1]) <= {200, 404, 412}]
    assert wrong == []


async def race(pair: TwoInstances, at: Targets, target: str, change: str, body: Callable[[int], Any] | None) -> list[int]:
    """The statuses of eight changes of a new object, all with the ETag that it has before them. 404: it is deleted."""
    path = filled(target, await at.create(f"GET {target}"))
    method, _, verb = change.partition(" ")
    tag = (await pair.owner.send("GET", path)).headers["ETag"]

    async def send(number: int) -> int:
        caller = (pair.owner, pair.owner_at_second)[number % 2]
        content = None if body is None else body(number)
        return (await caller.send(method, path + verb, content, headers={"If-Match": tag})).status_code

    return sorted(await asyncio.gather(*map(send, range(8))))
