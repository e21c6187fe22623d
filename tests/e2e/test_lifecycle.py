"""Each way in which a device is shut out, as the device, the feed and the log see it; and the way back."""

from __future__ import annotations

import time
from typing import Any

import aiomqtt
import pytest

from support.device import Device, a_device
from support.service import Api, Service

WAYS = [{"version": 4}, {"version": 5}, {"version": 4, "websocket": True}, {"version": 5, "websocket": True}]
ACTS = {"revoke": ("POST", "/revoke"), "disable": ("PATCH", "/toggle"), "delete": ("DELETE", "")}


async def presence(owner: Api, device_id: str) -> list[str]:
    """The device's changes, oldest first, as the account's log tells them."""
    page = await owner.get("/events", params={"deviceId": device_id, "limit": 200})
    return [each["eventType"] for each in reversed(page["data"]) if each["eventType"] in ("device_online", "device_offline")]


async def brought_back(owner: Api, device: Device, act: str) -> Device:
    if act == "disable":
        assert (await owner.patch(f"{device.path}/toggle"))["deviceStatus"] == "ACTIVE"
        return device
    return Device(device.device_id, await owner.post(f"{device.path}/credentials"))


async def heard_until_asked(service: Service, owner: Api, device: Device) -> list[str]:
    """What waits for the device below its prefix, up to a command that is sent only then."""
    heard: list[str] = []
    async with device.client(service) as client:
        await client.subscribe(device.topic("#"), qos=1)
        asked = await owner.post(f"{device.path}/command", {"cmd": "STATUS"})
        async for message in client.messages:
            heard.append(str(message.topic).removeprefix(device.topic("")))
            if asked["executionId"] in bytes(message.payload).decode():
                return heard
    raise AssertionError("the connection ended")


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "/".join(map(str, way.values())))
async def test_whoever_is_shut_out_is_cut_and_stays_out(service: Service, owner: Api, way: dict[str, Any], act: str) -> None:
    pump, bystander = await a_device(owner), await a_device(owner)
    method, path = ACTS[act]
    async with bystander.online(service) as other, service.feed(owner, f"?deviceId={pump.device_id}") as feed:
        async with pump.online(service, **way) as line:
            await feed.next("device_online", reason="connected")
            await line.publish("status", b"online", retain=True)
            await line.switched(True)
            await owner.call(method, pump.path + path, None, 200)
            await line.cut(within_s=1.0)
        assert (await feed.next("device_offline"))["reason"] == "revoked"
        with pytest.raises(aiomqtt.MqttError):
            async with pump.client(service, **way):
                pass
        assert await other.settled(owner) == []
    assert await presence(owner, pump.device_id) == ["device_online", "device_offline"]


@pytest.mark.parametrize("act", ["revoke", "disable"])
async def test_whoever_comes_back_finds_nothing_retained_but_its_own_plan(service: Service, owner: Api, act: str) -> None:
    pump, later = await a_device(owner), int(time.time()) + 3_600
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": later, "offTs": later + 60}, expect=201)
    method, path = ACTS[act]
    async with pump.online(service) as line:
        await line.publish("status", b"online", retain=True)
        await line.switched(True)
        await line.publish("sched/rev", {"rev": 1}, retain=True)
        await owner.call(method, pump.path + path, None, 200)
        await line.cut(within_s=1.0)
    pump = await brought_back(owner, pump, act)
    assert set(await heard_until_asked(service, owner, pump)) == {"sched", "cmd"}


async def test_a_deleted_device_is_unknown_to_every_endpoint(service: Service, owner: Api) -> None:
    pump, later = await a_device(owner), int(time.time()) + 3_600
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": later, "offTs": later + 60}, expect=201)
    async with pump.online(service) as line:
        await line.report(temperature=20)
        await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 5})
        await owner.delete(pump.path)
        await line.cut(within_s=1.0)
    reads = ("", "/commands", "/schedules", "/rules", "/grants", "/approvals", "/executions", "/telemetry", "/telemetry/latest")
    for path in reads:
        await owner.get(pump.path + path, expect=404)
    assert pump.device_id not in {each["deviceId"] for each in await owner.get("/devices")}
    assert await owner.get(f"/keys/{key['keyId']}/grants") == []
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.get(f"{pump.path}/telemetry", expect=404)
    await owner.delete(pump.path, expect=404)


async def test_disabled_and_revoked_devices_take_no_commands(service: Service, owner: Api) -> None:
    pump = await a_device(owner)
    await owner.patch(f"{pump.path}/toggle")
    await owner.post(f"{pump.path}/command", {"cmd": "ON"}, expect=403)
    await owner.patch(f"{pump.path}/toggle")
    await owner.post(f"{pump.path}/revoke")
    refused = await owner.send("POST", f"{pump.path}/command", {"cmd": "ON"})
    assert refused.status_code in (403, 409), refused.text
    assert (await owner.send("PATCH", f"{pump.path}/toggle")).status_code == 409
