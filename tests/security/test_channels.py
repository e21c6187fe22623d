"""A key that is granted one channel cannot touch another: by no command, in no way, at no door."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.commands.model import CHANNEL_COMMANDS
from domain.kernel.caller import Role
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

CHANNELS = [
    {"channel": 1, "kind": "RELAY", "name": "Gate"},
    {"channel": 2, "kind": "RELAY", "name": "Light"},
    {"channel": 3, "kind": "LEVEL", "name": "Lamp"},
    {"channel": 4, "kind": "COVER", "name": "Vent"},
    {"channel": 5, "kind": "CLIMATE", "name": "Heater"},
    {"channel": 6, "kind": "COLOR", "name": "Strip"},
]
PARAMS: dict[str, Any] = {
    "SET_LEVEL": {"level": 100},
    "SET_COLOR": {"color": "#ffffff"},
    "SET_POSITION": {"position": 100},
    "SET_TARGET": {"celsius": 30},
    "SET_MODE": {"mode": "HEAT"},
}
BY_KIND = {
    "RELAY": ("ON", "OFF", "TOGGLE"),
    "LEVEL": ("ON", "OFF", "TOGGLE", "SET_LEVEL"),
    "COVER": ("OPEN", "CLOSE", "STOP", "SET_POSITION"),
    "CLIMATE": ("SET_TARGET", "SET_MODE"),
    "COLOR": ("ON", "OFF", "TOGGLE", "SET_LEVEL", "SET_COLOR"),
}
ATTACKS = [(one["channel"], command) for one in CHANNELS if one["channel"] != 2 for command in BY_KIND[str(one["kind"])]]
RAW = ("POWER1", "POWER", "POWER3", "BACKLOG", "DIMMER", "SHUTTEROPEN1", "RULE1", "PULSETIME1")
"""Commands of stock firmware under their own names."""
SOON_S = 1_800_003_600


class Board:
    """A board of six channels, and a key that is granted everything on channel 2."""

    def __init__(self, app: InProcessApp, owner: ApiCaller, key: ApiCaller, key_id: str, path: str) -> None:
        self.app, self.owner, self.key, self.key_id, self.path = app, owner, key, key_id, path

    async def command(self, caller: ApiCaller, cmd: str, channel: int | None, **more: Any) -> Any:
        body = {"cmd": cmd, **({} if channel is None else {"channel": channel}), **more}
        if cmd in PARAMS:
            body["params"] = PARAMS[cmd]
        return await caller.send("POST", f"{self.path}/command", body)

    async def ran(self) -> list[tuple[str, int]]:
        found = await self.owner.send_ok("GET", f"{self.path}/executions")
        return [(each["cmd"], each["channel"]) for each in found["data"]]


@pytest.fixture(params=DATABASES)
async def board(request: pytest.FixtureRequest) -> AsyncIterator[Board]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        settings = {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), **settings) as program:
            account = await program.create_account("owner@example.com")
            await program.create_member(account, "member@example.com", Role.MEMBER)
            owner = await program.sign_in("owner@example.com")
            new = {"name": "Board", "boardType": "SONOFF_4CH", "appType": "RELAY", "profile": "tasmota"}
            device_id = (await owner.send_ok("POST", "/devices/register", new))["deviceId"]
            path = f"/devices/{device_id}"
            await owner.send_ok("POST", f"{path}/credentials", {})
            await owner.send_ok("PUT", path, {"channels": CHANNELS})
            made = await owner.send_ok("POST", "/keys", {"name": "agent"})
            for name in RAW:
                await owner.send_ok("POST", f"{path}/commands", {"name": name, "label": name})
            grant = {"commands": ["*"], "scope": "FULL", "apiKeyId": made["keyId"], "channels": [2]}
            await owner.send_ok("POST", f"{path}/grants", grant)
            yield Board(program, owner, program.caller(X_Api_Key=made["key"]), made["keyId"], path)


def refused(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", "")


async def test_every_command_of_every_other_channel_is_refused(board: Board) -> None:
    assert {command for _, command in ATTACKS} >= {each.name for each in CHANNEL_COMMANDS}
    for channel, command in ATTACKS:
        answer = await board.command(board.key, command, channel)
        assert refused(answer) == (403, "CHANNEL_NOT_GRANTED"), (channel, command)
        access = await board.key.send_ok("GET", f"{board.path}/access?cmd={command}&channel={channel}")
        assert (access["allowed"], access["code"]) == (False, "CHANNEL_NOT_GRANTED"), (channel, command)
    assert refused(await board.command(board.key, "ON", None)) == (403, "CHANNEL_NOT_GRANTED"), (
        "without a channel it is the relay"
    )
    assert refused(await board.key.send("POST", f"{board.path}/command/on")) == (403, "CHANNEL_NOT_GRANTED")
    assert await board.ran() == []
    assert (await board.command(board.key, "ON", 2)).status_code == 200
    assert (await board.key.send_ok("GET", f"{board.path}/access?cmd=ON&channel=2"))["allowed"] is True
    assert await board.ran() == [("ON", 2)]


async def test_a_stock_command_under_its_own_name_counts_as_what_it_switches(board: Board) -> None:
    """`POWER1` with `channel: 2` switches relay 1, whatever is said beside it."""
    for name in RAW:
        answer = await board.command(board.key, name, 2, params="ON")
        assert refused(answer) == (403, "CHANNEL_NOT_GRANTED"), name
    await board.owner.send_ok("POST", f"{board.path}/commands", {"name": "POWER2", "label": "Second"})
    assert (await board.command(board.key, "POWER2", 2, params="ON")).status_code == 200
    assert await board.ran() == [("POWER2", 2)]


async def test_a_group_gives_no_way_round(board: Board) -> None:
    new = {"name": "All", "deviceIds": [board.path.rpartition("/")[2]]}
    group = f"/groups/{(await board.owner.send_ok('POST', '/groups', new))['groupId']}"
    for channel, command in ATTACKS:
        body = {"cmd": command, "channel": channel, "params": PARAMS.get(command)}
        [one] = (await board.key.send_ok("POST", f"{group}/command", body))["devices"]
        assert (one["outcome"], one["error"]) == ("REFUSED", "CHANNEL_NOT_GRANTED"), (channel, command)
    report = await board.key.send_ok("POST", f"{group}/command", {"cmd": "ON", "channelKind": "RELAY"})
    assert [(one["channel"], one["error"]) for one in report["devices"]] == [(1, "CHANNEL_NOT_GRANTED"), (2, None)]
    named = await board.key.send_ok("POST", f"{group}/command", {"cmd": "ON", "channelName": "gate"})
    assert [(one["channel"], one["error"]) for one in named["devices"]] == [(1, "CHANNEL_NOT_GRANTED")]
    assert await board.ran() == [("ON", 2)]


async def test_a_member_saves_no_slot_or_rule_of_a_channel_that_is_not_granted(board: Board) -> None:
    member = await board.app.sign_in("member@example.com")
    members = await board.owner.send_ok("GET", "/members")
    mine = next(each["membershipId"] for each in members if each["email"] == "member@example.com")
    await board.owner.send_ok(
        "POST", f"{board.path}/grants", {"commands": ["*"], "scope": "FULL", "membershipId": mine, "channels": [2]}
    )
    await board.owner.send_ok("POST", f"{board.path}/metrics", {"metrics": ["temperature"]})
    conditions = [{"metric": "temperature", "comparator": ">", "value": 30}]
    for channel, command in ATTACKS:
        action = {"command": command, "channel": channel, "params": PARAMS.get(command)}
        slot = {"slot": 0, "onTs": SOON_S, "offTs": SOON_S + 60, "onCommand": action, "offCommand": action}
        assert refused(await member.send("POST", f"{board.path}/schedules", slot)) == (403, "CHANNEL_NOT_GRANTED")
        half = slot | {"onCommand": {"command": "ON", "channel": 2}}
        assert refused(await member.send("POST", f"{board.path}/schedules", half)) == (403, "CHANNEL_NOT_GRANTED")
        rule = {"name": f"{command} {channel}", "conditions": conditions, "action": action}
        assert refused(await member.send("POST", f"{board.path}/rules", rule)) == (403, "CHANNEL_NOT_GRANTED")
    own = {"command": "ON", "channel": 2}
    slot = {"slot": 0, "onTs": SOON_S, "offTs": SOON_S + 60, "onCommand": own, "offCommand": {"command": "OFF", "channel": 2}}
    assert (await member.send("POST", f"{board.path}/schedules", slot)).status_code == 201
    rule_id = (await member.send_ok("POST", f"{board.path}/rules", {"name": "Hot", "conditions": conditions, "action": own}))[
        "ruleId"
    ]
    moved = {"action": {"command": "ON", "channel": 1}}
    assert refused(await member.send("PATCH", f"{board.path}/rules/{rule_id}", moved)) == (403, "CHANNEL_NOT_GRANTED")
    assert refused(await member.send("PUT", f"{board.path}/schedules/0", {"onCommand": moved["action"]})) == (
        403,
        "CHANNEL_NOT_GRANTED",
    )


async def test_a_queued_command_ends_with_its_channel(board: Board) -> None:
    """It waits for the device while the grant loses the channel."""
    assert (await board.command(board.key, "ON", 2, ttlSeconds=3_600)).status_code == 200
    [grant] = await board.owner.send_ok("GET", f"{board.path}/grants")
    await board.owner.send_ok("PATCH", f"{board.path}/grants/{grant['grantId']}", {"channels": [1]})
    [one] = (await board.owner.send_ok("GET", f"{board.path}/executions"))["data"]
    assert (one["status"], one["result"]["code"]) == ("CANCELLED", "CHANNEL_NOT_GRANTED")


async def test_an_approval_of_one_channel_is_none_of_another(board: Board) -> None:
    guarded = {"name": "ON", "label": "On", "requiresApproval": True, "channels": [2, 3]}
    await board.owner.send_ok("POST", f"{board.path}/commands", guarded)
    await board.owner.send_ok("POST", f"{board.path}/grants", {"commands": ["*"], "scope": "FULL", "apiKeyId": board.key_id})
    answers = {channel: (await board.command(board.key, "ON", channel)).status_code for channel in (1, 2, 3)}
    assert answers == {1: 200, 2: 202, 3: 202}
    for command, channel, status in (("TOGGLE", 2, 202), ("TOGGLE", 1, 200), ("SET_LEVEL", 3, 202), ("OFF", 2, 200)):
        assert (await board.command(board.key, command, channel)).status_code == status, (command, channel)
    for name, status in (("POWER1", 200), ("POWER3", 202), ("BACKLOG", 202)):  # any channel may be meant
        assert (await board.command(board.key, name, 1, params="ON")).status_code == status, name
    waiting = await board.owner.send_ok("GET", "/approvals?status=PENDING")
    first = min(waiting, key=lambda one: one["createdAt"])
    assert {(one["cmd"], one["channel"]) for one in waiting} >= {("ON", 2), ("ON", 3), ("TOGGLE", 2), ("SET_LEVEL", 3)}
    approved = await board.owner.send_ok("POST", f"{board.path}/approvals/{first['approvalId']}/approve")
    one = await board.owner.send_ok("GET", f"{board.path}/executions/{approved['executionId']}")
    assert (one["cmd"], one["channel"]) == (first["cmd"], first["channel"])


async def test_a_member_takes_no_approval_away_by_choosing_channels(board: Board) -> None:
    member = await board.app.sign_in("member@example.com")
    guarded = {"name": "ON", "label": "On", "requiresApproval": True, "channels": [2]}
    await board.owner.send_ok("POST", f"{board.path}/commands", guarded)
    found = await board.owner.send_ok("GET", f"{board.path}/commands")
    command_id = next(one["commandId"] for one in found if one["name"] == "ON" and one["channels"] == [2])
    for change in ({"channels": [1]}, {"channels": []}, {"requiresApproval": False}):
        answer = await member.send("PATCH", f"{board.path}/commands/{command_id}", change)
        assert refused(answer) == (403, "ROLE_REQUIRED"), change


async def test_an_admin_lifts_no_approval_that_a_request_waits_for_by_choosing_channels(board: Board) -> None:
    account_admin = {"cmd": "ON", "channel": 2}
    await board.owner.send_ok("POST", f"{board.path}/commands", {"name": "ON", "label": "On", "requiresApproval": True})
    assert (await board.key.send("POST", f"{board.path}/command", account_admin)).status_code == 202
    found = await board.owner.send_ok("GET", f"{board.path}/commands")
    command_id = next(one["commandId"] for one in found if one["name"] == "ON" and one["commandId"])
    members = await board.owner.send_ok("GET", "/members")
    mine = next(each["membershipId"] for each in members if each["email"] == "member@example.com")
    await board.owner.send_ok("PATCH", f"/members/{mine}", {"role": "Admin"})
    admin = await board.app.sign_in("member@example.com")
    path = f"{board.path}/commands/{command_id}"
    assert refused(await admin.send("PATCH", path, {"channels": [1]})) == (409, "REQUEST_PENDING")
    assert (await admin.send("PATCH", path, {"channels": [2]})).status_code == 200


async def test_a_grant_with_more_channels_is_a_wider_one(board: Board) -> None:
    """While a request of the key waits, an Admin does not give it more."""
    await board.owner.send_ok("POST", f"{board.path}/commands", {"name": "ON", "label": "On", "requiresApproval": True})
    assert (await board.command(board.key, "ON", 2)).status_code == 202
    members = await board.owner.send_ok("GET", "/members")
    mine = next(each["membershipId"] for each in members if each["email"] == "member@example.com")
    await board.owner.send_ok("PATCH", f"/members/{mine}", {"role": "Admin"})
    admin = await board.app.sign_in("member@example.com")
    [grant] = await board.owner.send_ok("GET", f"{board.path}/grants")
    for channels in ([1, 2], []):
        answer = await admin.send("PATCH", f"{board.path}/grants/{grant['grantId']}", {"channels": channels})
        assert refused(answer) == (409, "REQUEST_PENDING"), channels
