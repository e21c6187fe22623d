"""Native firmware and its channels: what it names in `hello`, what it gets, and what firmware of yesterday never gets.

Firmware that does not know channels would take a command for another channel for its only relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from support.device import Device, DeviceConnection, create_device
from support.example_firmware import BUTTON_CHANNEL, KINDS, NetworkCable, run_example
from support.service import ApiClient, Service

TWO_RELAYS = {"fw": "2", "sched": 0, "ch": ["RELAY", "RELAY"], "names": ["Pump", "Light"]}
OLD = {"fw": "1", "sched": 0}


async def config_block(owner: ApiClient, device: Device, kind: str) -> str:
    block: str = (await owner.get(f"{device.path}/config?format={kind}"))["configBlock"]
    return block.replace("YOUR_MQTT_PASSWORD", device.credentials["mqttPassword"])


async def command(owner: ApiClient, device: Device, cmd: str, channel: int, **more: Any) -> dict[str, Any]:
    """The execution, as it is after `waitSeconds`."""
    answer = await owner.post(f"{device.path}/command", {"cmd": cmd, "channel": channel, **more})
    found: dict[str, Any] = await owner.get(f"{device.path}/executions/{answer['executionId']}")
    return found


async def named(owner: ApiClient, device: Device, count: int) -> None:
    await owner.wait_until(device.path, lambda found: len(found["channels"]) == count)


async def after_a_hello(owner: ApiClient, device: Device, service: Service) -> None:
    """The device has named two relays, and is offline now."""
    async with device.online(service) as line:
        await line.publish("hello", TWO_RELAYS)
        await named(owner, device, 2)
    await owner.wait_until(device.path, lambda found: not found["isOnline"])


async def finished(owner: ApiClient, device: Device, execution: dict[str, Any]) -> dict[str, Any]:
    path = f"{device.path}/executions/{execution['executionId']}"
    found: dict[str, Any] = await owner.wait_until(path, lambda one: one["finishedAt"] is not None)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_the_example_firmware_switches_each_relay_and_tells_presses(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str
) -> None:
    board_device = await create_device(owner)
    async with service.feed(owner, f"?deviceId={board_device.device_id}") as feed:
        block = await config_block(owner, board_device, kind)
        async with run_example(kind, block, tmp_path, two_relays=True) as board:
            found = await owner.wait_until(board_device.path, lambda found: len(found["channels"]) == 3)
            described = [(each["channel"], each["kind"], each["name"]) for each in found["channels"]]
            assert described == [(1, "RELAY", "Relay"), (2, "RELAY", "Light"), (3, "INPUT", "Button")]
            done = await command(owner, board_device, "ON", 2, waitSeconds=30)
            assert (done["status"], done["channel"]) == ("DONE", 2)
            assert (await feed.wait_for("relay_changed", channel=2, relay="ON"))["triggeredBy"] == "user"
            assert (board.states_of(2), board.relay_states) == (["OFF", "ON"], ["OFF"])
            assert (await owner.get(board_device.path))["relayState"] is False
            await board.hold_button(down=True)
            pressed = await feed.wait_for("input_changed", channel=BUTTON_CHANNEL)
            await board.hold_button(down=False)
            assert (pressed["action"], pressed["name"]) == ("LONG", "Button")
            health = (await owner.get(board_device.path))["health"]
            assert health["lastDrop"] is None
    assert not service.error_lines()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_second_relay_runs_its_slot_while_the_network_is_down(
    service: Service, owner: ApiClient, tmp_path: Path, kind: str
) -> None:
    device, cable = await create_device(owner), NetworkCable(service.mqtt_port)
    path, block = f"{device.path}/schedules", await config_block(owner, device, kind)
    await cable.plug_in()
    block = block.replace(str(service.mqtt_port), str(cable.port))
    async with run_example(kind, block, tmp_path, two_relays=True) as board:
        await named(owner, device, 3)
        on_ts = int(time.time()) + 15  # the network is down before
        edges = {edge: {"command": cmd, "channel": 2} for edge, cmd in (("onCommand", "ON"), ("offCommand", "OFF"))}
        await owner.post(path, {"slot": 0, "onTs": on_ts, "offTs": on_ts + 3_600, **edges}, expect=201)
        await owner.wait_until(path, lambda found: found[0]["firmwareSynced"])
        await cable.unplug()
        await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "LEFT_TO_DEVICE")
        await board.wait_for_relay("OFF", "ON", relay=2)
        await cable.plug_in()
        [ran] = await owner.wait_until(path, lambda found: found[0]["lastOutcome"] != "LEFT_TO_DEVICE")
        assert (ran["lastOutcome"], ran["status"]) == ("RAN_ON_DEVICE", "ACTIVE")
        assert (board.states_of(2), board.relay_states) == (["OFF", "ON"], ["OFF"]), "the service did not switch it again"
    await cable.unplug()


async def test_a_command_for_another_channel_waits_until_the_connected_firmware_has_named_it(
    service: Service, owner: ApiClient
) -> None:
    device = await create_device(owner)
    await after_a_hello(owner, device, service)
    waiting = await command(owner, device, "ON", 2)
    assert waiting["status"] == "QUEUED"
    async with device.online(service) as line:
        assert await line.drain_commands(owner) == [], "only what is for the relay"
        await line.publish("hello", TWO_RELAYS)
        order = await line.next_command("ON")
        assert (order["id"], order["ch"]) == (waiting["executionId"], 2)
        assert (await finished(owner, device, waiting))["status"] == "DONE"


async def test_firmware_of_yesterday_gets_no_command_for_another_channel(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    await after_a_hello(owner, device, service)
    waiting = await command(owner, device, "ON", 2)
    async with device.online(service) as line:  # a downgrade
        await line.publish("hello", OLD)
        failed = await finished(owner, device, waiting)
        assert (failed["status"], failed["result"]["code"]) == ("FAILED", "UNKNOWN_CHANNEL")
        assert await line.drain_commands(owner) == []
        assert not line.relay
        refused = await owner.post(f"{device.path}/command", {"cmd": "ON", "channel": 3}, expect=400)
        assert refused["error"] == "UNKNOWN_CHANNEL"


async def test_a_channel_that_only_a_person_has_named_is_not_sent_to_firmware_of_yesterday(
    service: Service, owner: ApiClient
) -> None:
    device = await create_device(owner)
    described = {"channels": [{"channel": 2, "kind": "RELAY", "name": "Light"}]}
    await owner.call("PUT", device.path, described, 200)
    waiting = await command(owner, device, "ON", 2)
    async with device.online(service) as line:
        await line.publish("hello", OLD)
        assert (await finished(owner, device, waiting))["result"]["code"] == "UNKNOWN_CHANNEL"
        at_once = await command(owner, device, "ON", 2, waitSeconds=30)
        assert (at_once["status"], at_once["result"]["code"]) == ("FAILED", "UNKNOWN_CHANNEL")
        assert await line.drain_commands(owner) == []


async def lost_on_the_way(owner: ApiClient, device: Device, service: Service) -> dict[str, Any]:
    """Commands for both relays, which the device got and did not answer; then it lost its connection."""
    async with device.online(service, auto_reply=False) as line:
        await line.publish("hello", TWO_RELAYS)
        await named(owner, device, 2)
        light = await command(owner, device, "ON", 2, ttlSeconds=600)
        await line.next_command("ON")
        await command(owner, device, "OFF", 1, ttlSeconds=600)
        await line.next_command("OFF")
        await owner.wait_until(f"{device.path}/executions/{light['executionId']}", lambda one: one["status"] == "SENT")
    return light


@pytest.mark.parametrize("hello_first", [True, False], ids=["hello first", "subscription first"])
async def test_what_was_lost_with_a_connection_is_sent_again_after_hello(
    service: Service, owner: ApiClient, hello_first: bool
) -> None:
    device = await create_device(owner)
    light = await lost_on_the_way(owner, device, service)
    if hello_first:
        async with device.client(service) as client:
            line = DeviceConnection(device, client)
            await line.publish("hello", TWO_RELAYS)
            await client.subscribe(device.topic("cmd"), qos=1)
            listening = asyncio.create_task(line.listen())
            orders = [await line.next_command() for _ in range(2)]
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            assert line.duplicates == 0
    else:
        async with device.online(service) as line:
            orders = [await line.next_command("OFF")]
            await line.publish("hello", TWO_RELAYS)
            orders.append(await line.next_command("ON"))
            assert await line.drain_commands(owner) == []
    assert sorted(order["cmd"] for order in orders) == ["OFF", "ON"]
    assert light["executionId"] in [order["id"] for order in orders]
    assert (await finished(owner, device, light))["status"] == "DONE"


async def test_what_was_lost_is_not_sent_again_to_firmware_of_yesterday(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    light = await lost_on_the_way(owner, device, service)
    async with device.online(service) as line:
        await line.next_command("OFF")
        await line.publish("hello", OLD)
        assert (await finished(owner, device, light))["result"]["code"] == "UNKNOWN_CHANNEL"
        assert await line.drain_commands(owner) == []
        assert not line.relay
