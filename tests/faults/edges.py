"""Devices whose numbered reports make a rule fire now and then, and a client of the live feed that hears each of them.

A rule that fires twice, or not, shows what a take-over did to its state; the feed shows the order in which readings were stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiomqtt
import websockets
from websockets.asyncio.client import connect

from faults.checks import Verdict
from support.device import Device, cancel_tasks
from support.service import ApiClient, Service

PAUSE_S = 0.05
EDGE_EVERY = 150
"""Reports between two edges: 7.5 s at least, because a rule that fires eleven times in a minute is disabled."""
RULE = {"name": "edge", "conditions": [{"metric": "edge", "comparator": "==", "value": 1}], "action": {"command": "ON"}}
TIMEOUT_S = 8
SETTLE_S = 60.0


@dataclass
class EdgeMeter:
    device: Device
    confirmed: int = 0
    """Number of the last report that has a PUBACK; all before it have one."""
    ran: Counter[str] = field(default_factory=Counter)
    """How often each command arrived, by id. A command may arrive again; firmware drops it by its id."""
    heard: list[int] = field(default_factory=list)
    """The numbers on the feed, in their order. A resumed feed repeats some events; their ids are known."""
    resyncs: int = 0
    is_reporting: bool = True
    """False: it stays connected and reports no more."""
    _known: set[str] = field(default_factory=set)
    _listening: asyncio.Event = field(default_factory=asyncio.Event)
    _cursor: str = ""
    _begin_ms: int = 0

    async def create_rule(self, service: Service, api: ApiClient) -> None:
        """A rule may name only what the device has reported."""
        async with asyncio.timeout(SETTLE_S):
            while not await self._has_reported(service):
                await asyncio.sleep(0.2)  # an instance learns of a new device a moment after the one that registered it
        await api.wait_until(f"{self.device.path}/rules/context", lambda found: "edge" in found["metrics"])
        await api.post(f"{self.device.path}/rules", RULE, expect=201)
        self._begin_ms = int(time.time() * 1000)

    async def _has_reported(self, service: Service) -> bool:
        with contextlib.suppress(aiomqtt.MqttError):
            async with self.device.client(service, timeout=5) as client:
                await client.publish(self.device.topic("telemetry"), json.dumps({"m": {"edge": 0}}), qos=1, timeout=TIMEOUT_S)
                return True
        return False

    async def run(self, service: Service) -> None:
        """Report, one number after the other; repeat what was not confirmed."""
        await self._listening.wait()
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError, TimeoutError):
                async with self.device.client(service, timeout=5) as client:
                    await client.subscribe(self.device.topic("cmd"), qos=1)
                    obeying = asyncio.create_task(self._obey(client))
                    try:
                        while not obeying.done():
                            if self.is_reporting:
                                await self._report(client, self.confirmed + 1)
                                self.confirmed += 1
                            await asyncio.sleep(PAUSE_S)
                    finally:
                        await cancel_tasks(obeying)
            await asyncio.sleep(0.1)

    async def _report(self, client: aiomqtt.Client, number: int) -> None:
        values = {"n": number, "edge": int(number % EDGE_EVERY == 0)}
        payload = json.dumps({"ts": self._begin_ms + number, "m": values})
        await client.publish(self.device.topic("telemetry"), payload, qos=1, timeout=TIMEOUT_S)

    async def _obey(self, client: aiomqtt.Client) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in client.messages:
                command = json.loads(bytes(message.payload))
                self.ran[command["id"]] += 1
                result = json.dumps({"id": command["id"], "status": "done", "relay": "ON"})
                await client.publish(self.device.topic("result"), result, qos=1, timeout=TIMEOUT_S)

    async def listen(self, service: Service, api: ApiClient) -> None:
        """Follow the device's readings on the live feed, and resume with the last cursor when the connection ends."""
        while True:
            with contextlib.suppress(OSError, TimeoutError, websockets.WebSocketException):
                query = f"?deviceId={self.device.device_id}&types=telemetry" + (f"&cursor={self._cursor}" if self._cursor else "")
                address = f"ws://127.0.0.1:{service.port}/api/v1/ws{query}"
                async with connect(address, additional_headers=api.headers, open_timeout=5, close_timeout=1) as socket:
                    async for message in socket:
                        self._hear(json.loads(message))
            await asyncio.sleep(0.2)

    def _hear(self, message: dict[str, Any]) -> None:
        self._cursor = message.get("cursor", self._cursor)
        self.resyncs += message["type"] == "resync"
        if message["type"] == "initial_state":
            self._listening.set()
        if message["type"] == "telemetry" and message["metric"] == "n" and message["eventId"] not in self._known:
            self._known.add(message["eventId"])
            self.heard.append(int(message["value"]))

    async def check(self, api: ApiClient, found: Verdict) -> None:
        """Call it when the device has stopped reporting. The last report may be stored without a PUBACK."""
        name, expected = self.device.device_id, range(1, self.confirmed + 1)
        await _until(lambda: set(expected) <= set(self.heard))
        found.acknowledged += self.confirmed
        lost = set(expected) - set(self.heard)
        found.count("lost", len(lost), f"readings of {name} on the feed: {sorted(lost)[:10]}")
        found.count("doubled", len(self.heard) - len(set(self.heard)), f"readings of {name} on the feed")
        backwards = [(a, b) for a, b in zip(self.heard, self.heard[1:], strict=False) if b < a]
        found.count("wrong", len(backwards), f"readings of {name} out of order: {backwards[:10]}")
        found.count("wrong", self.resyncs, f"times the feed of {name} could not resume")
        await self._check_firings(api, found)

    async def _check_firings(self, api: ApiClient, found: Verdict) -> None:
        name, least, most = self.device.device_id, self.confirmed // EDGE_EVERY, (self.confirmed + 1) // EDGE_EVERY
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while len(fired := await self._executions(api)) < least or len(self.ran) < least:
                    await asyncio.sleep(0.5)
        found.edges += least
        found.count("lost", max(0, least - len(fired)), f"firings of the rule of {name}, of {least}")
        found.count("doubled", max(0, len(fired) - most), f"firings of the rule of {name}, of {most}")
        found.count(
            "wrong", len(fired ^ self.ran.keys()), f"commands of the rule of {name} that did not reach it, or that nobody sent"
        )

    async def _executions(self, api: ApiClient) -> set[str]:
        page = await api.get(f"{self.device.path}/executions?limit=200")
        return {one["executionId"] for one in page["data"] if one["cmd"] == "ON"}


async def _until(is_so: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            while not is_so():
                await asyncio.sleep(0.1)
