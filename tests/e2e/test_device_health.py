"""Dropped device messages are reported as events, and the device object shows the device's health."""

from __future__ import annotations

import asyncio
from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from support import mqtt_packets as wire
from support.device import Device, create_device
from support.firmware import register_stock_device
from support.mqtt_packets import open_raw
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S


async def dropped(owner: ApiClient, device: Device, reasons: set[str]) -> list[dict[str, Any]]:
    """The events about drops, when there is one for each of these reasons."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            page = await owner.get("/events", params={"deviceId": device.device_id, "type": "device_message_dropped"})
            if all(any(reason in event["description"] for event in page["data"]) for reason in reasons):
                events: list[dict[str, Any]] = page["data"]
                return events
            await asyncio.sleep(0.05)


async def refusals(owner: ApiClient, device: Device, reason: str) -> list[dict[str, Any]]:
    """The events about refusals for this reason, when there is one."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            page = await owner.get("/events", params={"deviceId": device.device_id, "type": "device_refused"})
            if found := [event for event in page["data"] if reason in event["description"]]:
                return found
            await asyncio.sleep(0.05)


async def test_dropped_messages_are_reported_once_for_each_reason(service: Service, owner: ApiClient) -> None:
    meter = await create_device(owner)
    assert (await owner.get(meter.path))["health"] == {
        "clockOffsetMs": None,
        "lastDrop": None,
        "lastRefusal": None,
        "reconnects": 0,
        "firmware": None,
        "maxPacketSize": None,
    }
    async with meter.online(service) as line:
        for first in range(0, 140, 20):
            await line.report(**{f"m{number}": number for number in range(first, first + 20)})
        await line.publish("telemetry", b"{")
        await line.publish("telemetry", b"[")
        await line.publish("state", b"MAYBE")
        await line.publish("nowhere", b"x")
        await line.publish("cmd", b"{}")
        reasons = {"TOO_MANY_METRICS", "MALFORMED", "UNKNOWN_TOPIC", "FORBIDDEN_TOPIC"}
        events = await dropped(owner, meter, reasons)
        assert len(events) == len(reasons), events
        told = [event["description"] for event in events]
        for last in ("telemetry, m128", "nowhere", "cmd"):
            assert any(text.endswith(f"last: {last}") for text in told), told
        await service.wait_for_log("dropped an unusable message")
        logged = [line for line in service.log().splitlines() if "dropped an unusable message" in line]
        assert any(meter.device_id in line for line in logged)
        health = (await owner.get(meter.path))["health"]
        assert health["lastDrop"]["reason"] in reasons
        assert health["lastDrop"]["at"].endswith("Z")


async def test_a_refused_device_is_told_once_for_each_reason_and_shown(service: Service, owner: ApiClient) -> None:
    pump, other = await create_device(owner), await create_device(owner)
    for password in ("x" * 32, "y" * 32):
        raw = await open_raw(service.mqtt_port, wire.connect(pump.device_id, password))
        assert await raw.wait_closed()
        await raw.close()
    [told] = await refusals(owner, pump, "WRONG_PASSWORD")
    assert (await owner.get(pump.path))["health"]["lastRefusal"]["reason"] == "WRONG_PASSWORD"
    async with pump.online(service) as line:
        await line.client.subscribe(f"devices/{other.device_id}/cmd")
        [told] = await refusals(owner, pump, "TOPIC_NOT_ALLOWED")
        assert told["description"].endswith(f"last: devices/{other.device_id}/cmd")
        refusal = (await owner.get(pump.path))["health"]["lastRefusal"]
        assert (refusal["reason"], refusal["topic"]) == ("TOPIC_NOT_ALLOWED", f"devices/{other.device_id}/cmd")
        assert refusal["at"].endswith("Z")
    assert (await owner.get(other.path))["health"]["lastRefusal"] is None
    assert len((await owner.get("/events", params={"deviceId": pump.device_id, "type": "device_refused"}))["data"]) == 2


async def test_health_shows_firmware_reconnects_and_the_maximum_packet_size(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    for size in (None, 512):
        limit = Properties(PacketTypes.CONNECT)
        if size is not None:
            limit.MaximumPacketSize = size
        async with pump.online(service, properties=limit) as line:
            await line.publish("hello", {"fw": "1.2.0", "sched": 0})
            await line.drain_commands(owner)
    [listed] = [device for device in await owner.get("/devices") if device["deviceId"] == pump.device_id]
    for device in (listed, await owner.get(pump.path)):
        health = device["health"]
        assert (health["firmware"], health["reconnects"], health["maxPacketSize"]) == ("1.2.0", 1, 512)


async def test_a_tasmota_that_connects_as_in_its_source_is_not_reported(service: Service, owner: ApiClient) -> None:
    plug = await register_stock_device(owner, "tasmota")
    async with plug.client(service) as client:
        await client.publish(plug.topic("cmnd/POWER"), b"", qos=1)
        await client.publish(plug.topic("tele/LWT"), b"Online", qos=1, retain=True)
        await client.publish("tasmota/discovery/A4CF12/config", b"{}", qos=1, retain=True)
        await client.publish(plug.topic("tele/INFO1"), b'{"Info1":{"Module":"Basic","Version":"14.2.0(tasmota)"}}', qos=1)
        await client.publish(plug.topic("tele/SENSOR"), b"{", qos=1)
        [event] = await dropped(owner, plug, {"MALFORMED"})
        assert "MALFORMED" in event["description"]
        assert (await owner.get(plug.path))["health"]["firmware"] == "14.2.0(tasmota)"
