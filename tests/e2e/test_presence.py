"""Presence events, exactly one for each change: with reconnects, wills, kills of the service, and devices that never return."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any

import aiomqtt

from domain.devices.presence import OFFLINE_GRACE_MS
from support.device import Device, create_device
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

GRACE_S = OFFLINE_GRACE_MS / 1_000


async def changes(owner: ApiClient, device: Device) -> list[str]:
    page = await owner.get("/events", params={"deviceId": device.device_id, "limit": 200})
    kinds = ("device_online", "device_offline")
    return [each["eventType"].removeprefix("device_") for each in reversed(page["data"]) if each["eventType"] in kinds]


def by_will(device: Device) -> dict[str, Any]:
    return {"will": aiomqtt.Will(device.topic("status"), b"offline", qos=1, retain=True)}


async def offline(owner: ApiClient, device: Device) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while (await owner.get(device.path))["isOnline"]:
            await asyncio.sleep(0.2)


async def one_that_reconnects_in_time(service: Service, owner: ApiClient) -> Device:
    """It connects three times. Another device does so if this one was away for too long."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            pump, left_at, away_s = await create_device(owner), time.monotonic(), list[float]()
            for _ in range(3):
                async with pump.online(service, **by_will(pump)) as line:
                    await line.publish("status", b"online", retain=True)
                    await line.drain_commands(owner)
                    away_s.append(time.monotonic() - left_at)
                    left_at = time.monotonic()
            if max(away_s[1:]) < GRACE_S:
                return pump


async def test_a_reconnect_in_time_is_no_change_and_leaving_for_good_is_one(service: Service, owner: ApiClient) -> None:
    pump = await one_that_reconnects_in_time(service, owner)
    await offline(owner, pump)
    assert await changes(owner, pump) == ["online", "offline"]
    async with pump.online(service) as line:
        await line.drain_commands(owner)
    assert await changes(owner, pump) == ["online", "offline", "online"]


async def test_will_and_broken_connection_are_one_change(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with service.feed(owner, f"?deviceId={pump.device_id}") as feed:
        with contextlib.suppress(aiomqtt.MqttError):
            async with pump.online(service, **by_will(pump)) as line:
                await line.publish("status", b"online", retain=True)
                await line.drain_commands(owner)
                line.client._client.socket().shutdown(socket.SHUT_RDWR)
                await line.wait_for_disconnect()
        assert (await feed.wait_for("device_offline"))["reason"] == "lost"
    await asyncio.sleep(GRACE_S + 0.5)  # a second event would come after another grace period
    assert await changes(owner, pump) == ["online", "offline"]


async def test_after_a_kill_who_returns_was_never_gone_and_who_does_not_is_lost_once(service: Service, owner: ApiClient) -> None:
    devices = [await create_device(owner, f"Pump {number}") for number in range(6)]
    returning, absent = devices[:4], devices[4:]
    lines = [device.online(service) for device in devices]
    for line in lines:
        await (await line.__aenter__()).drain_commands(owner)  # then it is stored as online
    await service.kill_and_restart()
    for line in lines:
        await line.__aexit__(None, None, None)
    async with returning[0].online(service), returning[1].online(service, version=4):
        async with returning[2].online(service), returning[3].online(service, websocket=True):
            await service.kill_and_restart()  # and again soon after the first reconnect
        backs = [device.online(service) for device in returning]
        for back in backs:
            await (await back.__aenter__()).drain_commands(owner)
        for device in absent:
            await offline(owner, device)
        for device in returning:
            assert (await owner.get(device.path))["isOnline"] is True
            assert await changes(owner, device) == ["online"]
        for back in backs:
            await back.__aexit__(None, None, None)
    for device in absent:
        assert await changes(owner, device) == ["online", "offline"]
    for device in returning:
        await offline(owner, device)
        assert await changes(owner, device) == ["online", "offline"]
