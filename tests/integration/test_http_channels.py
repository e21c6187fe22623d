"""Channels of a device in the composed program: described by people, commanded by kind, in groups, slots, rules and fleet files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.in_process_app import ApiCaller, InProcessApp, in_process_app

TWO = [{"channel": 1, "kind": "RELAY", "name": "Gate"}, {"channel": 2, "kind": "LEVEL", "name": "Lamp"}]
SOON_S = 4_000_000_000


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        yield program


@pytest.fixture
async def ada(app: InProcessApp) -> ApiCaller:
    await app.create_account("ada@example.com")
    return await app.sign_in("ada@example.com")


async def board(caller: ApiCaller, channels: list[dict[str, Any]] | None = None, **fields: Any) -> str:
    new = {"name": "Board", "boardType": "SONOFF", "appType": "RELAY", "profile": "tasmota"} | fields
    path = f"/devices/{(await caller.send_ok('POST', '/devices/register', new))['deviceId']}"
    await caller.send_ok("POST", f"{path}/credentials", {})
    if channels is not None:
        await caller.send_ok("PUT", path, {"channels": channels})
    return path


def shown(device: Any) -> list[tuple[int, str, str]]:
    return [(one["channel"], one["kind"], one["name"]) for one in device["channels"]]


async def test_a_device_of_one_relay_shows_one_channel(ada: ApiCaller) -> None:
    device = await ada.send_ok("GET", await board(ada))
    assert device["channels"] == [{"channel": 1, "kind": "RELAY", "name": "Relay", "state": None, "reportedAt": None}]


async def test_a_person_describes_channels_and_what_is_left_out_is_gone(ada: ApiCaller) -> None:
    path = await board(ada, TWO)
    assert shown(await ada.send_ok("GET", path)) == [(1, "RELAY", "Gate"), (2, "LEVEL", "Lamp")]
    await ada.send_ok("PUT", path, {"name": "Renamed"})
    assert len((await ada.send_ok("GET", path))["channels"]) == 2
    changed = await ada.send_ok("PUT", path, {"channels": [{"channel": 3, "kind": "INPUT"}]})
    assert shown(changed) == [(1, "RELAY", "Relay"), (3, "INPUT", "Input 3")], "every device has a channel 1"
    assert shown(await ada.send_ok("PUT", path, {"channels": []})) == [(1, "RELAY", "Relay")]


@pytest.mark.parametrize(
    ("channels", "field"),
    [
        ([{"channel": 0, "kind": "RELAY"}], "channels.0.channel"),
        ([{"channel": 65, "kind": "RELAY"}], "channels.0.channel"),
        ([{"channel": 1, "kind": "LASER"}], "channels.0.kind"),
        ([{"channel": 2, "kind": "RELAY"}, {"channel": 2, "kind": "INPUT"}], "channels.1.channel"),
        ([{"channel": 2, "kind": "RELAY", "name": "a\nb"}], "channels.0.name"),
    ],
)
async def test_a_wrong_description_is_refused_by_field(ada: ApiCaller, channels: list[Any], field: str) -> None:
    answer = await ada.send("PUT", await board(ada), {"channels": channels})
    assert answer.status_code == 400
    assert field in [one["field"] for one in answer.json()["details"]]


async def test_each_kind_has_its_commands_and_no_other(ada: ApiCaller) -> None:
    kinds = {"RELAY": 1, "LEVEL": 2, "COLOR": 3, "COVER": 4, "CLIMATE": 5, "INPUT": 6}
    path = await board(ada, [{"channel": number, "kind": kind} for kind, number in kinds.items()])
    listed = await ada.send_ok("GET", f"{path}/commands")
    by_kind = {
        kind: {one["name"] for one in listed if number in one["channels"] or not one["channels"]} - {"STATUS", "GET_SCHEDULES"}
        for kind, number in kinds.items()
    }
    switches = {"ON", "OFF", "TOGGLE"}
    assert by_kind == {
        "RELAY": switches,
        "LEVEL": switches | {"SET_LEVEL"},
        "COLOR": switches | {"SET_LEVEL", "SET_COLOR"},
        "COVER": {"OPEN", "CLOSE", "STOP", "SET_POSITION"},
        "CLIMATE": {"SET_TARGET", "SET_MODE"},
        "INPUT": set(),
    }
    for kind, number in kinds.items():
        for name in {one["name"] for one in listed} - by_kind[kind] - {"STATUS", "GET_SCHEDULES"}:
            answer = await ada.send("POST", f"{path}/command", {"cmd": name, "channel": number})
            assert (answer.status_code, answer.json()["error"]) == (400, "UNKNOWN_COMMAND"), (kind, name)


@pytest.mark.parametrize(
    ("channel", "cmd", "params"),
    [
        (2, "SET_LEVEL", None),
        (2, "SET_LEVEL", {"level": 101}),
        (2, "SET_LEVEL", {"level": 40, "speed": 1}),
        (2, "ON", {"level": 4}),
        (3, "SET_COLOR", {}),
        (3, "SET_COLOR", {"color": "red"}),
        (4, "SET_POSITION", {"position": -1}),
        (5, "SET_TARGET", {"celsius": "21"}),
        (5, "SET_MODE", {"mode": "BOIL"}),
    ],
)
async def test_parameters_that_do_not_fit_are_refused(ada: ApiCaller, channel: int, cmd: str, params: Any) -> None:
    kinds = ("RELAY", "LEVEL", "COLOR", "COVER", "CLIMATE")
    path = await board(ada, [{"channel": number, "kind": kind} for number, kind in enumerate(kinds, 1)])
    answer = await ada.send("POST", f"{path}/command", {"cmd": cmd, "channel": channel, "params": params})
    assert (answer.status_code, answer.json()["error"]) == (400, "INVALID_PARAMS")


async def test_a_channel_that_the_device_lacks_is_unknown_everywhere(ada: ApiCaller) -> None:
    path = await board(ada, TWO)
    away = {"command": "ON", "channel": 3}
    await ada.send_ok("POST", f"{path}/metrics", {"metrics": ["t"]})
    conditions = [{"metric": "t", "comparator": ">", "value": 1}]
    for method, below, body in (
        ("POST", "command", {"cmd": "ON", "channel": 3}),
        ("GET", "access?cmd=ON&channel=3", None),
        ("POST", "schedules", {"slot": 0, "onTs": SOON_S, "offTs": SOON_S + 60, "onCommand": away}),
        ("POST", "rules", {"name": "Hot", "conditions": conditions, "action": away}),
    ):
        answer = await ada.send(method, f"{path}/{below}", body)
        assert (answer.status_code, answer.json()["error"]) == (400, "UNKNOWN_CHANNEL"), below


async def test_the_same_key_with_another_channel_is_another_request(ada: ApiCaller) -> None:
    path = await board(ada, TWO)
    key = {"Idempotency-Key": "one"}
    first = await ada.send("POST", f"{path}/command", {"cmd": "ON", "channel": 2}, headers=key)
    again = await ada.send("POST", f"{path}/command", {"channel": 2, "cmd": "ON"}, headers=key)
    other = await ada.send("POST", f"{path}/command", {"cmd": "ON", "channel": 1}, headers=key)
    assert (first.status_code, again.json()) == (200, first.json())
    assert other.status_code == 409


async def test_a_slot_and_a_rule_keep_their_channel(ada: ApiCaller) -> None:
    path = await board(ada, TWO)
    on, off = {"command": "SET_LEVEL", "channel": 2, "params": {"level": 40}}, {"command": "OFF", "channel": 2, "params": None}
    await ada.send_ok(
        "POST", f"{path}/schedules", {"slot": 1, "onTs": SOON_S, "offTs": SOON_S + 60, "onCommand": on, "offCommand": off}
    )
    slot = await ada.send_ok("GET", f"{path}/schedules/1")
    assert (slot["onCommand"], slot["offCommand"]) == (on, off)
    await ada.send_ok("POST", f"{path}/metrics", {"metrics": ["t"]})
    rule = {"name": "Hot", "conditions": [{"metric": "t", "comparator": ">", "value": 1}], "action": on}
    made = await ada.send_ok("POST", f"{path}/rules", rule)
    assert (await ada.send_ok("GET", f"{path}/rules/{made['ruleId']}"))["action"] == on


async def test_a_group_is_commanded_by_kind_and_by_name(ada: ApiCaller) -> None:
    lamps = await board(
        ada, [{"channel": 1, "kind": "RELAY", "name": "Pump"}, *({"channel": n, "kind": "LEVEL"} for n in (2, 3))]
    )
    plain = await board(ada, name="Plain")
    ids = [path.rpartition("/")[2] for path in (lamps, plain)]
    group = f"/groups/{(await ada.send_ok('POST', '/groups', {'name': 'Hall', 'deviceIds': ids}))['groupId']}/command"
    report = await ada.send_ok("POST", group, {"cmd": "SET_LEVEL", "channelKind": "LEVEL", "params": {"level": 10}})
    assert [(one["deviceId"], one["channel"], one["error"]) for one in report["devices"]] == [
        (ids[0], 2, None),
        (ids[0], 3, None),
        (ids[1], 1, "UNKNOWN_CHANNEL"),
    ]
    assert (report["queued"], report["refused"]) == (2, 1)
    named = await ada.send_ok("POST", group, {"cmd": "ON", "channelName": "PUMP"})
    assert [(one["channel"], one["error"]) for one in named["devices"]] == [(1, None), (1, "UNKNOWN_CHANNEL")]


async def test_a_fleet_file_describes_channels_and_comes_back_the_same(ada: ApiCaller) -> None:
    rules = [
        {
            "name": "Hot",
            "conditions": [{"metric": "t", "comparator": ">", "value": 1}],
            "action": {"command": "SET_LEVEL", "params": {"level": 0}, "channel": 2},
        }
    ]
    slot = {"slot": 0, "onTs": SOON_S, "offTs": SOON_S + 60, "onCommand": {"command": "ON", "channel": 2}}
    device = {
        "externalId": "A1",
        "name": "Board",
        "boardType": "SONOFF",
        "appType": "RELAY",
        "channels": TWO,
        "metrics": ["t"],
        "rules": rules,
        "schedules": [slot | {"offCommand": {"command": "OFF", "channel": 2}}],
        "commands": [{"name": "ON", "label": "On", "channels": [1], "requiresApproval": True}],
    }
    grants = [{"commands": ["ON"], "apiKey": "agent", "device": "A1", "channels": [2]}]
    document = {"version": 1, "devices": [device], "apiKeys": [{"name": "agent"}], "grants": grants}
    await ada.send_ok("POST", "/fleet/apply", {"document": document})
    again = await ada.send_ok("POST", "/fleet/plan", {"document": document})
    assert [one for one in again["objects"] if one["action"] != "NONE"] == []
    exported = (await ada.send_ok("GET", "/fleet"))["document"]
    [one] = exported["devices"]
    assert one["channels"] == TWO
    assert one["rules"][0]["action"] == rules[0]["action"]
    assert one["schedules"][0]["onCommand"] == {"command": "ON", "channel": 2}
    assert one["commands"][0]["channels"] == [1]
    assert exported["grants"][0]["channels"] == [2]
    plan = await ada.send_ok("POST", "/fleet/plan", {"document": exported})
    assert [one for one in plan["objects"] if one["action"] != "NONE"] == []
    document["devices"] = [device | {"channels": [TWO[0], TWO[1] | {"name": "Bulb"}]}]
    changed = await ada.send_ok("POST", "/fleet/apply", {"document": document})
    assert [one["section"] for one in changed["objects"] if one["action"] == "CHANGE"] == ["devices"]
    left_out = {name: value for name, value in device.items() if name != "channels"}
    await ada.send_ok("POST", "/fleet/apply", {"document": document | {"devices": [left_out]}})
    [kept] = await ada.send_ok("GET", "/devices")
    assert shown(kept) == [(1, "RELAY", "Gate"), (2, "LEVEL", "Bulb")], "what is left out is not managed"
