"""Numbered work for a running service, and the check of what became of it.

While faults are injected, a simulated fleet publishes numbered telemetry, one real device obeys commands, a client sends them with an
`Idempotency-Key` and retries, and a webhook receiver records what it gets. `check` then compares what the service acknowledged with
what it stored, delivered and switched:

- lost: acknowledged and not there (a reading, a command's execution, a webhook delivery);
- doubled: there twice (a stored reading, an execution for one key, a result event for one execution, a schedule edge);
- wrong: told and not true (a 500, an execution that the device ran and the service reports as never run).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiomqtt
import httpx

from adapters.engine import _native
from support.device import Device, cancel_tasks, create_device
from support.service import ApiClient, Service
from support.webhook_receiver import Receiver, respond, webhook_receiver

FLEET = 12
RATE_PER_S = 240.0
COMMAND_TTL_S = 120
COMMAND_PAUSE_S = 0.1
FINAL = ("DONE", "FAILED", "EXPIRED", "TIMED_OUT")
RECOVERY_S = 60.0
"""How long the checks wait for what the service still owes after the last fault."""


@dataclass
class Verdict:
    """What one campaign found. All are counts; `acknowledged` is the number of readings and commands that were confirmed."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def count(self, kind: str, number: int, note: str) -> None:
        if number:
            setattr(self, kind, getattr(self, kind) + number)
            self.notes.append(f"{kind} {number}: {note}")


@dataclass
class Switch:
    """The device that obeys: each command id it ran, in order. It never runs an id twice, as firmware does."""

    device: Device
    ran: list[str] = field(default_factory=list)
    repeats: int = 0

    async def run(self, service: Service) -> None:
        """Connect, obey, reconnect, until cancelled."""
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError, TimeoutError):
                async with self.device.client(service, timeout=5) as client:
                    await client.subscribe(self.device.topic("cmd"), qos=1)
                    async for message in client.messages:
                        await self._obey(client, json.loads(bytes(message.payload)))
            await asyncio.sleep(0.1)

    async def _obey(self, client: aiomqtt.Client, command: dict[str, Any]) -> None:
        if command["id"] in self.ran:
            self.repeats += 1
        else:
            self.ran.append(command["id"])
        relay = "ON" if command["cmd"] == "ON" else "OFF"
        result = {"id": command["id"], "status": "done", "relay": relay}
        await client.publish(self.device.topic("result"), json.dumps(result), qos=1, timeout=30)


