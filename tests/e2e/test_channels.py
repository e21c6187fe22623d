"""A board with several channels and native firmware: the program names, commands, schedules and shows each; with SIGKILL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.device import Device, DeviceConnection, create_device
from support.mcp_agent import agent_over_http
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

HELLO = {"fw": "2.0.0", "ch": ["RELAY", "RELAY", "LEVEL", "COVER", "INPUT"], "names": ["Gate", "Light", "Lamp", "Vent", "Bell"]}


class Board(DeviceConnection):
    """Firmware that knows channels: it switches the one that a command names. `ran`: (command, channel) of what it did."""

    ran: list[tuple[str, int]]

    async def reply(self, order: dict[str, Any]) -> None:
        channel = order.get("ch", 1)
        self.ran.append((order["cmd"], channel))
        on = {"ON": "ON", "OFF": "OFF", "SET_LEVEL": "ON"}.get(order["cmd"])
        state: dict[str, Any] = {"ch": channel, "by": "cmd", "id": order["id"]} | ({} if on is None else {"relay": on})
        state |= {"level": order["params"]["level"]} if order["cmd"] == "SET_LEVEL" else {}
        state |= {"position": order["params"]["position"]} if order["cmd"] == "SET_POSITION" else {}
        await self.publish("state", state)
        await self.publish("result", {"id": order["id"], "status": "done"} | ({} if on is None else {"relay": on}))


@asynccontextmanager
async def connected(service: Service, device: Device, *, hello: Any = HELLO, auto_reply: bool = True) -> AsyncIterator[Board]:
    async with device.online(service, auto_reply=auto_reply) as line:
        line.__class__ = Board
        assert isinstance(line, Board)
        line.ran = []
        if hello is not None:
            await line.publish("hello", hello)
        yield line


async def states(owner: ApiClient, device: Device) -> dict[str, Any]:
    return {one["name"]: one["state"] for one in (await owner.get(device.path))["channels"]}


async def send(owner: ApiClient, device: Device, cmd: str, channel: int, **more: Any) -> Any:
    return await owner.post(f"{device.path}/command", {"cmd": cmd, "channel": channel, "waitSeconds": 10} | more)


async def events(owner: ApiClient, device: Device, kind: str) -> list[str]:
    """What the log says of them, oldest first."""
    page = await owner.get("/events", params={"deviceId": device.device_id, "type": kind})
    return [one["description"] for one in reversed(page["data"])]


async def test_each_channel_is_named_switched_and_shown_by_itself(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    async with service.feed(owner) as feed, connected(service, device) as board:
        assert await states(owner, device) == dict.fromkeys(("Gate", "Light", "Lamp", "Vent", "Bell"))
        for cmd, channel, params in (
            ("ON", 2, None),
            ("SET_LEVEL", 3, {"level": 40}),
            ("SET_POSITION", 4, {"position": 30}),
            ("OFF", 1, None),
        ):
            answer = await send(owner, device, cmd, channel, params=params)
            assert answer["status"] == "DONE", (cmd, channel)
        assert board.ran == [("ON", 2), ("SET_LEVEL", 3), ("SET_POSITION", 4), ("OFF", 1)]
        shown = await states(owner, device)
        assert shown == {
            "Gate": "OFF",
            "Light": "ON",
            "Lamp": {"power": "ON", "level": 40},
            "Vent": {"position": 30, "moving": None},
            "Bell": None,
        }
        assert (await owner.get(device.path))["relayState"] is False, "channel 1 is the relay"
        switched = await feed.wait_for("relay_changed", channel=2)
        assert (switched["relay"], switched["triggeredBy"]) == ("ON", "user")
        moved = await feed.wait_for("state_changed", channel=4)
        assert (moved["name"], moved["state"]) == ("Vent", {"position": 30, "moving": None})


async def test_old_firmware_gets_plain_commands_of_its_relay_and_none_of_another_channel(
    service: Service, owner: ApiClient
) -> None:
    """It does not know `ch`, and would switch its only relay."""
    device = await create_device(owner)
    await owner.call("PUT", device.path, {"channels": [{"channel": 2, "kind": "RELAY", "name": "Light"}]}, 200)
    async with connected(service, device, hello={"fw": "1.0.0"}) as board:
        answer = await send(owner, device, "ON", 2)
        assert (answer["status"], answer["result"]["code"]) == ("FAILED", "UNKNOWN_CHANNEL")
        assert (await send(owner, device, "ON", 1))["status"] == "DONE"
        assert [sorted(order) for order in board.commands] == [["cmd", "exp", "id", "params"]]


async def test_after_a_downgrade_nothing_of_another_channel_is_sent(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    async with connected(service, device):
        await owner.wait_until(device.path, lambda found: len(found["channels"]) == 5)
    waiting = await owner.post(f"{device.path}/command", {"cmd": "ON", "channel": 2, "ttlSeconds": 600})
    async with connected(service, device, hello=None) as board:
        plain = await owner.post(f"{device.path}/command", {"cmd": "OFF", "waitSeconds": 10})
        assert plain["status"] == "DONE", "the relay does not wait for what the firmware says of others"
        assert board.ran == [("OFF", 1)]
        await board.publish("hello", {"fw": "1.0.0"})
        path = f"{device.path}/executions/{waiting['executionId']}"
        ended = await owner.wait_until(path, lambda found: found["finishedAt"] is not None)
        assert (ended["status"], ended["result"]["code"]) == ("FAILED", "UNKNOWN_CHANNEL")
        assert board.ran == [("OFF", 1)]


async def test_a_command_that_waits_for_a_channel_is_sent_once_though_the_program_is_killed(
    service: Service, owner: ApiClient
) -> None:
    device = await create_device(owner)
    async with connected(service, device):
        await owner.wait_until(device.path, lambda found: len(found["channels"]) == 5)
    waiting = await owner.post(f"{device.path}/command", {"cmd": "ON", "channel": 2, "ttlSeconds": 600})
    await service.kill_and_restart()
    async with connected(service, device) as board:
        path = f"{device.path}/executions/{waiting['executionId']}"
        ended = await owner.wait_until(path, lambda found: found["finishedAt"] is not None)
        assert (ended["status"], ended["channel"], board.ran) == ("DONE", 2, [("ON", 2)])
    await service.kill_and_restart()
    assert (await states(owner, device))["Light"] == "ON"


async def test_every_press_is_an_event_and_fires_a_rule(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    async with connected(service, device) as board:
        await owner.post(f"{device.path}/metrics", {"metrics": ["input5"]})
        rule = {
            "name": "Bell",
            "conditions": [{"metric": "input5", "comparator": "==", "value": "SINGLE"}],
            "action": {"command": "ON", "channel": 2},
        }
        await owner.post(f"{device.path}/rules", rule, expect=201)
        for count in (1, 2, 3):
            await board.publish("state", {"ch": 5, "action": "SINGLE"})
            async with asyncio.timeout(TIMEOUT_S):
                while len(board.ran) < count:
                    await asyncio.sleep(0.02)
        await board.publish("state", {"ch": 5, "action": "LONG"})
        assert await board.drain_commands(owner) == ["ON", "ON", "ON"]
        assert board.ran[:3] == [("ON", 2)] * 3
        async with asyncio.timeout(TIMEOUT_S):
            while len(pressed := await events(owner, device, "input_changed")) < 4:
                await asyncio.sleep(0.05)
        assert pressed == [*["Bell: SINGLE"] * 3, "Bell: LONG"]
        assert (await states(owner, device))["Bell"] == "LONG"


async def test_what_cannot_be_applied_is_told_and_not_lost_in_silence(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    async with connected(service, device) as board:
        await board.publish("state", {"ch": 9, "relay": "ON"})
        await board.publish("state", {"ch": 5, "action": "SINGLE"}, retain=True)
        await board.publish("state", {"ch": 65, "relay": "ON"})
        await board.publish("state", {"ch": 3})
        async with asyncio.timeout(TIMEOUT_S):
            while len(dropped := await events(owner, device, "device_message_dropped")) < 3:
                await asyncio.sleep(0.05)
        for reason in ("UNKNOWN_CHANNEL", "RETAINED_PRESS", "MALFORMED"):
            assert any(reason in one for one in dropped), reason
        assert await events(owner, device, "input_changed") == []


async def test_a_slot_of_another_channel_is_in_the_plan_while_the_firmware_knows_the_channel(
    service: Service, owner: ApiClient
) -> None:
    device = await create_device(owner)
    async with connected(service, device) as board:
        await owner.wait_until(device.path, lambda found: len(found["channels"]) == 5)
        at_s = int(time.time()) + 3_600
        slot = {"slot": 0, "onTs": at_s, "offTs": at_s + 60}
        second = {"onCommand": {"command": "ON", "channel": 2}, "offCommand": {"command": "OFF", "channel": 2}}
        await owner.post(f"{device.path}/schedules", slot, expect=201)
        await owner.post(f"{device.path}/schedules", slot | {"slot": 1} | second, expect=201)
        plan = await board.wait_for_plan(lambda found: len(found["s"]) == 2)
        assert plan["s"] == [[0, at_s, at_s + 60, True], [1, at_s, at_s + 60, True, 2]]
        await board.publish("sched/rev", {"rev": plan["rev"]})
        path = f"{device.path}/schedules/1"
        assert (await owner.wait_until(path, lambda found: found["firmwareSynced"]))["firmwareSynced"]
    async with connected(service, device, hello={"fw": "1.0.0", "sched": plan["rev"]}) as board:
        await board.wait_for_plan(lambda found: found["s"] == [[0, at_s, at_s + 60, True]])
        assert not (await owner.get(path))["firmwareSynced"], "old firmware would take it for its relay"


async def test_a_message_for_one_channel_says_nothing_of_another(service: Service, owner: ApiClient) -> None:
    """A result that names no channel is of the command's channel; of an unknown command it says nothing."""
    device = await create_device(owner)
    async with connected(service, device, auto_reply=False) as board:
        await board.publish("state", {"ch": 1, "relay": "OFF"})
        await board.publish("state", {"ch": 2, "relay": "OFF"})
        sent = await owner.post(f"{device.path}/command", {"cmd": "ON", "channel": 2})
        order = await board.next_command("ON")
        assert (order["id"], order["ch"]) == (sent["executionId"], 2)
        await board.publish("result", {"id": order["id"], "status": "done", "relay": "ON"})
        await board.publish("result", {"id": "exe_unknown", "status": "done", "relay": "ON"})
        shown = await states(owner, device)
        assert (shown["Gate"], shown["Light"]) == ("OFF", "ON")


