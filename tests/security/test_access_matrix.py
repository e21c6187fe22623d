"""Each operation accepts exactly the callers that the table names, in the composed program with real SQLite.

Callers that must be refused come first and change nothing, so they share objects. Each accepted caller gets new objects.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.randomness import RandomIdAndSecretGenerator
from security.access_table import OUTSIDE, operation_of, rows, target_of
from security.calls import BODIES, PREFIXES, Ids
from security.people import People, gather
from support.in_process_app import ApiCaller, in_process_app

ROWS = rows()
OF_ONES_OWN = {
    "POST /auth/password/change": "PASSWORD_MISMATCH",
    "POST /auth/step-up": "PASSWORD_MISMATCH",
    "POST /devices/{deviceId}/executions/{executionId}/cancel": "COMMAND_NOT_GRANTED",
    "POST /devices/{deviceId}/approvals/{approvalId}/withdraw": "NOT_OWN_REQUEST",
}
"""Every role may; what is wrong is in the body, or the command or request is not the caller's own."""
SOURCE_OF_IDS = RandomIdAndSecretGenerator()


@pytest.fixture
async def people() -> AsyncIterator[People]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            yield await gather(program)


async def document(people: People) -> dict[str, Any]:
    found: dict[str, Any] = (await people.app.http.get("/openapi.json")).json()
    return found


async def call(caller: ApiCaller, row: str, ids: Ids) -> httpx.Response:
    method, path = target_of(row)
    path = re.sub(r"\{(\w+)\}", lambda part: ids[part[1]], path)
    return await caller.send(method, path, BODIES[row](ids) if row in BODIES else None)


async def test_the_table_has_a_row_for_every_operation_and_no_other(people: People) -> None:
    paths = (await document(people))["paths"]
    found = {f"{method.upper()} {path.removeprefix('/api/v1')}" for path, methods in paths.items() for method in methods}
    assert found == {" ".join(operation_of(row)) for row in ROWS}


async def test_every_route_is_an_operation_or_a_listed_exception(people: People) -> None:
    app = people.app.program.http_app
    bare = {rule.rule for rule in app.url_map.iter_rules() if not hasattr(app.view_functions[rule.endpoint], "operation")}
    assert bare == set(OUTSIDE.split())


async def test_every_cell_of_the_table_holds(people: People) -> None:
    wrong: list[str] = []
    for row, expected in ROWS.items():
        columns = sorted(expected, key=lambda column: -expected[column])
        ids = await people.ours.create(row)
        for column in columns:
            caller = people.app.caller() if column == "nobody" else people.callers[column]
            answer = await call(caller, row, ids)
            if answer.status_code != expected[column]:
                wrong.append(f"{row} as {column}: {answer.status_code}, not {expected[column]}: {answer.text[:200]}")
            if answer.is_success:
                ids = await people.ours.create(row)
    assert wrong == []


async def test_a_denial_names_its_reason(people: People) -> None:
    access = {
        f"{method.upper()} {path.removeprefix('/api/v1')}": operation["x-caller"]
        for path, methods in (await document(people))["paths"].items()
        for method, operation in methods.items()
    }
    wrong: list[str] = []
    for row, expected in ROWS.items():
        ids = await people.ours.create(row)
        for column in (column for column, status in expected.items() if status in (401, 403, 404)):
            caller = people.app.caller() if column == "nobody" else people.callers[column]
            code = (await call(caller, row, ids)).json()["error"]
            if code == OF_ONES_OWN.get(row):
                continue
            hidden = expected[column] == 404  # what a caller may not know of does not exist for it
            if code not in ({"NOT_FOUND"} if hidden else _codes(column, access[" ".join(operation_of(row))])):
                wrong.append(f"{row} as {column}: {code}")
    assert wrong == []


def _codes(column: str, access: str) -> set[str]:
    if column == "nobody":
        return {"UNAUTHENTICATED"}
    if column == "other":
        return {"NOT_FOUND"}
    if column.startswith("key"):
        return {"SESSION_REQUIRED"} if access == "session" else {"GRANT_MISSING", "SCOPE_TOO_NARROW"}
    return {"ROLE_REQUIRED"} if column == "Admin" else {"ROLE_REQUIRED", "GRANT_MISSING"}


async def test_invalid_credentials_are_unauthenticated(people: People) -> None:
    wrong: list[str] = []
    for row, expected in ROWS.items():
        ids = await people.ours.create(row)
        for name, stranger in people.strangers.items():
            answer = await call(stranger, row, ids)
            if expected["nobody"] == 401:
                right = answer.status_code == 401 and answer.json()["error"] in ("UNAUTHENTICATED", "TOKEN_EXPIRED")
            else:
                right = answer.status_code == expected["nobody"]
                ids = await people.ours.create(row)
            if not right:
                wrong.append(f"{row} as {name}: {answer.status_code} {answer.text[:100]}")
    assert wrong == []


def made_up(row: str, ids: Ids) -> Ids:
    """Well-formed ids of nothing."""
    return {name: SOURCE_OF_IDS.new_id(PREFIXES[name]) if name in PREFIXES else value for name, value in ids.items()}


def story(answer: httpx.Response, ids: Ids) -> tuple[int, Any, list[str]]:
    """The response without the ids that the caller sent and without the request id."""
    text = answer.text
    for name, value in ids.items():
        text = text.replace(value, f"<{name}>")
    headers = sorted(name for name in answer.headers if name != "x-request-id")
    return answer.status_code, re.sub(r'"requestId": ?"[^"]+"', "", text), headers


async def test_another_account_cannot_tell_what_exists_here(people: People) -> None:
    wrong: list[str] = []
    eve = people.callers["other"]
    for row in (row for row in ROWS if "{" in row or "keyId" in str(BODIES.get(row))):
        ours = await people.ours.create(row)
        nothing = made_up(row, ours)
        reported, blank = story(await call(eve, row, ours), ours), story(await call(eve, row, nothing), nothing)
        if reported != blank:
            wrong.append(f"{row}: {reported} against {blank}")
    assert wrong == []


async def test_resources_of_another_account_are_not_found_below_an_own_device(people: People) -> None:
    wrong: list[str] = []
    eve = people.callers["other"]
    for row in (row for row in ROWS if row.count("{") == 2 and "{slot}" not in row):
        ours, theirs = await people.ours.create(row), await people.theirs.create(row)
        parent, child = re.findall(r"\{(\w+)\}", row)
        mixed = theirs | {child: ours[child]}
        nothing = theirs | {child: made_up(row, ours)[child]}
        reported, blank = story(await call(eve, row, mixed), mixed), story(await call(eve, row, nothing), nothing)
        if reported != blank or reported[0] != 404:
            wrong.append(f"{row}: {reported} against {blank}")
        turned = await call(eve, row, ours | {child: theirs[child]})
        if turned.status_code != 404:
            wrong.append(f"{row} with a {parent} of ours: {turned.status_code} {turned.text}")
    assert wrong == []
