"""Hostile values in each field of each body, each parameter and each path segment break nothing.

Each field gets every ninth of the hostile values, shifted for the next field; a thorough run uses all of them.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from security.access_table import operation_of, rows
from security.calls import BODIES, SOON_S, Ids
from security.hostile import NO_JSON, ODD, ODD_PATH, ODD_QUERY, fields, with_value_at
from security.people import People, gather
from support.in_process_app import ApiCaller, in_process_app
from support.thoroughness import usual_or_thorough

pytestmark = pytest.mark.thorough

JSON = {"Content-Type": "application/json"}
EVERY = usual_or_thorough(9, 1)
MARK = "@@here@@"
CONDITION = {"metric": "temperature", "comparator": ">", "value": 30}
FULL: dict[str, Any] = {
    "POST /devices/{deviceId}/schedules": {
        "slot": 2,
        "onTs": SOON_S,
        "offTs": SOON_S + 60,
        "label": "x",
        "enabled": True,
        "onCommand": {"command": "ON"},
        "offCommand": {"command": "OFF"},
        "rrule": "FREQ=DAILY",
        "timezone": "Europe/Berlin",
        "misfire": "FIRE",
    },
    "POST /devices/{deviceId}/rules": {
        "name": "Hot",
        "conditions": [CONDITION],
        "action": {"command": "OFF"},
        "priority": 1,
        "match": "ALL",
        "forSeconds": 1,
        "cooldownSeconds": 1,
        "clearConditions": [CONDITION],
    },
    "POST /devices/{deviceId}/commands": {"name": "SET", "label": "Set", "paramsSchema": {"type": "number"}},
    "POST /device-types": {"name": "T", "commands": [{"name": "SET", "label": "Set", "paramsSchema": {"type": "number"}}]},
    **{
        f"POST /devices/{{deviceId}}/approvals/{{approvalId}}/{decision}": {"note": "Yes"}
        for decision in ("approve", "deny", "withdraw")
    },
}
"""Bodies with optional fields, so that an error about a missing field does not hide a wrong one."""


@pytest.fixture
async def people() -> AsyncIterator[People]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            yield await gather(program)


async def document(people: People) -> dict[str, Any]:
    found: dict[str, Any] = (await people.app.http.get("/openapi.json")).json()
    return found


def address(row: str, ids: Ids) -> tuple[str, str]:
    method, path = operation_of(row)
    return method, re.sub(r"\{(\w+)\}", lambda part: ids[part[1]], path)


async def raw(caller: ApiCaller, row: str, ids: Ids, body: str) -> httpx.Response:
    method, path = address(row, ids)
    return await caller.send(method, path, content=body.encode(), headers=JSON)


async def test_no_field_of_any_body_breaks_anything(people: People) -> None:
    paper = await document(people)
    owner = people.callers["Owner"]
    wrong: list[str] = []
    for row in sorted(rows(), key=lambda row: row == "POST /auth/login"):  # last: failures there throttle all logins
        method, path = operation_of(row)
        operation = paper["paths"][f"/api/v1{path}"][method.lower()]
        if "#" in row or "requestBody" not in operation:
            continue
        ids = await people.ours.create(row)
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        for number, where in enumerate(dict.fromkeys(fields(schema, paper))):
            text = json.dumps(with_value_at(FULL.get(row) or BODIES[row](ids), where, MARK))
            for value in (NO_JSON + ODD)[number % EVERY :: EVERY]:
                answer = await raw(owner, row, ids, text.replace(json.dumps(MARK), value))
                if answer.status_code >= 500 or (value in NO_JSON and answer.status_code != 400):
                    wrong.append(f"{row} {'.'.join(map(str, where))} = {value[:40]}: {answer.status_code}")
                if answer.is_success:
                    ids = await people.ours.create(row)
    assert wrong == []


async def test_no_query_parameter_breaks_anything(people: People) -> None:
    paper = await document(people)
    owner = people.callers["Owner"]
    wrong: list[str] = []
    for row in rows():
        method, path = operation_of(row)
        parameters = paper["paths"][f"/api/v1{path}"][method.lower()].get("parameters", [])
        if "#" in row or method != "GET":
            continue
        ids = await people.ours.create(row)
        for name in [one["name"] for one in parameters if one["in"] == "query"] + ["unknown"]:
            for value in ODD_QUERY:
                answer = await owner.send(method, f"{address(row, ids)[1]}?{name}={value}")
                refused = name != "unknown" or answer.status_code == 400
                if answer.status_code not in (200, 400, 404) or not refused:
                    wrong.append(f"{row}?{name}={value[:40]}: {answer.status_code}")
            twice = await owner.send(method, f"{address(row, ids)[1]}?{name}=1&{name}=2")
            if twice.status_code != 400:
                wrong.append(f"{row}?{name} twice: {twice.status_code}")
    assert wrong == []


async def test_no_path_segment_breaks_anything_or_escapes_its_route(people: People) -> None:
    owner, nobody = people.callers["Owner"], people.app.caller()
    wrong: list[str] = []
    for row in (row for row in rows() if "{" in row and "#" not in row):
        ids = await people.ours.create(row)
        for part in re.findall(r"\{(\w+)\}", row):
            for value in ODD_PATH:
                method, path = address(row, ids | {part: value})
                body = json.dumps(BODIES[row](ids)).encode() if row in BODIES else b""
                headers = JSON if body else {}
                answer = await owner.send(method, path, content=body, headers=headers)
                if answer.status_code not in (400, 404, 405):
                    wrong.append(f"{method} {path}: {answer.status_code}")
                elif answer.json()["error"] == "INTERNAL_ERROR":
                    wrong.append(f"{method} {path}: {answer.text}")
                door = await nobody.send(method, path, content=body, headers=headers)
                if door.status_code not in (401, 404, 405):
                    wrong.append(f"{method} {path} as nobody: {door.status_code}")
    assert wrong == []
