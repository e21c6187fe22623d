"""Revoking, disabling and deleting a device, as the device, the feed and the event log see it; and how a device is enabled again."""

from __future__ import annotations

import time
from typing import Any

import aiomqtt
import pytest

from support.device import Device, create_device
from support.service import ApiClient, Service
from support.waiting import OPERATION_TIMEOUT_S

CONNECTIONS = [{"version": 4}, {"version": 5}, {"version": 4, "websocket": True}, {"version": 5, "websocket": True}]
ACTIONS = {"revoke": ("POST", "/revoke"), "disable": ("PATCH", "/toggle"), "delete": ("DELETE", "")}


async def presence(owner: ApiClient, device_id: str) -> list[str]:
    """The online and offline events of the device in the event log, oldest first."""
    page = await owner.get("/events", params={"deviceId": device_id, "limit": 200})
    return [each["eventType"] for each in reversed(page["data"]) if each["eventType"] in ("device_online", "device_offline")]


async def readmit(owner: ApiClient, device: Device, action: str) -> Device:
    if action == "disable":
        assert (await owner.patch(f"{device.path}/toggle"))["deviceStatus"] == "ACTIVE"
        return device
    return Device(device.device_id, await owner.post(f"{device.path}/credentials"))


async def topics_until_command(service: Service, owner: ApiClient, device: Device) -> list[str]:
    """The topics below the device's prefix that it receives after it subscribes, up to a command that is sent then."""
    topics: list[str] = []
    async with device.client(service) as client:
        await client.subscribe(device.topic("#"), qos=1)
        command = await owner.post(f"{device.path}/command", {"cmd": "STATUS"})
        async for message in client.messages:
            topics.append(str(message.topic).removeprefix(device.topic("")))
            if command["executionId"] in bytes(message.payload).decode():
                return topics
    raise AssertionError("the connection ended")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("connection", CONNECTIONS, ids=lambda connection: "/".join(map(str, connection.values())))
async def test_a_revoked_disabled_or_deleted_device_is_disconnected_and_cannot_connect(
    service: Service, owner: ApiClient, connection: dict[str, Any], action: str
) -> None:
    pump, bystander = await create_device(owner), await create_device(owner)
    method, path = ACTIONS[action]
    async with bystander.online(service) as other, service.feed(owner, f"?deviceId={pump.device_id}") as feed:
        async with pump.online(service, **connection) as line:
            await feed.wait_for("device_online", reason="connected")
            await line.publish("status", b"online", retain=True)
            await line.press_button(True)
            await owner.call(method, pump.path + path, None, 200)
            await line.wait_for_disconnect(within_s=OPERATION_TIMEOUT_S)
        assert (await feed.wait_for("device_offline"))["reason"] == "revoked"
        with pytest.raises(aiomqtt.MqttError):
            async with pump.client(service, **connection):
                pass
        assert await other.drain_commands(owner) == []
    assert await presence(owner, pump.device_id) == ["device_online", "device_offline"]


@pytest.mark.parametrize("action", ["revoke", "disable"])
async def test_a_readmitted_device_receives_no_retained_message_but_its_plan(
    service: Service, owner: ApiClient, action: str
) -> None:
    pump, later = await create_device(owner), int(time.time()) + 3_600
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": later, "offTs": later + 60}, expect=201)
    method, path = ACTIONS[action]
    async with pump.online(service) as line:
        await line.publish("status", b"online", retain=True)
        await line.press_button(True)
        await line.publish("sched/rev", {"rev": 1}, retain=True)
        await owner.call(method, pump.path + path, None, 200)
        await line.wait_for_disconnect(within_s=OPERATION_TIMEOUT_S)
    pump = await readmit(owner, pump, action)
    assert set(await topics_until_command(service, owner, pump)) == {"sched", "cmd"}


async def test_every_endpoint_answers_404_for_a_deleted_device(service: Service, owner: ApiClient) -> None:
    pump, later = await create_device(owner), int(time.time()) + 3_600
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": later, "offTs": later + 60}, expect=201)
    async with pump.online(service) as line:
        await line.report(temperature=20)
        await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
        await owner.delete(pump.path)
        await line.wait_for_disconnect(within_s=OPERATION_TIMEOUT_S)
    reads = ("", "/commands", "/schedules", "/rules", "/grants", "/approvals", "/executions", "/telemetry", "/telemetry/latest")
    for path in reads:
        await owner.get(pump.path + path, expect=404)
    assert pump.device_id not in {each["deviceId"] for each in await owner.get("/devices")}
    assert await owner.get(f"/keys/{key['keyId']}/grants") == []
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.get(f"{pump.path}/telemetry", expect=404)
    await owner.delete(pump.path, expect=404)


async def test_commands_to_disabled_and_revoked_devices_are_refused(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    await owner.patch(f"{pump.path}/toggle")
    await owner.post(f"{pump.path}/command", {"cmd": "ON"}, expect=403)
    await owner.patch(f"{pump.path}/toggle")
    await owner.post(f"{pump.path}/revoke")
    refused = await owner.send("POST", f"{pump.path}/command", {"cmd": "ON"})
    assert refused.status_code in (403, 409), refused.text
    assert (await owner.send("PATCH", f"{pump.path}/toggle")).status_code == 409
