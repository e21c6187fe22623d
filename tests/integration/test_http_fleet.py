"""The fleet as a file over HTTP: plan, apply, export, prune; who may; and where an error is."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.fleet_file.model import MAX_OBJECTS
from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.kernel.ids import DeviceId
from domain.team.operator import CreatedAccountWithOwner
from support.empty_database import empty_postgres
from support.in_process_app import RECEIVER_URL, ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

SOON_S = 1_800_003_600
EVERY_DAY = {"slot": 0, "onTs": SOON_S, "offTs": SOON_S + 600, "rrule": "FREQ=DAILY", "timezone": "Europe/Berlin"}
HOT = {
    "name": "Too hot",
    "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}],
    "action": {"command": "OFF"},
    "forSeconds": 60,
}
LEVEL = {"name": "SET_LEVEL", "label": "Level", "paramsSchema": {"type": "integer"}, "requiresApproval": True}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "projects": [{"name": "Default"}, {"name": "Greenhouse"}],
    "deviceTypes": [{"name": "Pump", "commands": [LEVEL]}],
    "devices": [
        {
            "externalId": "pump-1",
            "name": "Pump 1",
            "boardType": "ESP32",
            "appType": "PUMP",
            "project": "Greenhouse",
            "deviceType": "Pump",
            "tags": ["north"],
            "commands": [{"name": "BLINK", "label": "Blink"}],
            "schedules": [EVERY_DAY],
        },
        {"externalId": "pump-2", "name": "Pump 2", "boardType": "ESP32", "appType": "PUMP", "project": "Greenhouse"},
    ],
    "groups": [{"name": "Pumps", "project": "Greenhouse", "devices": ["pump-1", "pump-2"]}],
    "apiKeys": [{"name": "nightly"}],
    "grants": [
        {"apiKey": "nightly", "group": "Pumps", "project": "Greenhouse", "commands": ["ON", "OFF"]},
        {"apiKey": "nightly", "project": "Greenhouse", "commands": ["*"], "scope": "READ"},
        {"apiKey": "nightly", "device": "pump-1", "commands": ["BLINK"], "expiresAt": "2028-01-01T00:00:00.000Z"},
        {"member": "ada@example.com", "device": "pump-2", "commands": ["*"], "rateLimitPerMinute": 5},
    ],
    "webhooks": [{"apiKey": "nightly", "url": RECEIVER_URL, "types": ["relay_changed"]}],
}


@pytest.fixture(params=DATABASES)
async def app(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[InProcessApp]:
    chosen = {"database_url": await empty_postgres(), "secret_keys": KEY_RING} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        yield program


@pytest.fixture
async def account(app: InProcessApp) -> CreatedAccountWithOwner:
    return await app.create_account("ada@example.com")


@pytest.fixture
async def ada(app: InProcessApp, account: CreatedAccountWithOwner) -> ApiCaller:
    return await app.sign_in("ada@example.com")


async def fleet(caller: ApiCaller, step: str, document: Any, **options: Any) -> Any:
    return await caller.send_ok("POST", f"/fleet/{step}", {"document": document, **options})


async def refusal(caller: ApiCaller, document: Any, *, step: str = "plan", **options: Any) -> tuple[str, list[str]]:
    answer = await caller.send("POST", f"/fleet/{step}", {"document": document, **options})
    assert answer.is_error, answer.text
    body = answer.json()
    return body["error"], [each["field"] for each in body.get("details", ())]


def shown(planned: Any) -> list[tuple[Any, ...]]:
    """(action, section, name, changed fields) of each object."""
    return [
        (each["action"], each["section"], each["name"], *(change["field"] for change in each["changes"]))
        for each in planned["objects"]
    ]


def changed(**sections: Any) -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT) | sections


async def test_a_plan_changes_nothing_and_an_apply_does_what_it_said_once(app: InProcessApp, ada: ApiCaller) -> None:
    planned = await fleet(ada, "plan", DOCUMENT)
    assert planned["counts"] == {"create": 13, "change": 0, "delete": 0, "unchanged": 1}
    assert await ada.send_ok("GET", "/devices") == []
    assert len(await ada.send_ok("GET", "/projects")) == 1

    applied = await fleet(ada, "apply", DOCUMENT, credentials="NEW")
    assert shown(applied)[0] == ("CREATE", "projects", "Greenhouse")
    assert applied["counts"]["create"] == 13
    secrets = [each["secret"] for each in applied["objects"] if each["secret"]]
    assert [secret.partition("_")[0] for secret in secrets] == ["sk", "whsec"]
    assert len({each["credentials"]["mqttPassword"] for each in applied["objects"] if each["credentials"]}) == 2
    assert [each["name"] for each in await ada.send_ok("GET", "/devices")] == ["Pump 1", "Pump 2"]

    again = await fleet(ada, "apply", DOCUMENT, credentials="NEW")
    assert again == {"counts": {"create": 0, "change": 0, "delete": 0, "unchanged": 14}, "objects": []}


async def test_an_export_planned_again_changes_nothing(app: InProcessApp, ada: ApiCaller) -> None:
    await fleet(ada, "apply", DOCUMENT)
    exported = await ada.send_ok("GET", "/fleet")
    assert exported["leftOut"] == []
    planned = await fleet(ada, "plan", exported["document"], prune=True)
    assert planned["objects"] == []
    for section in DOCUMENT.keys() - {"version", "devices"}:
        assert len(exported["document"][section]) == len(DOCUMENT[section])
    first = exported["document"]["devices"][0]
    assert first == DOCUMENT["devices"][0] | {"profile": "native"}


def one_device(**fields: Any) -> dict[str, Any]:
    return {"devices": [{"externalId": "pump-1", "name": "Pump 1", "boardType": "ESP32", "appType": "PUMP"} | fields]}


async def test_a_metric_that_the_file_names_is_known_before_the_device_reports_it(app: InProcessApp, ada: ApiCaller) -> None:
    without = await refusal(ada, one_device(rules=[HOT]))
    assert without == ("UNKNOWN_METRIC", ["document.devices.0.rules.0.conditions.0.metric"])
    of_type = one_device(rules=[HOT], deviceType="Pump") | {"deviceTypes": [{"name": "Pump", "metrics": ["temperature"]}]}
    assert shown(await fleet(ada, "plan", of_type))[1] == ("CREATE", "devices", "pump-1", "metrics")

    await fleet(ada, "apply", of_type)
    [device] = await ada.send_ok("GET", "/devices")
    context = await ada.send_ok("GET", f"/devices/{device['deviceId']}/rules/context")
    assert context["metrics"] == ["temperature"]
    assert (await fleet(ada, "apply", of_type))["objects"] == []
    await app.report(DeviceId(device["deviceId"]), temperature=20.5, humidity=40)
    [change] = (await fleet(ada, "plan", one_device(metrics=["pressure"])))["objects"][0]["changes"]
    assert change == {"field": "metrics", "before": ["humidity", "temperature"], "after": ["humidity", "pressure", "temperature"]}
    exported = (await ada.send_ok("GET", "/fleet"))["document"]
    assert exported["devices"][0]["metrics"] == ["humidity", "temperature"]
    assert exported["devices"][0]["rules"] == [HOT]
    assert (await fleet(ada, "plan", exported, prune=True))["objects"] == []


async def test_a_metric_that_only_a_plan_has_named_stays_unknown(app: InProcessApp, ada: ApiCaller) -> None:
    await fleet(ada, "apply", one_device())
    await fleet(ada, "plan", one_device(metrics=["temperature"], rules=[HOT]))
    [device] = await ada.send_ok("GET", "/devices")
    await app.report(DeviceId(device["deviceId"]), humidity=40)
    assert (await refusal(ada, one_device(rules=[HOT])))[0] == "UNKNOWN_METRIC"


async def test_a_device_without_an_id_of_the_user_gets_one(app: InProcessApp, ada: ApiCaller) -> None:
    await ada.send_ok("POST", "/devices/register", {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"})
    exported = (await ada.send_ok("GET", "/fleet"))["document"]
    [entry] = exported["devices"]
    assert (await fleet(ada, "plan", exported, prune=True))["objects"] == []
    entry["externalId"] = "pump-1"
    applied = await fleet(ada, "apply", exported, prune=True)
    assert shown(applied) == [("CHANGE", "devices", entry["deviceId"], "externalId")]
    del entry["deviceId"]
    assert (await fleet(ada, "plan", exported, prune=True))["objects"] == []


async def test_each_error_names_its_place_and_undoes_everything(app: InProcessApp, ada: ApiCaller) -> None:
    device = DOCUMENT["devices"][1]
    cases: list[tuple[dict[str, Any], str, str]] = [
        (changed(devices=[device, device]), "VALIDATION_ERROR", "document.devices.1"),
        (changed(devices=[device | {"project": "Attic"}]), "VALIDATION_ERROR", "document.devices.0.project"),
        (changed(devices=[device | {"color": "red"}]), "VALIDATION_ERROR", "document.devices.0.color"),
        (changed(devices=[{**device, "externalId": None}]), "VALIDATION_ERROR", "document.devices.0.externalId"),
        (changed(grants=[{"apiKey": "nightly", "commands": ["ON"]}]), "VALIDATION_ERROR", "document.grants.0.device"),
        (
            changed(grants=[{"apiKey": "nightly", "device": "pump-2", "commands": []}]),
            "VALIDATION_ERROR",
            "document.grants.0.commands",
        ),
        (changed(projects=[{"name": "Default"}, {"name": "Default"}]), "VALIDATION_ERROR", "document.projects.1"),
        (
            one_device(schedules=[EVERY_DAY | {"onCommand": {"command": "SING"}}]),
            "UNKNOWN_COMMAND",
            "document.devices.0.schedules.0.onCommand.command",
        ),
        (one_device(rules=[HOT, HOT | {"priority": "high"}]), "VALIDATION_ERROR", "document.devices.0.rules.1.priority"),
        (
            changed(projects=[{"name": f"P{number}"} for number in range(MAX_OBJECTS + 1)]),
            "VALIDATION_ERROR",
            "document.projects",
        ),
    ]
    for document, code, place in cases:
        for step in ("plan", "apply"):
            found = await refusal(ada, document, step=step)
            assert (found[0], found[1][:1]) == (code, [place])
    assert await ada.send_ok("GET", "/devices") == []
    assert await ada.send_ok("GET", "/keys") == []


async def test_a_completed_slot_is_not_made_again(app: InProcessApp, ada: ApiCaller) -> None:
    on_s = app.clock.now_ms() // 1000 + 600
    once = one_device(schedules=[{"slot": 1, "onTs": on_s, "offTs": on_s + 60}])
    await fleet(ada, "apply", once, credentials="NEW")
    [device] = await ada.send_ok("GET", "/devices")
    for seconds in (601, 60):
        app.clock.forward(seconds=seconds)
        assert await app.services.firing.fire_due(app.clock.now_ms()) == 1
    [ended] = await ada.send_ok("GET", f"/devices/{device['deviceId']}/schedules/history")
    assert ended["status"] == "COMPLETED"
    assert (await fleet(ada, "apply", once, prune=True))["objects"] == []

    later = one_device(schedules=[{"slot": 1, "onTs": on_s + 7200, "offTs": on_s + 7260}])
    assert shown(await fleet(ada, "apply", later))[0][:3] == ("CHANGE", "schedules", "1")
    [planned] = await ada.send_ok("GET", f"/devices/{device['deviceId']}/schedules")
    assert (planned["onTs"], planned["status"]) == (on_s + 7200, "PENDING")


async def test_a_cancelled_slot_is_made_again(app: InProcessApp, ada: ApiCaller) -> None:
    once = one_device(schedules=[{"slot": 1, "onTs": SOON_S, "offTs": SOON_S + 60}])
    await fleet(ada, "apply", once)
    [device] = await ada.send_ok("GET", "/devices")
    await ada.send_ok("DELETE", f"/devices/{device['deviceId']}/schedules/1")
    assert shown(await fleet(ada, "plan", once)) == [("CREATE", "schedules", "1")]


async def test_an_apply_needs_what_its_single_calls_need(
    app: InProcessApp, account: CreatedAccountWithOwner, ada: ApiCaller
) -> None:
    await fleet(ada, "apply", DOCUMENT)
    await app.create_member(account, "max@example.com", Role.MEMBER)
    member = await app.sign_in("max@example.com")
    keys = {"apiKeys": [{"name": "nightly", "enabled": False}]}
    assert await refusal(member, keys) == ("ROLE_REQUIRED", ["document.apiKeys.0"])
    assert (await refusal(member, {"grants": DOCUMENT["grants"]}))[0] == "ROLE_REQUIRED"
    assert (await fleet(member, "plan", {"apiKeys": [{"name": "nightly"}]}))["objects"] == []
    exported = await member.send_ok("GET", "/fleet")
    assert exported["leftOut"] == ["grants", "webhooks"]
    assert (await fleet(member, "plan", exported["document"], prune=True))["objects"] == []
    lacks_grant = {"devices": [DOCUMENT["devices"][1] | {"schedules": [EVERY_DAY]}]}
    assert await refusal(member, lacks_grant) == ("GRANT_MISSING", ["document.devices.0.schedules.0"])
    until = to_iso(app.clock.now_ms() + 3_600_000)
    body = {"name": "ci", "role": "Admin", "operations": ["devices:write"], "expiresAt": until}
    made = await ada.send_ok("POST", "/service-sessions", body)
    robot = app.caller(Authorization=f"Bearer {made['token']}")
    assert (await fleet(robot, "apply", one_device(name="Pump")))["counts"]["change"] == 1
    assert (await refusal(robot, keys))[0] == "OPERATION_NOT_ALLOWED"
    assert (await robot.send_ok("GET", "/fleet"))["document"].keys() == {"version", "devices"}


async def test_the_log_has_the_event_of_each_change(app: InProcessApp, ada: ApiCaller) -> None:
    await fleet(ada, "apply", DOCUMENT, credentials="NEW")
    kinds = [each["eventType"] for each in (await ada.send_ok("GET", "/events?limit=200"))["data"]]
    wanted = {"device_registered": 2, "credentials_generated": 2, "schedule_created": 1, "grant_created": 4, "key_created": 1}
    assert {kind: kinds.count(kind) for kind in wanted} == wanted


async def test_prune_deletes_what_the_sections_do_not_name_and_nothing_else(app: InProcessApp, ada: ApiCaller) -> None:
    await fleet(ada, "apply", DOCUMENT)
    empty = {"projects": [{"name": "Default"}], "deviceTypes": [], "devices": [], "groups": []}
    planned = await fleet(ada, "plan", empty, prune=True)
    assert len(await ada.send_ok("GET", "/devices")) == 2
    applied = await fleet(ada, "apply", empty, prune=True)
    assert shown(applied) == shown(planned)
    assert [each[1:3] for each in shown(applied)] == [
        ("groups", "Greenhouse / Pumps"),
        ("devices", "pump-2"),
        ("devices", "pump-1"),
        ("deviceTypes", "Pump"),
        ("projects", "Greenhouse"),
    ]
    left = (await ada.send_ok("GET", "/fleet"))["document"]
    assert (left["projects"], left["devices"], left["deviceTypes"], left["grants"]) == ([{"name": "Default"}], [], [], [])
    assert [each["name"] for each in left["apiKeys"]] == ["nightly"]
    assert len(left["webhooks"]) == 1


async def refused(caller: ApiCaller, path: str, body: Any) -> tuple[int, str]:
    answer = await caller.send("POST", path, body)
    return answer.status_code, answer.json()["error"]


async def test_a_name_that_a_call_refuses_is_refused_in_a_file_and_the_other_way_round(app: InProcessApp, ada: ApiCaller) -> None:
    await fleet(ada, "apply", {**DOCUMENT, "apiKeys": [{"name": "nightly"}]})
    device = (await ada.send_ok("GET", "/devices?search=pump-1"))[0]["deviceId"]
    projects = {each["name"]: each["projectId"] for each in await ada.send_ok("GET", "/projects")}
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "projects": ("/projects", "PROJECT_EXISTS", {"name": "GREENHOUSE"}),
        "deviceTypes": ("/device-types", "DEVICE_TYPE_EXISTS", {"name": "pUMP", "commands": []}),
        "groups": ("/groups", "GROUP_EXISTS", {"name": "PUMPS", "projectId": projects["Greenhouse"]}),
    }
    for section, (path, code, body) in kinds.items():
        assert await refused(ada, path, body) == (409, code)
        entry = {"name": body["name"]} | ({"project": "Greenhouse"} if section == "groups" else {})
        for step in ("plan", "apply"):
            assert await refused(ada, f"/fleet/{step}", {"document": {section: [entry]}}) == (409, code), section
        twice = [{**entry, "name": "Twice"}, {**entry, "name": "TWICE"}]
        assert await refused(ada, "/fleet/apply", {"document": {section: twice}}) == (409, code), section
    group = (await ada.send_ok("POST", "/groups", {"name": "PUMPS"}))["groupId"]  # in another project
    assert (await ada.send("PATCH", f"/groups/{group}", {"name": "Pumps"})).status_code == 200, "its own name in another case"
    kind = await ada.send_ok("POST", "/device-types", {"name": "Lamp", "commands": []})
    renamed = await ada.send("PATCH", f"/device-types/{kind['deviceTypeId']}", {"name": "PUMP"})
    assert (renamed.status_code, renamed.json()["error"]) == (409, "DEVICE_TYPE_EXISTS")
    await app.report(device, temperature=21)
    for _ in range(2):
        await ada.send_ok("POST", "/keys", {"name": "Same"})
        await ada.send_ok("POST", f"/devices/{device}/rules", HOT)
    exported = (await ada.send_ok("GET", "/fleet"))["document"]
    assert [key["name"] for key in exported["apiKeys"]].count("Same") == 2
    assert (await fleet(ada, "plan", exported, prune=True))["objects"] == []


async def test_a_file_with_fewer_keys_of_a_name_than_there_are_is_refused(ada: ApiCaller) -> None:
    """It could mean either of them, and `prune` would delete the other."""
    for _ in range(2):
        await ada.send_ok("POST", "/keys", {"name": "Same"})
    answer = await ada.send("POST", "/fleet/plan", {"document": {"apiKeys": [{"name": "Same"}]}, "prune": True})
    assert answer.status_code == 400
    [detail] = answer.json()["details"]
    assert (detail["field"], "2 have the name" in detail["message"]) == ("document.apiKeys.0", True)
    grant = {"apiKey": "Same", "project": "Default", "commands": ["ON"]}
    assert (await ada.send("POST", "/fleet/plan", {"document": {"grants": [grant]}})).status_code == 400
