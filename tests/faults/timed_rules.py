"""Devices whose messages wait in the log during a fault, with rules that time decides: a wait that ended before the message that breaks
it, and a silence that never lasted long enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiomqtt

from faults.checks import RECOVERY_S, Verdict
from faults.workload import Workload
from support.device import Device, cancel_tasks, create_device
from support.service import Service

DEVICES = 4
FOR_S, SILENT_S = 3, 10
HELD_S = FOR_S + 1.0
PUBLISH_TIMEOUT_S = 60
BEAT_S = 0.5
HELD: dict[str, Any] = {"name": "held", "conditions": [{"metric": "hot", "comparator": "==", "value": 1}], "forSeconds": FOR_S}
QUIET: dict[str, Any] = {"name": "quiet", "conditions": [{"metric": "beat", "comparator": "silent", "value": SILENT_S}]}


class TimedRules:
    """Call `prepare` before the fault, `beating` and `hold` in it. `front`: the instance that devices connect to; it stays."""

    def __init__(self, workload: Workload, front: Service) -> None:
        self._work, self._front = workload, front
        self._devices: list[Device] = []
        self._longest_pause_s = 0.0
        self._held = 0

    async def prepare(self) -> None:
        await self._work.sign_in()
        for number in range(DEVICES):
            device = await create_device(self._work.api, f"Timed {number} {time.time():.0f}")
            device.credentials["mqttPort"] = self._front.mqtt_port
            self._devices.append(device)
            await self._publish_first(device)
            await self._work.api.wait_until(f"{device.path}/rules/context", lambda found: "hot" in found["metrics"])
            await self._add_rule(device, HELD)

    async def _add_rule(self, device: Device, rule: dict[str, Any]) -> None:
        await self._work.api.post(f"{device.path}/rules", {**rule, "action": {"command": "OFF"}}, expect=201)

    async def _publish_first(self, device: Device) -> None:
        """An instance learns of a new device a moment after the one that registered it."""
        async with asyncio.timeout(RECOVERY_S):
            while True:
                with contextlib.suppress(aiomqtt.MqttError):
                    async with device.client(self._front) as client:
                        return await _report(client, device, hot=0, beat=1)
                await asyncio.sleep(0.2)

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[list[aiomqtt.Client]]:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(device.client(self._front)) for device in self._devices]
            beats = [asyncio.create_task(self._beat(*each)) for each in zip(clients, self._devices, strict=True)]
            try:
                for device in self._devices:
                    await self._wait_for_beat(device)  # it has been silent while the others were made
                    await self._add_rule(device, QUIET)
                yield clients
            finally:
                await cancel_tasks(*beats)

    async def _wait_for_beat(self, device: Device) -> None:
        began = datetime.now(UTC)
        await self._work.api.wait_until(
            f"{device.path}/telemetry/latest",
            lambda found: any(
                each["metric"] == "beat" and datetime.fromisoformat(each["recordedAt"]) >= began for each in found["telemetry"]
            ),
        )

    async def _beat(self, client: aiomqtt.Client, device: Device) -> None:
        while True:
            began = time.monotonic()
            await _report(client, device, beat=1)
            await asyncio.sleep(BEAT_S)
            self._longest_pause_s = max(self._longest_pause_s, time.monotonic() - began)

    async def hold(self, clients: list[aiomqtt.Client]) -> None:
        for hot in (1, 0):
            await asyncio.gather(*[_report(*each, hot=hot) for each in zip(clients, self._devices, strict=True)])
            await asyncio.sleep(HELD_S)
        self._held += 1

    async def check(self, found: Verdict) -> None:
        """Call it while the devices still beat."""
        for device in self._devices:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECOVERY_S):
                    while (await self._matches(device))["held"] < self._held:
                        await asyncio.sleep(0.5)
            told, name = await self._matches(device), device.device_id
            found.count("lost", max(0, self._held - told["held"]), f"firings of `forSeconds` of {name}")
            found.count("doubled", max(0, told["held"] - self._held), f"firings of `forSeconds` of {name}")

    async def check_silence(self, found: Verdict) -> None:
        """As `check`; not if this machine itself was too slow for the rule."""
        if self._longest_pause_s < SILENT_S - 1:
            for device in self._devices:
                told = (await self._matches(device))["quiet"]
                found.count("wrong", told, f"`silent` fired of {device.device_id}, which was never silent for {SILENT_S} s")

    async def _matches(self, device: Device) -> Counter[str]:
        async with asyncio.timeout(RECOVERY_S):
            while True:
                path = f"/events?limit=200&deviceId={device.device_id}&type=rule_matched"
                answer = await self._work.api.send("GET", path)
                if answer.status_code == 200:
                    return Counter(event["description"].split("'")[1] for event in answer.json()["data"])
                await asyncio.sleep(0.5)  # the database has just come back


async def _report(client: aiomqtt.Client, device: Device, **values: int) -> None:
    await client.publish(device.topic("telemetry"), json.dumps({"m": values}), qos=1, timeout=PUBLISH_TIMEOUT_S)
