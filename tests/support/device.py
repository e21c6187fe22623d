"""A real MQTT device with firmware: it registers itself, carries out commands, and records all messages.

    pump = await a_device(owner)
    async with pump.online(service) as line:
        await line.report(temperature=21.4)      # returns after the PUBACK
        order = await line.next_command()               # the next command

`DeviceConnection.drain_commands` needs no waiting time: commands reach a device in the order in which they were queued, so
after the last one no earlier one is still to come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiomqtt

from support.service import ApiClient, Service
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

PROTOCOL_VERSIONS = {4: aiomqtt.ProtocolVersion.V311, 5: aiomqtt.ProtocolVersion.V5}


@dataclass
class Device:
    device_id: str
    credentials: dict[str, Any]

    @property
    def path(self) -> str:
        return f"/devices/{self.device_id}"

    def topic(self, below: str) -> str:
        return f"devices/{self.device_id}/{below}"

    def client(self, service: Service, *, version: int = 5, websocket: bool = False, **more: Any) -> aiomqtt.Client:
        by_socket: dict[str, Any] = {"port": self.credentials["mqttPort"]}
        by_websocket = {"port": self.credentials["wsPort"], "transport": "websockets", "websocket_path": "/mqtt"}
        options = {
            "username": self.credentials["mqttUsername"],
            "password": self.credentials["mqttPassword"],
            "identifier": self.device_id,
            "protocol": PROTOCOL_VERSIONS[version],
            "timeout": OPERATION_TIMEOUT_S,
            **(by_websocket if websocket else by_socket),
            **more,
        }
        return aiomqtt.Client(self.credentials["mqttHost"], **options)

    @asynccontextmanager
    async def online(self, service: Service, *, auto_reply: bool = True, **options: Any) -> AsyncIterator[DeviceConnection]:
        """Connected and subscribed. `auto_reply` False: commands arrive and are not answered. No command may come twice."""
        async with self.client(service, **options) as client:
            line = DeviceConnection(self, client, auto_reply)
            listening = asyncio.create_task(line.listen())
            try:
                for below in ("cmd", "sched", "time"):
                    await client.subscribe(self.topic(below), qos=1)
                yield line
            finally:
                await cancel_tasks(listening)
        assert line.duplicates == 0, f"{line.duplicates} of {len(line.commands)} commands came twice"


@dataclass
class DeviceConnection:
    """One connection of a device. `commands` and `plans`: the messages on `cmd` and `sched`. Like native firmware, it does not
    run an id a second time; `duplicates` counts those."""

    device: Device
    client: aiomqtt.Client
    auto_reply: bool = True
    relay: bool = False
    commands: list[dict[str, Any]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    duplicates: int = 0
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    _next_index: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        try:
            async for message in self.client.messages:
                await self._on(str(message.topic).rpartition("/")[2], json.loads(bytes(message.payload)))
        except aiomqtt.MqttError:
            pass
        finally:
            self.disconnected.set()

    async def _on(self, below: str, message: dict[str, Any]) -> None:
        if below == "cmd" and message["id"] in [order["id"] for order in self.commands]:
            self.duplicates += 1
            return
        async with self._changed:
            {"cmd": self.commands, "sched": self.plans, "time": []}[below].append(message)
            self._changed.notify_all()
        if below == "cmd" and self.auto_reply:
            await self.reply(message)

    async def reply(self, order: dict[str, Any]) -> None:
        if "ch" in order:  # what it says of another channel is the test's to publish
            await self.publish("result", {"id": order["id"], "status": "done"})
            return
        self.relay = {"ON": True, "OFF": False, "TOGGLE": not self.relay}.get(order["cmd"], self.relay)
        relay = "ON" if self.relay else "OFF"
        if order["cmd"] in ("ON", "OFF", "TOGGLE"):
            await self.publish("state", {"relay": relay, "by": "cmd", "id": order["id"]})
        await self.publish("result", {"id": order["id"], "status": "done", "relay": relay})

    async def publish(self, below: str, message: Any, *, qos: int = 1, retain: bool = False) -> None:
        """At QoS 1 this returns after the PUBACK, when the service has stored the message."""
        payload = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.client.publish(self.device.topic(below), payload, qos=qos, retain=retain, timeout=OPERATION_TIMEOUT_S)

    async def report(self, **values: Any) -> None:
        await self.publish("telemetry", {"m": values})

    async def press_button(self, relay: bool) -> None:
        """Simulate a press of the device's button."""
        self.relay = relay
        await self.publish("state", {"relay": "ON" if relay else "OFF", "by": "button"}, retain=True)

    async def next_command(self, cmd: str | None = None) -> dict[str, Any]:
        """The next command; it must be `cmd`, when that is given."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: len(self.commands) > self._next_index)
        order = self.commands[self._next_index]
        self._next_index += 1
        assert cmd in (None, order["cmd"]), f"{cmd} expected, got {order}"
        return order

    async def wait_for_plan(self, wanted: Any) -> dict[str, Any]:
        """A device plan for which `wanted(plan)` is true, waiting for it."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: any(map(wanted, self.plans)))
        return next(plan for plan in self.plans if wanted(plan))

    async def drain_commands(self, api: ApiClient) -> list[str]:
        """The names of all commands since the last call. None is in flight afterwards, and if the device replies, all
        are done."""
        request = {"cmd": "STATUS", "waitSeconds": 30 if self.auto_reply else 0}
        answer = await api.post(f"{self.device.path}/command", request)
        last = answer["executionId"]
        assert not self.auto_reply or answer["status"] == "DONE", answer
        came: list[str] = []
        while (order := await self.next_command())["id"] != last:
            came.append(order["cmd"])
        return came

    async def wait_for_disconnect(self, within_s: float = TIMEOUT_S) -> None:
        """Wait until the service has closed the connection."""
        await asyncio.wait_for(self.disconnected.wait(), within_s)


async def cancel_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks, again if needed: Python 3.11 may lose a cancellation at the end of a `wait_for`."""
    left = set(tasks)
    async with asyncio.timeout(TIMEOUT_S):
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=0.2)


async def register_device(api: ApiClient, name: str = "Pump") -> str:
    body = {"name": name, "boardType": "ESP32", "appType": "PUMP"}
    device_id: str = (await api.post("/devices/register", body, expect=201))["deviceId"]
    return device_id


async def create_device(api: ApiClient, name: str = "Pump") -> Device:
    """Register a device with credentials."""
    device_id = await register_device(api, name)
    return Device(device_id, await api.post(f"/devices/{device_id}/credentials"))
