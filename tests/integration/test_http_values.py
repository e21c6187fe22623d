"""Numbers, null and enumerations behave as the OpenAPI document says, field by field; the cases come from the document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from support.in_process_app import ApiCaller, in_process_app

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOBODYS = {"slot": "1"}
OF_ANOTHER_CALL = {"OTP_INVALID", "PASSKEY_REFUSED", "UNKNOWN_METRIC"}
OF_ANOTHER_DAY = {"expiresAt", "keyId"}
"""What an example cannot have: values that another call gives first, and a time that is always to come."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiCaller]:
    async with in_process_app(tmp_path_factory.mktemp("fields")) as program:
        await program.create_account("owner@example.com")
        yield await program.sign_in("owner@example.com")


def bodies(document: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """Method, path with unknown ids, a valid example, and its schema, for each body that a session may send."""
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            content = call.get("requestBody", {}).get("content", {}).get("application/json")
            if content and call["x-caller"] != "anyone":
                for part in call.get("parameters", []):
                    path = path.replace(f"{{{part['name']}}}", NOBODYS.get(part["name"], "x_00000000000000000000"))
                yield method.upper(), path, content["example"], followed(document, content["schema"])


def followed(document: Any, schema: Any) -> Any:
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def kinds(document: Any, schema: Any) -> set[str]:
    """The JSON types that the schema accepts; all of them if it names none."""
    schema = followed(document, schema)
    if "anyOf" in schema:
        return set().union(*(kinds(document, one) for one in schema["anyOf"]))
    reply = schema.get("type", ["null", "integer"] if "enum" not in schema and "const" not in schema else [])
    return {reply} if isinstance(reply, str) else set(reply)


def faults(answer: Any) -> set[str]:
    assert answer.status_code < 500, answer.text
    return {detail["field"].partition(".")[0] for detail in answer.json().get("details", [])}


async def test_the_examples_of_the_document_are_valid_bodies(owner: ApiCaller) -> None:
    document = (await owner.app.http.get("/openapi.json")).json()
    refused = []
    for method, path, example, _ in bodies(document):
        answer = await owner.send(method, path.replace("/schedules/1", "/schedules/0"), example)
        if answer.status_code == 400 and answer.json()["error"] not in OF_ANOTHER_CALL and faults(answer) - OF_ANOTHER_DAY:
            refused.append(f"{method} {path}: {answer.text}")
    assert not refused, "\n".join(refused)


async def test_null_is_accepted_exactly_where_the_document_says(owner: ApiCaller) -> None:
    document = (await owner.app.http.get("/openapi.json")).json()
    wrong, requested = [], 0
    for method, path, example, schema in bodies(document):
        for name, of in schema["properties"].items():
            answer = await owner.send(method, path, {**example, name: None})
            refused, requested = name in faults(answer), requested + 1
            if refused and "null" in kinds(document, of):  # one of several fields of which one is required
                left_out = {key: value for key, value in example.items() if key != name}
                refused = name not in faults(await owner.send(method, path, left_out))
                if refused:
                    wrong.append(f"{method} {path} {name}: {answer.text[:200]}")
            elif not refused and "null" not in kinds(document, of):
                wrong.append(f"{method} {path} {name}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []
    assert requested > 100


async def test_a_whole_number_may_be_written_as_json_writes_numbers(owner: ApiCaller) -> None:
    document = (await owner.app.http.get("/openapi.json")).json()
    requested = 0
    for method, path, example, schema in bodies(document):
        for name, of in schema["properties"].items():
            if "integer" in kinds(document, of) and isinstance(example.get(name), int):
                answer = await owner.send(method, path, {**example, name: float(example[name])})
                assert "must be a whole number." not in answer.text, f"{method} {path} {name}"
                half = await owner.send(method, path, {**example, name: example[name] + 0.5})
                assert half.status_code == 400, f"{method} {path} {name}"
                requested += 1
    assert requested > 3


async def test_every_value_of_an_enumeration_in_the_document_is_accepted(owner: ApiCaller) -> None:
    document = (await owner.app.http.get("/openapi.json")).json()
    sent_values, wrong = 0, []
    for method, path, example, schema in bodies(document):
        for name, of in schema["properties"].items():
            choices = [followed(document, one) for one in of.get("anyOf", [of])]
            for value in (value for one in choices for value in one.get("enum", ())):
                answer = await owner.send(method, path, {**example, name: value})
                sent_values += 1
                if name in faults(answer):
                    wrong.append(f"{method} {path} {name}={value}: {answer.text[:200]}")
    assert wrong == []
    assert sent_values > 20


async def sent(owner: ApiCaller, method: str, path: str, text: str) -> Any:
    headers = {**owner.headers, "Content-Type": "application/json"}
    return await owner.app.http.request(method, f"/api/v1{path}", content=text.encode(), headers=headers)


async def test_a_whole_number_keeps_its_bounds_and_its_place(owner: ApiCaller) -> None:
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', {'name': 'D', 'boardType': 'ESP32', 'appType': 'PUMP'}))['deviceId']}"
    key = await owner.send_ok("POST", "/keys", {"name": "Robot"})
    grant = {"commands": ["*"], "apiKeyId": key["keyId"]}
    for text, status in (("1e1", 201), ("10.0", 201), ("1e300", 400), ("0.0", 400), ("10.5", 400), ("true", 400), ('"10"', 400)):
        body = json.dumps({**grant, "rateLimitPerMinute": 0, "activeDays": [0]})
        body = body.replace('"rateLimitPerMinute": 0', f'"rateLimitPerMinute": {text}').replace("[0]", "[1.0, 2]")
        answer = await sent(owner, "POST", f"{device}/grants", body)
        assert answer.status_code == status, f"{text}: {answer.text}"
        if status == 400:
            assert faults(answer) == {"rateLimitPerMinute"}
    kept = await owner.send_ok("GET", f"{device}/grants")
    assert [(one["rateLimitPerMinute"], one["activeDays"]) for one in kept] == [(10, [1, 2])] * 2


@pytest.mark.parametrize("text", ["1.0", "1e1", "+1", " 1", "1_0", "", "١", "0x1", "true"])
async def test_a_query_number_is_plain_digits(owner: ApiCaller, text: str) -> None:
    answer = await owner.send("GET", "/events", params={"limit": text})
    assert (answer.status_code, faults(answer)) == (400, {"limit"})


async def test_an_unknown_event_type_is_an_error(owner: ApiCaller) -> None:
    document = (await owner.app.http.get("/openapi.json")).json()
    parts = document["paths"]["/api/v1/events"]["get"]["parameters"]
    [listed] = [part["schema"]["enum"] for part in parts if part["name"] == "type"]
    answer = await owner.send("GET", "/events", params={"type": "logn"})
    assert (answer.status_code, faults(answer)) == (400, {"type"})
    assert len(answer.text) < 500
    for kind in listed:
        assert (await owner.send_ok("GET", f"/events?type={kind}"))["data"] is not None
    logged = {event["eventType"] for event in (await owner.send_ok("GET", "/events?limit=200"))["data"]}
    assert {"login"} <= logged <= set(listed)
