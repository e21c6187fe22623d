"""Numbered work for a running service: while faults are injected, a simulated fleet publishes numbered telemetry, one real device obeys
commands, a client sends them with an `Idempotency-Key` and retries, and a webhook receiver records what it gets. `checks` compares
what was acknowledged with what became of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiomqtt
import httpx

from adapters.engine import _native
from faults.checks import RECOVERY_S, Verdict
from faults.edges import EdgeMeter
from support.device import Device, cancel_tasks, create_device
from support.service import ApiClient, Service
from support.webhook_receiver import Receiver, respond, webhook_receiver

FLEET = 12
RATE_PER_S = 240.0
COMMAND_TTL_S = 120
COMMAND_PAUSE_S = 0.1
RESULT_TIMEOUT_S = 8
TYPES = ["relay_changed", "telemetry", "device_online", "device_offline", "command_result"]
_ANSWER = respond(200)


@dataclass
class Switch:
    """The device that obeys: the ids of the commands it ran. It never runs an id twice, as firmware does."""

    device: Device
    ran: set[str] = field(default_factory=set)
    relay: bool | None = None
    results: dict[str, str] = field(default_factory=dict)
    """Results without a PUBACK yet, by command id; the device sends them first when it is connected again."""

    async def run(self, service: Service) -> None:
        """Connect, obey, reconnect, until cancelled."""
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError, TimeoutError):
                async with self.device.client(service, timeout=5) as client:
                    # Mosquitto announces no logins, so the device says that it is there.
                    await client.publish(self.device.topic("status"), "online", qos=1, retain=True, timeout=RESULT_TIMEOUT_S)
                    for command_id in list(self.results):
                        await self._report(client, command_id)
                    await client.subscribe(self.device.topic("cmd"), qos=1)
                    async for message in client.messages:
                        await self._obey(client, json.loads(bytes(message.payload)))
            await asyncio.sleep(0.1)

    async def _obey(self, client: aiomqtt.Client, command: dict[str, Any]) -> None:
        if command["id"] not in self.ran:
            self.ran.add(command["id"])
            self.relay = command["cmd"] == "ON"
        relay = "ON" if self.relay else "OFF"
        self.results[command["id"]] = json.dumps({"id": command["id"], "status": "done", "relay": relay})
        await self._report(client, command["id"])

    async def _report(self, client: aiomqtt.Client, command_id: str) -> None:
        """Returns after the PUBACK."""
        await client.publish(self.device.topic("result"), self.results[command_id], qos=1, timeout=RESULT_TIMEOUT_S)
        del self.results[command_id]


@dataclass
class Commander:
    """Sends commands one after another. Each has one key and is retried until the service answers it definitely. A fault that holds
    `turn` keeps it from sending; no request of it is under way then."""

    device: Device
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    executions: dict[str, set[str]] = field(default_factory=dict)
    server_errors: Counter[str] = field(default_factory=Counter)

    async def run(self, service: Service, api: ApiClient) -> None:
        number = 0
        while True:
            async with self.turn:
                await self._send(service, api, f"key-{number}", "ON" if number % 2 else "OFF")
            number += 1
            await asyncio.sleep(COMMAND_PAUSE_S)

    async def _send(self, service: Service, api: ApiClient, key: str, name: str) -> None:
        body = {"cmd": name, "ttlSeconds": COMMAND_TTL_S}
        while True:
            with contextlib.suppress(httpx.HTTPError):
                answer = await api.send("POST", f"{self.device.path}/command", body, headers={"Idempotency-Key": key}, timeout=10)
                if answer.status_code == 200:
                    self.executions.setdefault(key, set()).add(answer.json()["executionId"])
                    return
                if answer.status_code == 409 and answer.json()["error"] == "IDEMPOTENCY_ANSWER_LOST":
                    return  # carried out; the answer is gone, and the service says so
                if answer.status_code == 500:
                    self.server_errors[answer.text[:200]] += 1
                if answer.status_code == 401:
                    with contextlib.suppress(httpx.HTTPError, AssertionError):
                        await service.sign_in_again(api)
            await asyncio.sleep(0.2)


class Workload:
    """See `running`."""

    def __init__(self, service: Service, api: ApiClient, fleet: list[Device], switch: Switch, receiver: Receiver) -> None:
        self.service = service
        self.api = api
        self.fleet = fleet
        self.switch = switch
        self.commander = Commander(switch.device)
        self.receiver = receiver
        self.delivered: set[str] = set()
        """The ids of the events that the receiver has answered with 200."""
        self.receiver.behave = self.accept
        self.meters: Sequence[EdgeMeter] = ()
        """Devices with a rule; only where rules may move from one instance to another."""
        self.published: dict[str, set[int]] = {}
        """Numbers of acknowledged readings, by device, that a fault published itself."""
        self._forgotten: dict[str, set[int]] = {}
        self.checks: list[Callable[[Verdict], Awaitable[None]]] = []
        """What a fault wants checked at the end."""
        self._simulation: Any = None

    async def start(self) -> None:
        identities = [(device.device_id, device.credentials["mqttPassword"]) for device in self.fleet]
        self._simulation = _native.Simulation(
            "127.0.0.1",
            self.service.mqtt_port,
            identities,
            rate=RATE_PER_S,
            keep_puback_log=True,
            duplicating_share=0.25,
            version=5,
        )
        self._tasks = [
            asyncio.create_task(self.switch.run(self.service)),
            asyncio.create_task(self.commander.run(self.service, self.api)),
            *(asyncio.create_task(meter.listen(self.service, self.api)) for meter in self.meters),
            *(asyncio.create_task(meter.run(self.service)) for meter in self.meters),
        ]

    async def stop(self) -> None:
        """No new work; the devices that obey stay connected until the check is over."""
        await asyncio.to_thread(self._simulation.stop)
        await cancel_tasks(self._tasks[1])
        for meter in self.meters:
            meter.is_reporting = False

    async def sign_in(self) -> None:
        """The Owner's session has ended if the clock was set; the service may still be busy with what the fault left behind."""
        deadline = asyncio.get_running_loop().time() + RECOVERY_S
        while True:
            try:
                return await self.service.sign_in_again(self.api)
            except (AssertionError, httpx.HTTPError):
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        if self._simulation is not None:
            await asyncio.to_thread(self._simulation.stop)
            await cancel_tasks(*self._tasks)

    def acknowledged_readings(self) -> dict[str, set[int]]:
        """The numbers that devices have a PUBACK for, and that the database ought to have."""
        found = {
            device_id: {number for first, last in runs for number in range(first, last + 1)}
            for device_id, runs in self._simulation.puback_log()
        }
        return {
            device_id: numbers - self._forgotten.get(device_id, set()) for device_id, numbers in (found | self.published).items()
        }

    def forget_since(self, before: Mapping[str, set[int]]) -> None:
        """The database goes back to a copy that was made when `before` was acknowledged; what came later may be gone."""
        for device_id, numbers in self.acknowledged_readings().items():
            self._forgotten.setdefault(device_id, set()).update(numbers - before.get(device_id, set()))

    async def accept(self, receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """How the receiver behaves unless a fault changes it."""
        event_id = receiver.requests[-1].headers.get("webhook-id", "")
        keep_open = await _ANSWER(receiver, reader, writer)
        self.delivered.add(event_id)
        return keep_open

    @property
    def confirmed(self) -> int:
        return int(self._simulation.stats()["confirmed"])

    async def progress(self, messages: int = 100, within_s: float = RECOVERY_S) -> None:
        """Until that many more readings are acknowledged: the service has recovered from the last fault."""
        goal = self.confirmed + messages
        async with asyncio.timeout(within_s):
            while self.confirmed < goal:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(service: Service, meters: int = 0) -> AsyncIterator[Workload]:
    """The workload on a service that is ready. The receiver answers 200. `meters`: devices with a rule."""
    async with service.api() as api, webhook_receiver(respond(200)) as receiver:
        fleet = [await create_device(api, f"Meter {number}") for number in range(FLEET)]
        switch = Switch(await create_device(api, "Switch"))
        key = await api.post("/keys", {"name": f"Receiver {secrets.token_hex(4)}"}, expect=201)
        grant = {"commands": ["*"], "apiKeyId": key["keyId"], "appliesVia": "project"}
        await api.post(f"{switch.device.path}/grants", grant, expect=201)
        await api.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url, "types": TYPES}, expect=201)
        workload = Workload(service, api, fleet, switch, receiver)
        workload.meters = [EdgeMeter(await create_device(api, f"Edge {number}")) for number in range(meters)]
        for device in (switch.device, *(meter.device for meter in workload.meters)):
            device.credentials["mqttPort"] = service.mqtt_port  # the balancer's, where there is one
        for meter in workload.meters:
            await meter.create_rule(service, api)
        try:
            await workload.start()
            await workload.progress()
            yield workload
        finally:
            await workload.close()