@dataclass
class Commander:
    """Sends commands one after another. Each has one key and is retried until the service answers it definitely."""

    device: Device
    executions: dict[str, set[str]] = field(default_factory=dict)
    server_errors: Counter[str] = field(default_factory=Counter)

    async def run(self, service: Service, api: ApiClient) -> None:
        number = 0
        while True:
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
        self._simulation: Any = None

    async def start(self) -> None:
        identities = [(device.device_id, device.credentials["mqttPassword"]) for device in self.fleet]
        self._simulation = _native.Simulation(
            "127.0.0.1", self.service.mqtt_port, identities, rate=RATE_PER_S, keep_ack_log=True, duplicating_share=0.25, version=5
        )
        self._tasks = [
            asyncio.create_task(self.switch.run(self.service)),
            asyncio.create_task(self.commander.run(self.service, self.api)),
        ]

    async def stop(self) -> None:
        """No new work; the device stays connected until the check is over."""
        await asyncio.to_thread(self._simulation.stop)
        await cancel_tasks(self._tasks[1])

    async def close(self) -> None:
        if self._simulation is not None:
            await asyncio.to_thread(self._simulation.stop)
            await cancel_tasks(*self._tasks)

    @property
    def confirmed(self) -> int:
        return int(self._simulation.stats()["confirmed"])

    async def progress(self, messages: int = 100, within_s: float = RECOVERY_S) -> None:
        """Until that many more readings are acknowledged: the service has recovered from the last fault."""
        goal = self.confirmed + messages
        async with asyncio.timeout(within_s):
            while self.confirmed < goal:
                await asyncio.sleep(0.02)

    async def check(self) -> Verdict:
        """Compare what was acknowledged with what is there."""
        found = Verdict()
        found.count("wrong", self.commander.server_errors.total(), f"HTTP 500: {dict(self.commander.server_errors)}")
        await self._check_readings(found)
        await self._check_executions(found)
        await self._check_deliveries(found)
        return found

    async def _check_readings(self, found: Verdict) -> None:
        for device_id, runs in self._simulation.ack_log():
            acknowledged = {number for first, last in runs for number in range(first, last + 1)}
            answer = await self.api.send("GET", f"/devices/{device_id}/telemetry/export?format=csv&metric=seq", timeout=120)
            stored = Counter(int(float(row.split(",")[1])) for row in answer.text.splitlines()[1:])
            found.acknowledged += len(acknowledged)
            found.count("lost", len(acknowledged - set(stored)), f"readings of {device_id}")
            found.count("doubled", sum(stored.values()) - len(stored), f"readings of {device_id}")

    async def _check_executions(self, found: Verdict) -> None:
        path = self.switch.device.path
        by_key = self.commander.executions
        found.acknowledged += len(by_key)
        found.count("doubled", sum(len(ids) - 1 for ids in by_key.values()), "executions for one Idempotency-Key")
        for execution_id in [one for ids in by_key.values() for one in ids]:
            answer = await self.api.send("GET", f"{path}/executions/{execution_id}")
            if answer.status_code == 404:
                found.count("lost", 1, f"execution {execution_id}")
                continue
            execution = await self._final(path, execution_id)
            if execution_id in self.switch.ran and execution["status"] != "DONE":
                found.count("wrong", 1, f"{execution_id} ran on the device and is {execution['status']}")
            if execution_id not in self.switch.ran and execution["status"] == "DONE":
                found.count("wrong", 1, f"{execution_id} is DONE and never ran")
        ended = sum(one["status"] in FINAL for one in await self._pages(f"{path}/executions?limit=100"))
        results = len(await self._events("command_result"))
        found.count("doubled", max(0, results - ended), f"command_result events: {results} for {ended} ended executions")
        found.count("lost", max(0, ended - results), f"command_result events: {results} for {ended} ended executions")

    async def _final(self, path: str, execution_id: str) -> dict[str, Any]:
        deadline = asyncio.get_running_loop().time() + RECOVERY_S
        while True:
            execution: dict[str, Any] = await self.api.get(f"{path}/executions/{execution_id}")
            if execution["status"] in FINAL or asyncio.get_running_loop().time() > deadline:
                return execution
            await asyncio.sleep(0.2)

    async def _check_deliveries(self, found: Verdict) -> None:
        """Every relay change in the log reaches the receiver; the standard's `webhook-id` names the event."""
        changes = {event["id"] for event in await self._events("relay_changed")}
        deadline = asyncio.get_running_loop().time() + 2 * RECOVERY_S
        while missing := changes - {got.headers.get("webhook-id", "") for got in self.receiver.requests}:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.5)
        found.count("lost", len(missing), f"webhook deliveries of {len(changes)} relay changes")

    async def _events(self, kind: str) -> list[dict[str, Any]]:
        return await self._pages(f"/events?limit=200&type={kind}")

    async def _pages(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = await self.api.get(path)
        while True:
            found += page["data"]
            if not page["hasMore"]:
                return found
            page = await self.api.get(f"{path}&cursor={page['cursor']}")


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[Workload]:
    """The workload on a service that is ready. The receiver answers 200."""
    async with service.api() as api, webhook_receiver(respond(200)) as receiver:
        fleet = [await create_device(api, f"Meter {number}") for number in range(FLEET)]
        switch = Switch(await create_device(api, "Switch"))
        key = await api.post("/keys", {"name": f"Receiver {secrets.token_hex(4)}"}, expect=201)
        grant = {"commands": ["*"], "apiKeyId": key["keyId"], "appliesVia": "project"}
        await api.post(f"{switch.device.path}/grants", grant, expect=201)
        await api.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
        workload = Workload(service, api, fleet, switch, receiver)
        try:
            await workload.start()
            await workload.progress()
            yield workload
        finally:
            await workload.close()
