"""Schedules through the HTTP application, over the in-memory storage."""

from __future__ import annotations

from typing import Any

import pytest
from quart.typing import TestClientProtocol as Client

from adapters.http.api.schedules import schedules_blueprint
from adapters.http.app import create_app
from domain.kernel.caller import Role
from domain.schedules.service import ScheduleOccurrenceService
from support.device_app import RoleNameAuthenticator, as_key, as_person
from support.schedule_world import NOW, ScheduleWorld


@pytest.fixture
async def world() -> ScheduleWorld:
    world = ScheduleWorld()
    await world.populate()
    return world


@pytest.fixture
def client(world: ScheduleWorld) -> Client:
    calendar = ScheduleOccurrenceService(uow=world.uow, clock=world.clock, recurrence=world.recurrence)
    app = create_app(
        blueprints=[schedules_blueprint(world.schedules, calendar)], authenticator=RoleNameAuthenticator(world), clock=world.clock
    )
    return app.test_client()


@pytest.fixture
async def path(world: ScheduleWorld) -> str:
    device = await world.device()
    return f"/devices/{device.device_id}/schedules"


async def call(client: Client, method: str, path: str, body: Any = None, *, who: dict[str, str] | None = None) -> tuple[int, Any]:
    sent = {} if body is None else {"json": body}
    response = await client.open(f"/api/v1{path}", method=method, headers=who or as_person(), **sent)
    return response.status_code, await response.get_json()


async def test_a_slot_needs_only_times(client: Client, path: str) -> None:
    status, made = await call(client, "POST", path, {"slot": 0, "onTs": NOW + 60, "offTs": NOW + 120})
    assert status == 201
    assert made["scheduleId"].startswith("sched_")
    assert made == {
        "scheduleId": made["scheduleId"],
        "deviceId": path.split("/")[2],
        "slot": 0,
        "onTs": NOW + 60,
        "offTs": NOW + 120,
        "label": "",
        "enabled": True,
        "status": "PENDING",
        "onCommand": {"command": "ON", "params": None, "channel": 1},
        "offCommand": {"command": "OFF", "params": None, "channel": 1},
        "rrule": None,
        "timezone": "UTC",
        "misfire": "FIRE",
        "misfireGraceSeconds": 900,
        "nextFireAt": "2027-01-15T08:01:00.000Z",
        "lastFiredAt": None,
        "endedAt": None,
        "lastOutcome": None,
        "nextEdge": "on",
        "firmwareSynced": False,
    }
    assert await call(client, "GET", path) == (200, [made])


async def test_all_fields_are_kept(client: Client, path: str) -> None:
    body = {
        "slot": 4,
        "onTs": NOW + 60,
        "offTs": NOW + 120,
        "label": "Dawn",
        "enabled": False,
        "rrule": "FREQ=DAILY",
        "timezone": "Europe/Berlin",
        "misfire": "SKIP",
        "misfireGraceSeconds": 61,
        "onCommand": {"command": "TOGGLE", "params": None, "channel": 1},
        "offCommand": {"command": "STATUS", "params": None, "channel": 1},
    }
    status, made = await call(client, "POST", path, body)
    assert (status, {name: made[name] for name in body}) == (201, body)
    assert made["nextFireAt"] is None


async def test_a_slot_is_changed_by_path_or_by_body(client: Client, path: str) -> None:
    _, made = await call(client, "POST", path, {"slot": 1, "onTs": NOW + 60, "offTs": NOW + 120})
    status, by_path = await call(client, "PUT", f"{path}/1", {"label": "Dawn"})
    assert (status, by_path) == (200, made | {"label": "Dawn"})
    status, by_body = await call(client, "PUT", path, {"slot": 1, "label": None, "onCommand": {"command": "TOGGLE"}})
    assert (status, by_body["label"], by_body["onCommand"]["command"]) == (200, "", "TOGGLE")
    status, by_both = await call(client, "PUT", f"{path}/null", {"slot": 1, "onCommand": None})
    assert (status, by_both["onCommand"], by_both["scheduleId"]) == (200, made["onCommand"], made["scheduleId"])


