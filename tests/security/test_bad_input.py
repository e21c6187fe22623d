"""Each field of each body with invalid values: the response is a 400 that names the field. The cases come from the OpenAPI
document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from security.access_table import operation_of, rows
from security.calls import BODIES
from security.hostile import Where, with_value_at
from security.people import People, a_key, gather
from security.test_hostile_input import FULL, address
from support.in_process_app import in_process_app

Schema = dict[str, Any]
OF_EACH_TYPE: dict[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
NO_PLACES = ("", "localtime", "posixrules", "Factory", "posix/Europe/Berlin", "right/UTC")
GRANT = {"commands": ["ON"], "activeDays": [1], "activeFromMinute": 60, "activeToMinute": 120, "timezone": "Europe/Berlin"}
BODIES_OF_ALL_FIELDS: dict[str, Any] = {
    **FULL,
    "PATCH /devices/{deviceId}/grants/{grantId}": {**GRANT, "scope": "READ", "rateLimitPerMinute": 5},
}


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[People]:
    async with in_process_app(tmp_path) as program:
        yield await gather(program)


def kinds(schema: Schema, document: Schema) -> list[Schema]:
    """The schemas that the schema allows, without references and alternatives."""
    if "$ref" in schema:
        return kinds(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    if "anyOf" in schema:
        return [kind for one in schema["anyOf"] for kind in kinds(one, document)]
    return [schema]


def leaves(schema: Schema, document: Schema, path: Where = ()) -> Iterator[tuple[Where, list[Schema]]]:
    allowed = kinds(schema, document)
    if path:
        yield path, allowed
    for one in allowed:
        for name, inner in one.get("properties", {}).items():
            yield from leaves(inner, document, (*path, name))
        if "items" in one and len(path) < 4:
            yield from leaves(one["items"], document, (*path, 0))


def wrong_for(allowed: list[Schema]) -> Iterator[Any]:
    """Values that none of these accepts. A schema without a type accepts anything."""
    if any(not one.keys() & {"type", "enum", "const"} for one in allowed):
        return
    types = {one.get("type", "string") for one in allowed}
    if "number" in types:
        types.add("integer")
    yield from (value for name, value in OF_EACH_TYPE.items() if name not in types and not (name == "string" and "enum" in types))
    for one in allowed:
        numeric = {"integer", "number"} & {one.get("type")}
        if "minimum" in one and numeric:
            yield one["minimum"] - 1
        if "maximum" in one and numeric:
            yield one["maximum"] + 1
        if one.get("minLength") and types <= {"string", "null"}:
            yield ""
        if "maxLength" in one:
            yield "a" * (one["maxLength"] + 1)
        if "maxItems" in one:
            yield [None] * (one["maxItems"] + 1)
        if "enum" in one:
            yield "NOTHING_OF_THE_KIND"


def reported(where: Where) -> str:
    return ".".join(map(str, where))


async def test_each_wrong_field_of_each_body_is_named(people: People) -> None:
    paper: Schema = (await people.app.http.get("/openapi.json")).json()
    owner = people.callers["Owner"]
    wrong: list[str] = []
    tried = 0
    for row in sorted(rows(), key=lambda row: row == "POST /auth/login"):
        method, path = operation_of(row)
        operation = paper["paths"][f"/api/v1{path}"][method.lower()]
        if "#" in row or "requestBody" not in operation:
            continue
        ids = await people.ours.create(row)
        body = BODIES_OF_ALL_FIELDS.get(row) or BODIES[row](ids)
        for where, allowed in leaves(operation["requestBody"]["content"]["application/json"]["schema"], paper):
            for value in wrong_for(allowed):
                answer = await owner.send(*address(row, ids), with_value_at(body, where, value))
                named = [fault["field"] for fault in answer.json().get("details", [])]
                tried += 1
                if answer.status_code != 400 or not any(name.startswith(reported(where)) for name in named):
                    wrong.append(f"{row} {reported(where)} = {json.dumps(value)[:40]}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []
    assert tried > 600


async def test_each_wrong_query_parameter_is_named(people: People) -> None:
    paper: Schema = (await people.app.http.get("/openapi.json")).json()
    owner = people.callers["Owner"]
    wrong: list[str] = []
    for row in rows():
        method, path = operation_of(row)
        if "#" in row:
            continue
        ids = await people.ours.create(row)
        for parameter in paper["paths"][f"/api/v1{path}"][method.lower()].get("parameters", []):
            allowed = kinds(parameter["schema"], paper)
            if parameter["in"] != "query":
                continue
            for value in wrong_for(allowed):
                if not isinstance(value, (str, int)) or isinstance(value, bool) or (value == "text" and _is_text(allowed)):
                    continue
                if isinstance(value, int) and _is_text(allowed):
                    continue
                where = address(row, ids)
                answer = await owner.send(where[0], where[1], params={parameter["name"]: value})
                named = [fault["field"] for fault in answer.json().get("details", [])]
                if answer.status_code != 400 or parameter["name"] not in named:
                    wrong.append(f"{row} ?{parameter['name']}={str(value)[:40]}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []


def _is_text(allowed: list[Schema]) -> bool:
    return any(one.get("type") == "string" and "enum" not in one for one in allowed)


PAST = "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("terms", "fields"),
    [
        ({"activeFromMinute": 60}, {"activeToMinute"}),
        ({"activeToMinute": 60}, {"activeFromMinute"}),
        ({"timezone": "Europe/Atlantis"}, {"timezone"}),
        *(({"timezone": name}, {"timezone"}) for name in NO_PLACES),
        ({"timezone": "../../etc/passwd"}, {"timezone"}),
        ({"expiresAt": PAST}, {"expiresAt"}),
        ({"expiresAt": "2026-11-21"}, {"expiresAt"}),
        ({"expiresAt": "2026-11-21T04:00:00"}, {"expiresAt"}),
        ({"expiresAt": "soon"}, {"expiresAt"}),
        ({"commands": []}, {"commands"}),
        ({"commands": ["on"]}, {"commands.0"}),
        ({"commands": ["ON", "OFF SWITCH"]}, {"commands.1"}),
        ({"activeDays": [0, 7]}, {"activeDays.1"}),
        ({"rateLimitPerMinute": 0}, {"rateLimitPerMinute"}),
        ({"rateLimitPerMinute": 1001}, {"rateLimitPerMinute"}),
        ({"scope": "ADMIN"}, {"scope"}),
        ({"expiresAt": PAST, "timezone": "Nowhere", "commands": []}, {"expiresAt", "timezone", "commands"}),
    ],
)
async def test_invalid_grant_fields_are_named_on_create_and_update(people: People, terms: Any, fields: set[str]) -> None:
    ids = await people.ours.create("PATCH /devices/{deviceId}/grants/{grantId}")
    owner = people.callers["Owner"]
    _, key_id = await a_key(owner)
    grants = f"/devices/{ids['deviceId']}/grants"
    for answer in (
        await owner.send("POST", grants, {"commands": ["ON"], "apiKeyId": key_id} | terms),
        await owner.send("PATCH", f"{grants}/{ids['grantId']}", terms),
    ):
        assert answer.status_code == 400, answer.text
        assert {fault["field"] for fault in answer.json()["details"]} == fields


async def test_a_grant_has_exactly_one_subject_of_this_account(people: People) -> None:
    ids = await people.ours.create("PATCH /members/{membershipId}")
    device_id = (await people.ours.create("GET /devices/{deviceId}"))["deviceId"]
    owner = people.callers["Owner"]
    _, key_id = await a_key(owner)
    _, foreign = await a_key(people.callers["other"])
    both = {"apiKeyId", "membershipId"}
    for subject, fields in (
        ({}, both),
        ({"apiKeyId": key_id, "membershipId": ids["membershipId"]}, both),
        ({"apiKeyId": None, "membershipId": None}, both),
        ({"apiKeyId": foreign}, {"apiKeyId"}),
        ({"apiKeyId": ids["membershipId"]}, {"apiKeyId"}),
        ({"membershipId": key_id}, {"membershipId"}),
        ({"apiKeyId": "k" * 65}, {"apiKeyId"}),
    ):
        answer = await owner.send("POST", f"/devices/{device_id}/grants", {"commands": ["ON"], **subject})
        assert answer.status_code == 400
        assert {fault["field"] for fault in answer.json()["details"]} == fields


async def test_an_undefined_command_is_granted_with_a_warning(people: People) -> None:
    ids = await people.ours.create("PATCH /devices/{deviceId}/grants/{grantId}")
    owner = people.callers["Owner"]
    _, key_id = await a_key(owner)
    grants = f"/devices/{ids['deviceId']}/grants"
    made = await owner.send_ok("POST", grants, {"commands": ["ON", "DANCE"], "apiKeyId": key_id})
    changed = await owner.send_ok("PATCH", f"{grants}/{ids['grantId']}", {"commands": ["SING"]})
    assert [fault["field"] for fault in made["details"]] == ["commands.1"]
    assert [fault["field"] for fault in changed["details"]] == ["commands.0"]
    assert "DANCE" in made["details"][0]["message"]
