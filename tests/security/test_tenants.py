"""Another account of the same installation asks for as much as it may: each piece of long work takes its turn, leaves room between
its steps, and holds no lock that it does not need. How many milliseconds that is, `benches/bench_tenants.py` measures."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.http.core.operation import API_DEPENDENCIES, RequestHandlingDependencies
from adapters.http.core.turns import MAX_WAITING, AccountTurns, TurnKind
from adapters.http.documents.openapi import iterate_operations
from adapters.storage.sql.sqlite.backend import SqliteBackend
from adapters.storage.sql.sqlite.connections import SqliteConnection, SqliteLookUpConnection
from domain.kernel.errors import Unavailable
from domain.kernel.ids import AccountId
from domain.kernel.unit_of_work import GIVE_WAY_EVERY, OBJECTS_PER_TRANSACTION
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
DEVICES = [{**NEW, "externalId": f"pump-{number}"} for number in range(20 * GIVE_WAY_EVERY)]
PLAN = {"document": {"devices": DEVICES}}
IN_TURNS = {
    "GET /fleet": TurnKind.BULK,
    "POST /fleet/plan": TurnKind.BULK,
    "POST /fleet/apply": TurnKind.BULK,
    "POST /devices/register/bulk": TurnKind.BULK,
    "POST /device-types": TurnKind.BULK,
    "PATCH /device-types/<device_type_id>": TurnKind.BULK,
    "POST /devices/<device_id>/commands": TurnKind.BULK,
    "PATCH /devices/<device_id>/commands/<command_id>": TurnKind.BULK,
    "POST /devices/<device_id>/rules/test": TurnKind.BULK,
    "POST /devices/<device_id>/rules/<rule_id>/test": TurnKind.BULK,
    "POST /groups/<group_id>/schedules": TurnKind.BULK,
    "DELETE /groups/<group_id>/schedules/<slot>": TurnKind.BULK,
    "POST /groups/<group_id>/rules": TurnKind.BULK,
    "POST /groups/<group_id>/command": TurnKind.COMMANDS,
    "POST /groups/<group_id>/command/preview": TurnKind.COMMANDS,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as program:
            program.loud_id = (await program.create_account("loud@example.com")).account.account_id  # type: ignore[attr-defined]
            await program.create_account("quiet@example.com", "Quiet")
            yield program


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loud(app: InProcessApp) -> ApiCaller:
    caller = await app.sign_in("loud@example.com")
    await caller.send_ok("POST", "/fleet/apply", PLAN)
    return caller


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quiet(app: InProcessApp) -> ApiCaller:
    return await app.sign_in("quiet@example.com")


def dependencies(app: InProcessApp) -> RequestHandlingDependencies:
    found: RequestHandlingDependencies = app.program.http_app.extensions[API_DEPENDENCIES]
    return found


def turns(app: InProcessApp, kind: TurnKind = TurnKind.BULK) -> AccountTurns:
    return dependencies(app).turns[kind]


async def until_true(wanted: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not wanted():
            await asyncio.sleep(0.005)


async def test_these_operations_take_turns(app: InProcessApp) -> None:
    found = {
        f"{spec.method} {path.removeprefix('/api/v1')}": spec.turn
        for path, spec in iterate_operations(app.program.http_app)
        if spec.turn is not None
    }
    assert found == IN_TURNS


async def test_a_switch_takes_no_turn(app: InProcessApp, loud: ApiCaller) -> None:
    device = await loud.send_ok("POST", "/devices/register", NEW)
    await loud.send_ok("POST", f"/devices/{device['deviceId']}/credentials", {})
    async with turns(app).take(app.loud_id), turns(app, TurnKind.COMMANDS).take(app.loud_id):  # type: ignore[attr-defined]
        await loud.send_ok("POST", f"/devices/{device['deviceId']}/command/off")


async def test_beside_an_account_with_all_its_turns_taken_another_one_plans(
    app: InProcessApp, loud: ApiCaller, quiet: ApiCaller
) -> None:
    account_id: AccountId = app.loud_id  # type: ignore[attr-defined]
    async with turns(app).take(account_id):
        asked = [asyncio.create_task(loud.send("POST", "/fleet/plan", PLAN)) for _ in range(MAX_WAITING + 3)]
        await until_true(lambda: turns(app).waiting_count == MAX_WAITING and sum(task.done() for task in asked) == 3)
        refused = next(task for task in asked if task.done()).result()
        assert (refused.status_code, refused.json()["error"], refused.headers["Retry-After"]) == (429, "RATE_LIMITED", "1")
        await quiet.send_ok("POST", "/fleet/plan", PLAN)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    await until_true(lambda: turns(app).waiting_count == 0)


async def test_a_request_with_a_key_keeps_its_turn_when_its_client_has_gone(app: InProcessApp, loud: ApiCaller) -> None:
    """Otherwise clients that hang up would have any number of turns."""
    account_id: AccountId = app.loud_id  # type: ignore[attr-defined]
    body = {"devices": [{**NEW, "externalId": "late"}]}
    async with turns(app).take(account_id):
        asked = asyncio.create_task(loud.send("POST", "/devices/register/bulk", body, headers={"Idempotency-Key": "late"}))
        await until_true(lambda: turns(app).waiting_count == 1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert turns(app).waiting_count == 1
    await until_true(lambda: not dependencies(app).running_tasks)
    again = await loud.send_ok("POST", "/devices/register/bulk", body)
    assert again["existing"] == 1


async def test_a_plan_without_differences_waits_for_no_writer(app: InProcessApp, loud: ApiCaller) -> None:
    async with app.services.uow.write(None):
        answer = await loud.send_ok("POST", "/fleet/plan", PLAN)
    assert answer["counts"] == {"create": 0, "change": 0, "delete": 0, "unchanged": len(DEVICES)}


async def test_what_is_only_rehearsed_waits_for_no_writer(app: InProcessApp, loud: ApiCaller) -> None:
    """A plan that finds differences, with all that it would make, and the preview of a command to a group."""
    made = await loud.send_ok("POST", "/devices/register/bulk", {"devices": [NEW] * 2, "credentials": "NEW"})
    ids = [each["deviceId"] for each in made["devices"]]
    group = await loud.send_ok("POST", "/groups", {"name": "Rehearsed", "deviceIds": ids})
    rule = {
        "name": "Too hot",
        "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
        "action": {"command": "OFF"},
    }
    slot = {"slot": 0, "onTs": 4_000_000_000, "offTs": 4_000_000_600, "onCommand": {"command": "ON"}}
    board = [{"channel": 2, "kind": "RELAY", "name": "Light"}]
    full = {
        "channels": board,
        "metrics": ["temperature"],
        "rules": [rule],
        "schedules": [slot],
        "commands": [{"name": "DIM", "label": "Dim"}],
    }
    document = {
        "projects": [{"name": "Yard"}],
        "devices": [{**DEVICES[0], "location": "Hall"}, {**NEW, **full, "externalId": "new", "project": "Yard"}],
        "groups": [{"name": "New", "project": "Yard", "devices": ["new"]}],
        "apiKeys": [{"name": "Robot"}],
        "grants": [{"apiKey": "Robot", "group": "New", "project": "Yard", "commands": ["ON"]}],
    }
    async with app.services.uow.write(None):
        plan = await loud.send_ok("POST", "/fleet/plan", {"document": document, "credentials": "NEW"})
        preview = await loud.send_ok("POST", f"/groups/{group['groupId']}/command/preview", {"cmd": "ON"})
    assert preview["queued"] == 2
    assert (await loud.send_ok("GET", f"/devices/{ids[0]}/executions"))["data"] == []
    again = await loud.send_ok("POST", "/fleet/plan", {"document": document, "credentials": "NEW"})
    assert plan["counts"] == again["counts"]
    assert plan["counts"]["create"] > 5


def refuse_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the long transactions, as when the disk is full."""
    original, begun = SqliteBackend.write, 0

    def write(self: SqliteBackend, account: str = "", *, background: bool = False) -> Any:
        nonlocal begun
        begun += bool(account) and background
        if begun == 2 and account:
            raise Unavailable("The disk is full.")
        return original(self, account, background=background)

    monkeypatch.setattr(SqliteBackend, "write", write)


