"""Stock firmware on a real MQTT connection: what it publishes by itself, and how it answers.

It follows the published documentation of Tasmota, ESPHome's MQTT component and Shelly's Gen2 API: topics, retain flags, message
formats, partial updates, and errors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiomqtt

from support.device import Device, cancel_tasks
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S


async def register_stock_device(api: ApiClient, profile: str, name: str = "Plug") -> Device:
    body = {"name": name, "boardType": "OTHER", "appType": "OTHER", "appTypeOther": "plug", "profile": profile}
    device_id = (await api.post("/devices/register", body, expect=201))["deviceId"]
    return Device(device_id, await api.post(f"/devices/{device_id}/credentials"))


@dataclass
class Firmware:
    """`received`: all messages to the device, in order. An unresponsive one receives and does nothing."""

    presence: ClassVar[tuple[str, str, str]]
    filters: ClassVar[tuple[str, ...]]

    device: Device
    client: aiomqtt.Client
    relay: bool = False
    unresponsive: bool = False
    received: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def publish(self, below: str, payload: Any, *, retain: bool = False) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        await self.client.publish(self.device.topic(below), text, qos=1, retain=retain, timeout=TIMEOUT_S)

    async def listen(self) -> None:
        try:
            async for message in self.client.messages:
                below = str(message.topic).removeprefix(self.device.topic(""))
                payload = bytes(message.payload).decode()
                async with self.changed:
                    self.received.append((below, payload))
                    self.changed.notify_all()
                if not self.unresponsive:
                    await self.handle(below, payload)
        except aiomqtt.MqttError:
            pass

    async def wait_for(self, wanted: Any) -> Any:
        """Wait for a message for which `wanted(topic, payload)` is true."""
        async with asyncio.timeout(TIMEOUT_S), self.changed:
            await self.changed.wait_for(lambda: any(wanted(*each) for each in self.received))
        return next(each for each in self.received if wanted(*each))

    async def handle(self, below: str, payload: str) -> None:
        raise NotImplementedError

    async def publish_boot_messages(self) -> None:
        """What it publishes after connecting."""


@asynccontextmanager
async def run_firmware(firmware: type[Firmware], device: Device, service: Service, **fields: Any) -> AsyncIterator[Any]:
    topic, here, gone = firmware.presence
    will = aiomqtt.Will(device.topic(topic), gone, qos=1, retain=True)
    async with device.client(service, version=4, will=will) as client:
        plug = firmware(device, client, **fields)
        listening = asyncio.create_task(plug.listen())
        try:
            for below in firmware.filters:
                await client.subscribe(device.topic(below), qos=1)
            await plug.publish(topic, here, retain=True)
            await plug.publish_boot_messages()
            yield plug
        finally:
            await cancel_tasks(listening)


@dataclass
class Tasmota(Firmware):
    """Publishes POWER after a change only; a Backlog runs its steps in order; an unknown command answers `Unknown`. `locked`: PowerLock,
    or an interlock, keeps the relay as it is."""

    presence = ("tele/LWT", "Online", "Offline")
    filters = ("cmnd/#",)

    timers: dict[int, Any] = field(default_factory=dict)
    timezone: str = "+01:00"
    locked: bool = False

    async def publish_boot_messages(self) -> None:
        await self.publish("tele/INFO1", {"Info1": {"Module": "Sonoff Basic", "Version": "14.2.0(release-tasmota)"}})

    async def handle(self, below: str, payload: str) -> None:
        command = below.removeprefix("cmnd/")
        steps = payload.split(";") if command.lower().startswith("backlog") else [f"{command} {payload}"]
        for step in steps:
            await self.run(step.strip())

    async def run(self, step: str) -> None:
        name, _, argument = step.partition(" ")
        if name.upper() in ("POWER", "POWER1") and argument:
            if not self.locked:
                self.relay = {"ON": True, "OFF": False, "TOGGLE": not self.relay}[argument.upper()]
            await self.publish_power()
        elif name.upper() == "POWER2" and argument:
            await self.publish("stat/RESULT", {"POWER2": argument.upper()})
        elif name.upper() == "DIMMER":
            await self.publish("stat/RESULT", {"POWER1": "ON" if self.relay else "OFF", "Dimmer": int(argument)})
        elif name.upper() == "UPGRADE":
            await self.publish("stat/RESULT", {"Upgrade": "Version 15.1.0 from http://ota.example/tasmota.bin.gz"})
        elif name.upper() == "STATE":
            await self.publish("stat/RESULT", self.state())
        elif name.upper() == "PUBLISH":
            topic, _, text = argument.partition(" ")
            await self.client.publish(topic, text, qos=0)
        elif name.startswith("Timer") and name[5:].isdigit():
            self.timers[int(name[5:])] = None if argument == "0" else json.loads(argument)
            await self.publish("stat/RESULT", {name: self.timers[int(name[5:])] or "Empty"})
        elif name in ("Timezone", "Timers"):
            self.timezone = argument if name == "Timezone" else self.timezone
            await self.publish("stat/RESULT", {name: argument})
        else:
            await self.publish("stat/RESULT", {"Command": "Unknown"})

    async def publish_power(self) -> None:
        word = "ON" if self.relay else "OFF"
        await self.publish("stat/RESULT", {"POWER1": word})
        await self.publish("stat/POWER1", word)

    def state(self) -> dict[str, Any]:
        return {
            "Time": "2026-03-02T06:00:00",
            "Uptime": "0T00:10:07",
            "UptimeSec": 607,
            "Heap": 26,
            "SleepMode": "Dynamic",
            "LoadAvg": 19,
            "MqttCount": 1,
            "POWER1": "ON" if self.relay else "OFF",
            "Wifi": {"AP": 1, "SSId": "home", "RSSI": 72, "Signal": -64},
        }


@dataclass
class EspHome(Firmware):
    """Publishes the switch's state, retained, when it has changed, and answers the question of the service's YAML."""

    presence = ("status", "online", "offline")
    filters = ("switch/relay/command", "ask/relay/command")

    async def publish_boot_messages(self) -> None:
        await self.publish("switch/relay/state", "OFF", retain=True)
        await self.publish("sensor/room_temperature/state", "nan", retain=True)

    async def handle(self, below: str, payload: str) -> None:
        if below == "ask/relay/command":
            await self.publish("answer/relay", f"{payload} {'ON' if self.relay else 'OFF'}")
            return
        before = self.relay
        self.relay = {"ON": True, "OFF": False, "TOGGLE": not self.relay}[payload]
        if self.relay is not before:
            await self.publish("switch/relay/state", "ON" if self.relay else "OFF", retain=True)


@dataclass
class OldEspHome(EspHome):
    """Its YAML is from before the service asked questions."""

    filters = ("switch/relay/command",)


@dataclass
class Shelly(Firmware):
    """Gen2: answers RPC on `<src>/rpc`, notifies only changed fields, and publishes the whole switch on `status/switch:0`."""

    presence = ("online", "true", "false")
    filters = ("rpc", "command", "command/switch:0")

    jobs: list[dict[str, Any]] = field(default_factory=list)
    timezone: str | None = None
    zones: tuple[str, ...] = ("Etc/UTC", "Europe/Berlin")
    notifies: bool = True
    publishes_stale_status: bool = False
    """After a change it publishes `status/switch:0` once more as it was before, as some firmware does."""

    async def publish_boot_messages(self) -> None:
        await self.notify({"output": self.relay}, source="init")

    async def handle(self, below: str, payload: str) -> None:
        if below == "rpc":
            await self.rpc(json.loads(payload))
        elif payload == "status_update":
            await self.status("init")

    async def rpc(self, call: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": call["id"], "src": "shellyplus1pm-a8032ab12345", "dst": call["src"]}
        try:
            answer["result"] = await self.execute(call["method"], call.get("params", {}))
        except LookupError as error:
            answer["error"] = {"code": 404, "message": str(error)}
        except ValueError as error:
            answer["error"] = {"code": -103, "message": str(error)}
        await self.client.publish(f"{call['src']}/rpc", json.dumps(answer), qos=1)

    async def execute(self, method: str, params: dict[str, Any]) -> Any:
        if method == "Switch.Set" or method == "Switch.Toggle":
            before, self.relay = self.relay, params.get("on", not self.relay)
            if self.relay is not before and self.notifies:
                await self.notify({"output": self.relay})
                if self.publishes_stale_status:
                    await self.publish("status/switch:0", self.switch_status("MQTT") | {"output": before})
                else:
                    await self.status("MQTT")
            return {"was_on": before}
        if method == "Switch.GetStatus":
            return self.switch_status("MQTT")
        if method.startswith("Schedule."):
            return self.schedule(method, params)
        if method == "Sys.SetConfig":
            zone = params["config"]["location"]["tz"]
            if zone not in self.zones:
                raise ValueError(f"Invalid timezone {zone}")
            self.timezone = zone
            return {"restart_required": False}
        raise LookupError(f"No handler for {method}")

    def schedule(self, method: str, params: dict[str, Any]) -> Any:
        if method == "Schedule.DeleteAll":
            self.jobs = []
        elif method == "Schedule.Create":
            self.jobs.append({"id": len(self.jobs) + 1, **params})
            return {"id": len(self.jobs), "rev": len(self.jobs)}
        return {"jobs": self.jobs, "rev": 5}

    def switch_status(self, source: str) -> dict[str, Any]:
        return {
            "id": 0,
            "source": source,
            "output": self.relay,
            "apower": 18.4 if self.relay else 0.0,
            "voltage": 231.2,
            "current": 0.08,
            "aenergy": {"total": 1184.2, "by_minute": [0.0, 12.1, 3.2], "minute_ts": 1772431200},
            "temperature": {"tC": 41.3, "tF": 106.3},
        }

    async def status(self, source: str) -> None:
        await self.publish("status/switch:0", self.switch_status(source))

    async def notify(self, part: dict[str, Any], source: str = "MQTT") -> None:
        params = {"ts": 1772431200.12, "switch:0": {"id": 0, "source": source, **part}}
        message = {"src": "shellyplus1pm-a8032ab12345", "dst": "devices/events", "method": "NotifyStatus", "params": params}
        await self.publish("events/rpc", message)
