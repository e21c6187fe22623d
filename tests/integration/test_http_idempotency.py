"""`Idempotency-Key`: one success per caller and key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import DisplayName, RequestBodyModel
from domain.kernel.errors import Conflict
from domain.kernel.idempotency import COMMITTED
from support.http import PASSWORD, HttpClient, HttpWorld, serving
from support.memory_storage.sessions import MemoryStoredResponseRepository


class Thing(RequestBodyModel):
    some_name: DisplayName


class Setting(RequestBodyModel):
    name: DisplayName
    enabled: bool
    level: int


def counter(world: HttpWorld) -> Sequence[ApiBlueprint]:
    bp = ApiBlueprint("counter", "T")
    runs: list[str] = []

    @bp.operation("POST /count", AllowedCallers.SESSION, "s", status=201, idempotent=True)
    async def count(body: Thing) -> dict[str, int]:
        if not current_session().is_replay:  # otherwise only the checks count; a unit of work would roll back
            runs.append(body.some_name)
        await asyncio.sleep(0)
        if body.some_name == "refuse" and len(runs) == 1:
            raise Conflict("not yet")
        return {"runs": len(runs)}

    @bp.operation("POST /set", AllowedCallers.SESSION, "s", status=201, idempotent=True)
    async def set_level(body: Setting) -> dict[str, int]:
        if not current_session().is_replay:
            runs.append(body.name)
        return {"runs": len(runs)}

    return [bp]


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(HttpWorld(blueprints=counter)) as client:
        yield client


async def test_the_same_idempotency_key_gets_the_first_response(http: HttpClient) -> None:
    await http.sign_in()
    key = {"Idempotency-Key": "a1"}
    first = await http.post("/count", {"someName": "a"}, headers=key)
    again = await http.post("/count", {"someName": "a"}, headers=key)
    assert (first.status_code, first.json()) == (again.status_code, again.json()) == (201, {"runs": 1})
    assert again.headers["Idempotency-Replayed"] == "true"
    other = await http.post("/count", {"someName": "b"}, headers=key)
    assert (other.status_code, other.json()["error"]) == (409, "IDEMPOTENCY_MISMATCH")
    http.world.clock.forward(days=1.001)
    await http.sign_in()
    assert (await http.post("/count", {"someName": "b"}, headers=key)).json() == {"runs": 2}


async def test_the_same_json_in_another_form_is_the_same_request(http: HttpClient) -> None:
    await http.sign_in()
    headers = {"Idempotency-Key": "a9", "Content-Type": "application/json", **http.headers}
    first, *others = (
        '{"name": "Écurie", "enabled": true, "level": 10}',
        '{ "level":10.0,"enabled":true ,"name":"\\u00c9curie" }',
        '{"enabled": true, "level": 1e1, "name": "Écurie"}',
    )
    for text in (first, *others):
        answer = await http.raw.post("/api/v1/set", content=text.encode(), headers=headers)
        assert (answer.status_code, answer.json()) == (201, {"runs": 1})
    for text in (first.replace("10", "11"), first.replace("true", "false"), first.replace("É", "e")):
        answer = await http.raw.post("/api/v1/set", content=text.encode(), headers=headers)
        assert answer.json()["error"] == "IDEMPOTENCY_MISMATCH"


async def test_a_refusal_does_not_consume_the_idempotency_key(http: HttpClient) -> None:
    await http.sign_in()
    key = {"Idempotency-Key": "a2"}
    assert (await http.post("/count", {"someName": "refuse"}, headers=key)).status_code == 409
    assert (await http.post("/count", {"someName": "refuse"}, headers=key)).json() == {"runs": 2}


async def test_an_idempotency_key_belongs_to_its_caller(http: HttpClient) -> None:
    await http.sign_in()
    key = {"Idempotency-Key": "a3"}
    await http.post("/keys", {"name": "mine"}, headers=key)
    mine = await http.post("/keys", {"name": "mine"}, headers=key)
    await http.world.operator.create_account(name="Other", email="eve@example.com", password=PASSWORD)
    await http.sign_in("eve@example.com")
    hers = await http.post("/keys", {"name": "mine"}, headers=key)
    assert hers.status_code == 201
    assert hers.json()["key"] != mine.json()["key"]
    assert hers.headers.get("Idempotency-Replayed") is None


async def test_a_bad_idempotency_key_is_named(http: HttpClient) -> None:
    await http.sign_in()
    answer = await http.post("/count", {"someName": "a"}, headers={"Idempotency-Key": "k" * 256})
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "Idempotency-Key")


async def test_twenty_requests_at_once_with_one_key_run_once(http: HttpClient) -> None:
    await http.sign_in()
    key = {"Idempotency-Key": "a4"}
    answers = await asyncio.gather(*(http.post("/count", {"someName": "a"}, headers=key) for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert {answer.json()["runs"] for answer in answers if answer.status_code == 201} == {1}
    assert {answer.json()["error"] for answer in answers if answer.status_code == 409} <= {"IDEMPOTENCY_IN_PROGRESS"}


async def test_a_stored_response_with_a_secret_is_encrypted(http: HttpClient) -> None:
    await http.sign_in()
    answer = await http.post("/keys", {"name": "k"}, headers={"Idempotency-Key": "a5"})
    assert http.account is not None
    who = f"{http.account.account.account_id}/user:{http.account.owner.user.user_id}"
    async with http.world.uow.read() as tx:
        kept = await tx.stored_responses.get(who, "a5")
    assert answer.json()["key"].encode() not in kept.body


@pytest.mark.parametrize(
    ("alive", "status", "answer"),
    [
        (False, None, (201, None)),
        (False, COMMITTED, (409, "IDEMPOTENCY_ANSWER_LOST")),
        (True, None, (409, "IDEMPOTENCY_IN_PROGRESS")),
        (True, COMMITTED, (409, "IDEMPOTENCY_IN_PROGRESS")),
    ],
)
async def test_the_claim_of_another_process_is_abandoned_when_that_is_gone(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch, alive: bool, status: int | None, answer: tuple[int, str | None]
) -> None:
    await http.sign_in()
    assert http.account is not None
    caller = f"{http.account.account.account_id}/user:{http.account.owner.user.user_id}"

    async def is_process_alive(self: object, process_id: bytes) -> bool:
        assert process_id == b"another process"
        return alive

    monkeypatch.setattr(MemoryStoredResponseRepository, "is_process_alive", is_process_alive)
    assert (await http.post("/count", {"someName": "a"}, headers={"Idempotency-Key": "dead"})).status_code == 201
    async with http.world.uow.write() as tx:
        kept = await tx.stored_responses.get(caller, "dead")
        await tx.stored_responses.discard(kept)
        await tx.stored_responses.claim(replace(kept, status=status, body=b"another process", at_ms=kept.at_ms - 1))
    retry = await http.post("/count", {"someName": "a"}, headers={"Idempotency-Key": "dead"})
    assert (retry.status_code, retry.json().get("error")) == answer


async def test_a_claim_of_this_process_stays_in_progress(http: HttpClient) -> None:
    await http.sign_in()
    key = {"Idempotency-Key": "alive"}
    answers = await asyncio.gather(*(http.post("/count", {"someName": "a"}, headers=key) for _ in range(8)))
    assert {answer.json()["runs"] for answer in answers if answer.status_code == 201} == {1}