async def test_many_objects_are_done_in_parts_and_the_answer_says_which_are_left(
    loud: ApiCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * OBJECTS_PER_TRANSACTION
    made = await loud.send_ok("POST", "/devices/register/bulk", {"devices": [NEW] * count, "credentials": "NEW"})
    ids = [each["deviceId"] for each in made["devices"]]
    group = await loud.send_ok("POST", "/groups", {"name": "Parts", "deviceIds": ids})
    refuse_the_second(monkeypatch)
    report = await loud.send_ok("POST", f"/groups/{group['groupId']}/command", {"cmd": "ON"})
    assert [each["error"] for each in report["devices"]] == [None] * (count // 2) + ["UNAVAILABLE"] * (count // 2)
    monkeypatch.undo()
    for device_id, queued in ((ids[0], 1), (ids[-1], 0)):
        assert len((await loud.send_ok("GET", f"/devices/{device_id}/executions"))["data"]) == queued
    refuse_the_second(monkeypatch)
    rows = [{**NEW, "externalId": f"part-{number}"} for number in range(count)]
    answer = await loud.send_ok("POST", "/devices/register/bulk", {"devices": rows})
    assert (answer["created"], answer["failed"]) == (count // 2, count // 2)
    monkeypatch.undo()
    again = await loud.send_ok("POST", "/devices/register/bulk", {"devices": rows})
    assert (again["created"], again["existing"]) == (count // 2, count // 2)


def count_hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the writing connection runs in its thread from now on. Meanwhile the writer is kept: each costs every account."""
    hops: list[str] = []
    for name in ("fetch", "flush", "execute_many"):
        original = getattr(SqliteConnection, name)

        async def counted(self: SqliteConnection, *params: Any, _call: Any = original, _name: str = name) -> Any:
            if not isinstance(self, SqliteLookUpConnection):
                hops.append(f"{_name} {params[:1]}")
            return await _call(self, *params)

        monkeypatch.setattr(SqliteConnection, name, counted)
    return hops


async def test_many_devices_keep_the_writer_for_a_few_thread_hops(loud: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    """To register them, to switch them as a group, and to change them with a file."""
    count = 100
    hops = count_hops(monkeypatch)
    made = await loud.send_ok("POST", "/devices/register/bulk", {"devices": [NEW] * count, "credentials": "NEW"})
    assert len(hops) < count / 2
    ids = [each["deviceId"] for each in made["devices"]]
    group = await loud.send_ok("POST", "/groups", {"name": "All", "deviceIds": ids})
    for path in ("command/preview", "command"):
        hops.clear()
        report = await loud.send_ok("POST", f"/groups/{group['groupId']}/{path}", {"cmd": "ON"})
        assert report["queued"] == count
        assert len(hops) < count / 2
    changed = {"devices": [{**one, "location": "Hall"} for one in DEVICES]}
    for path in ("plan", "apply"):
        hops.clear()
        answer = await loud.send_ok("POST", f"/fleet/{path}", {"document": changed})
        assert answer["counts"]["change"] == len(DEVICES)
        assert len(hops) < len(DEVICES) / 2


async def test_a_plan_gives_way_between_its_objects(loud: ApiCaller) -> None:
    rounds = 0
    ended = False

    async def count() -> None:
        nonlocal rounds
        while not ended:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await loud.send_ok("POST", "/fleet/plan", PLAN)
    ended = True
    await counting
    assert rounds > 3 * len(DEVICES) / GIVE_WAY_EVERY  # of each object: read into the domain, its stored one, their comparison
