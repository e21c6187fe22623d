"""A real MQTT device with firmware: it registers itself, obeys commands, and remembers everything it was told.

    pump = await a_device(owner)
    async with pump.online(service) as line:
        await line.report(temperature=21.4)      # returns after the PUBACK
        order = await line.order()               # the next command

`Line.settled` needs no waiting time: commands reach a device in the order they were queued, so when a last one has come,
nothing that was queued before it is still to come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiomqtt

from support.service import Api, Service

PATIENCE = 10.0
VERSIONS = {4: aiomqtt.ProtocolVersion.V311, 5: aiomqtt.ProtocolVersion.V5}


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
            "protocol": VERSIONS[version],
            "timeout": PATIENCE,
            **(by_websocket if websocket else by_socket),
            **more,
        }
        return aiomqtt.Client(self.credentials["mqttHost"], **options)

    @asynccontextmanager
    async def online(self, service: Service, *, obeys: bool = True, **options: Any) -> AsyncIterator[Line]:
        """Connected and subscribed. `obeys` False: commands arrive and are not answered. No command may come twice."""
        async with self.client(service, **options) as client:
            line = Line(self, client, obeys)
            listening = asyncio.create_task(line.listen())
            try:
                for below in ("cmd", "sched", "time"):
                    await client.subscribe(self.topic(below), qos=1)
                yield line
            finally:
                await ended(listening)
        assert line.repeats == 0, f"{line.repeats} of {len(line.orders)} commands came twice"


@dataclass
class Line:
    """One connection of a device. `orders` and `plans`: what came on `cmd` and `sched`. As our firmware does, it does not run an
    id a second time; `repeats` counts those."""

    device: Device
    client: aiomqtt.Client
    obeys: bool = True
    relay: bool = False
    orders: list[dict[str, Any]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    repeats: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    _taken: int = 0
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        try:
            async for message in self.client.messages:
                await self._on(str(message.topic).rpartition("/")[2], json.loads(bytes(message.payload)))
        except aiomqtt.MqttError:
            pass
        finally:
            self.lost.set()

    async def _on(self, below: str, message: dict[str, Any]) -> None:
        if below == "cmd" and message["id"] in [order["id"] for order in self.orders]:
            self.repeats += 1
            return
        async with self._news:
            {"cmd": self.orders, "sched": self.plans, "time": []}[below].append(message)
            self._news.notify_all()
        if below == "cmd" and self.obeys:
            await self.obey(message)

    async def obey(self, order: dict[str, Any]) -> None:
        self.relay = {"ON": True, "OFF": False, "TOGGLE": not self.relay}.get(order["cmd"], self.relay)
        relay = "ON" if self.relay else "OFF"
        if order["cmd"] in ("ON", "OFF", "TOGGLE"):
            await self.publish("state", {"relay": relay, "by": "cmd", "id": order["id"]})
        await self.publish("result", {"id": order["id"], "status": "done", "relay": relay})

    async def publish(self, below: str, message: Any, *, qos: int = 1, retain: bool = False) -> None:
        """At QoS 1 this returns after the PUBACK: from then on the service answers for it."""
        payload = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.client.publish(self.device.topic(below), payload, qos=qos, retain=retain, timeout=PATIENCE)

    async def report(self, **values: Any) -> None:
        await self.publish("telemetry", {"m": values})

    async def switched(self, relay: bool) -> None:
        """Somebody pressed the button on the device."""
        self.relay = relay
        await self.publish("state", {"relay": "ON" if relay else "OFF", "by": "button"}, retain=True)

    async def order(self, cmd: str | None = None) -> dict[str, Any]:
        """The next command; it must be `cmd`, when that is given."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self.orders) > self._taken)
        order = self.orders[self._taken]
        self._taken += 1
        assert cmd in (None, order["cmd"]), f"{cmd} expected, got {order}"
        return order

    async def plan(self, wanted: Any) -> dict[str, Any]:
        """A schedule table for which `wanted(plan)` is true, waiting for it."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: any(map(wanted, self.plans)))
        return next(plan for plan in self.plans if wanted(plan))

    async def settled(self, api: Api) -> list[str]:
        """The names of all commands that came since the last look; none is on its way any more, and if the device obeys,
        all are done."""
        ask = {"cmd": "STATUS", "waitSeconds": PATIENCE if self.obeys else 0}
        asked = await api.post(f"{self.device.path}/command", ask)
        last = asked["executionId"]
        assert not self.obeys or asked["status"] == "DONE", asked
        came: list[str] = []
        while (order := await self.order())["id"] != last:
            came.append(order["cmd"])
        return came

    async def cut(self, within_s: float = PATIENCE) -> None:
        """Until the service has ended the connection."""
        await asyncio.wait_for(self.lost.wait(), within_s)


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancelled, again where needed: Python 3.11 may lose a cancellation that meets the end of a `wait_for`."""
    left = set(tasks)
    async with asyncio.timeout(PATIENCE):
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=0.2)


async def register(api: Api, name: str = "Pump") -> str:
    body = {"name": name, "boardType": "ESP32", "appType": "PUMP"}
    device_id: str = (await api.post("/devices/register", body, expect=201))["deviceId"]
    return device_id


async def a_device(api: Api, name: str = "Pump") -> Device:
    """Registered, with credentials."""
    device_id = await register(api, name)
    return Device(device_id, await api.post(f"/devices/{device_id}/credentials"))
