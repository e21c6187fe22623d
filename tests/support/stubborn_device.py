"""A device that reconnects whenever its connection is lost and carries out each command once, for tests that kill the program."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

import aiomqtt

from support.device import Device
from support.service import Service

TRY_S = 3.0
"""Of one operation on a connection; then it connects again."""


class StubbornDevice:
    """`received`: how often each command id came; its keys are the ids that ran. `ran`: the commands, in order."""

    def __init__(self, device: Device, service: Service) -> None:
        self.device = device
        self.received: Counter[str] = Counter()
        self.ran: list[str] = []
        self._service = service

    async def live(self) -> None:
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError):
                async with self.device.client(self._service, timeout=TRY_S) as client:
                    await client.subscribe(self.device.topic("cmd"), qos=1)
                    async for message in client.messages:
                        await self._obey(client, json.loads(bytes(message.payload)))
            await asyncio.sleep(0.1)

    async def _obey(self, client: aiomqtt.Client, order: dict[str, str]) -> None:
        self.received[order["id"]] += 1
        if self.received[order["id"]] == 1:  # native firmware remembers the ids that it has run
            self.ran.append(order["cmd"])
        for below, word in (
            ("state", {"relay": order["cmd"], "by": "cmd"}),
            ("result", {"status": "done", "relay": order["cmd"]}),
        ):
            await client.publish(self.device.topic(below), json.dumps(word | {"id": order["id"]}), qos=1)