@pytest.mark.parametrize(
    ("where", "body", "status", "field"),
    [
        ("", {"label": "x"}, 400, "slot"),
        ("/null", {"label": "x"}, 400, "slot"),
        ("/one", {"label": "x"}, 400, "slot"),
        ("/5", {"label": "x"}, 400, "slot"),
        ("/1", {"slot": 2}, 400, "slot"),
        ("/1", {"onTs": None}, 400, "onTs"),
        ("/1", {"enabled": None}, 400, "enabled"),
        ("/1", {"ontS": 1}, 400, "ontS"),
        ("/1", {"label": "x"}, 404, None),
    ],
)
async def test_a_change_that_names_no_slot_or_nothing_sensible_is_refused(
    client: Client, path: str, where: str, body: Any, status: int, field: str | None
) -> None:
    got, answer = await call(client, "PUT", path + where, body)
    assert got == status
    assert field is None or field in [detail["field"] for detail in answer["details"]]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"onTs": NOW * 1000}, "VALIDATION_ERROR", "onTs"),
        ({"onTs": "soon"}, "VALIDATION_ERROR", "onTs"),
        ({"onTs": NOW + 0.5}, "VALIDATION_ERROR", "onTs"),
        ({"onTs": None}, "VALIDATION_ERROR", "onTs"),
        ({"offTs": NOW + 60}, "VALIDATION_ERROR", "offTs"),
        ({"slot": 5}, "VALIDATION_ERROR", "slot"),
        ({"slot": "0"}, "VALIDATION_ERROR", "slot"),
        ({"slot": True}, "VALIDATION_ERROR", "slot"),
        ({"label": "x" * 65}, "VALIDATION_ERROR", "label"),
        ({"timezone": "Mars/Base"}, "VALIDATION_ERROR", "timezone"),
        ({"timezone": ""}, "VALIDATION_ERROR", "timezone"),
        ({"rrule": "FREQ=SECONDLY"}, "VALIDATION_ERROR", "rrule"),
        ({"rrule": "FREQ=WEEKLY;BYDAY=SU"}, "VALIDATION_ERROR", "onTs"),
        ({"misfire": "MAYBE"}, "VALIDATION_ERROR", "misfire"),
        ({"misfireGraceSeconds": 90_000}, "VALIDATION_ERROR", "misfireGraceSeconds"),
        ({"misfireGraceSeconds": 59}, "VALIDATION_ERROR", "misfireGraceSeconds"),
        ({"onCommand": {}}, "VALIDATION_ERROR", "onCommand.command"),
        ({"onCommand": "ON"}, "VALIDATION_ERROR", "onCommand"),
        ({"onCommand": {"command": "FLY"}}, "UNKNOWN_COMMAND", "onCommand.command"),
        ({"offCommand": {"command": "OFF", "params": 1}}, "INVALID_PARAMS", "offCommand.params"),
        ({"offCommand": {"command": "FLUSH"}}, "COMMAND_NEEDS_APPROVAL", "offCommand.command"),
    ],
)
async def test_bad_input_is_a_400_that_names_the_field(
    client: Client, world: ScheduleWorld, change: dict[str, Any], code: str, field: str
) -> None:
    device = await world.device()
    await world.define(device, "FLUSH", requires_approval=True)
    body = {"slot": 0, "onTs": NOW + 60, "offTs": NOW + 120} | change
    status, answer = await call(client, "POST", f"/devices/{device.device_id}/schedules", body)
    assert (status, answer["error"]) == (400, code)
    assert field in [detail["field"] for detail in answer["details"]]


async def test_a_cancelled_slot_is_in_the_history(client: Client, path: str) -> None:
    _, made = await call(client, "POST", path, {"slot": 2, "onTs": NOW + 60, "offTs": NOW + 120})
    assert await call(client, "DELETE", f"{path}/2") == (200, {"ok": True})
    assert await call(client, "GET", path) == (200, [])
    _, [ended] = await call(client, "GET", f"{path}/history")
    assert (ended["scheduleId"], ended["status"], ended["nextFireAt"]) == (made["scheduleId"], "CANCELLED", None)
    assert (await call(client, "DELETE", f"{path}/2"))[0] == 404


async def test_the_context_lists_whole_definitions(client: Client, path: str) -> None:
    status, context = await call(client, "GET", f"{path}/context")
    assert (status, set(context)) == (200, {"commands"})
    assert {"ON", "OFF", "TOGGLE"} <= {one["name"] for one in context["commands"]}


async def test_keys_and_low_roles_are_refused(client: Client, world: ScheduleWorld, path: str) -> None:
    body = {"slot": 0, "onTs": NOW + 60, "offTs": NOW + 120}
    assert (await call(client, "POST", path, body, who=as_person(Role.VIEWER)))[1]["error"] == "ROLE_REQUIRED"
    assert (await call(client, "POST", path, body, who=as_person(Role.MEMBER)))[1]["error"] == "GRANT_MISSING"
    assert (await call(client, "GET", path, who=as_person(Role.VIEWER)))[0] == 200
    assert (await call(client, "GET", path, who=as_key(await world.key())))[1]["error"] == "SESSION_REQUIRED"
    assert (await call(client, "GET", "/devices/dev_elsewhere00000000000/schedules"))[0] == 404