async def test_a_cover_is_neither_on_nor_off(service: Service, owner: ApiClient) -> None:
    """Firmware that says so all the same changes nothing, and nobody is told that a relay has switched."""
    device = await create_device(owner)
    async with connected(service, device) as board:
        await board.publish("state", {"ch": 4, "relay": "ON", "position": 70})
        assert (await states(owner, device))["Vent"] == {"position": 70, "moving": None}
        assert await events(owner, device, "relay_changed") == []


async def test_an_agent_switches_the_channel_that_it_is_granted_and_no_other(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    async with connected(service, device) as board:
        await owner.wait_until(device.path, lambda found: len(found["channels"]) == 5)
        key = await owner.post("/keys", {"name": "Agent"}, expect=201)
        grant = {"commands": ["*"], "apiKeyId": key["keyId"], "scope": "FULL", "channels": [2]}
        await owner.post(f"{device.path}/grants", grant, expect=201)
        async with agent_over_http(service, key["key"]) as agent:
            [shown] = (await agent.use("list_devices"))["devices"]
            assert [(one["channel"], one["name"]) for one in shown["channels"]][:2] == [(1, "Gate"), (2, "Light")]
            order = {"device_id": device.device_id, "command": "ON", "reason": "It is dark"}
            for more in ({"channel": 1}, {}, {"channel": 3}):
                refused = await agent.use("send_command", **order, **more)
                assert (refused["allowed"], refused["error"]) == (False, "CHANNEL_NOT_GRANTED"), more
            explained = await agent.use("explain_access", device_id=device.device_id, command="ON", channel=1)
            assert (explained["allowed"], explained["code"]) == (False, "CHANNEL_NOT_GRANTED")
            assert (await agent.use("send_command", **order, channel=2))["status"] == "DONE"
        assert board.ran == [("ON", 2)]
