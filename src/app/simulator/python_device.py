"""A device that is not there: reports telemetry, obeys commands, keeps its plan, as a good firmware would.

It speaks MQTT through aiomqtt like any device and knows nothing of the service beyond the wire contract. For the demo's handful,
which cool when they are switched on; `latchboard simulate` plays the extension's fleet, for thousands.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from dataclasses import dataclass, field

import aiomqtt
import structlog

from domain.kernel.clock import Clock

AGAIN_AFTER_S = 2.0
AT_WORK_S = 0.05
"""Between `ack` and `done`: long enough to be seen in the feed."""

log = structlog.get_logger("simulation")


@dataclass(frozen=True, slots=True)
class Login:
    host: str
    port: int
    device_id: str
    password: str = field(repr=False)


class SimulatedDevice:
    """`every_s`: pause between two reports. `seed` gives each device a temperature curve of its own."""

    def __init__(self, login: Login, clock: Clock, *, every_s: float = 2.0, seed: int = 0) -> None:
        self._login = login
        self._clock = clock
        self._every_s = every_s
        self._random = random.Random(seed)  # noqa: S311 - weather, not a secret
        self._phase = self._random.uniform(0, 2 * math.pi)
        self._ticks = 0
        self.relay = False
        self.obeyed = 0

    async def run(self) -> None:
        """Until cancelled; connects again whenever the connection is lost."""
        while True:
            try:
                await self._connection()
            except* aiomqtt.MqttError as lost:
                log.debug("a simulated device has no connection", device_id=self._login.device_id, error=repr(lost.exceptions[0]))
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _connection(self) -> None:
        login = self._login
        will = aiomqtt.Will(self._topic("status"), "offline", qos=1, retain=True)
        async with aiomqtt.Client(
            login.host,
            login.port,
            username=login.device_id,
            password=login.password,
            identifier=login.device_id,
            will=will,
            keepalive=30,
        ) as client:
            await client.subscribe([(self._topic("cmd"), 1), (self._topic("sched"), 1)])
            await client.publish(self._topic("status"), "online", qos=1, retain=True)
            await client.publish(self._topic("hello"), json.dumps({"fw": "simulated-1.0"}), qos=1)
            await self._tell_state(client)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._report(client))
                group.create_task(self._listen(client))

    async def _report(self, client: aiomqtt.Client) -> None:
        while True:
            self._ticks += 1
            message = {"ts": self._clock.now_ms(), "m": self._readings(), "u": {"temperature": "celsius", "power": "watt"}}
            await client.publish(self._topic("telemetry"), json.dumps(message), qos=1)
            await asyncio.sleep(self._every_s * self._random.uniform(0.9, 1.1))

    def _readings(self) -> dict[str, float]:
        """Cools while the relay is on, so that a rule on the temperature has something to do and an effect."""
        swing = 6 * math.sin(self._phase + self._ticks / 15)
        cooling = 2.0 if self.relay else 0.0
        return {
            "temperature": round(24 + swing - cooling + self._random.uniform(-0.3, 0.3), 2),
            "humidity": round(55 - swing + self._random.uniform(-1, 1), 1),
            "power": round(120 + self._random.uniform(-4, 4), 1) if self.relay else 0.4,
        }

    async def _listen(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            if not isinstance(message.payload, bytes | bytearray):
                continue
            order = json.loads(message.payload)
            if message.topic.value.endswith("/sched"):
                await client.publish(self._topic("sched/rev"), json.dumps({"rev": order.get("rev", 0)}), qos=1, retain=True)
            else:
                await self._obey(client, order)

    async def _obey(self, client: aiomqtt.Client, order: dict[str, object]) -> None:
        cmd, execution_id = str(order.get("cmd")), str(order.get("id"))
        if int(str(order.get("exp", 0))) < self._clock.now_ms():
            await self._answer(client, execution_id, status="expired")
            return
        await self._answer(client, execution_id, status="ack")
        await asyncio.sleep(AT_WORK_S)
        before = self.relay
        self.relay = {"ON": True, "OFF": False, "TOGGLE": not self.relay}.get(cmd, self.relay)
        self.obeyed += 1
        if self.relay != before:
            await self._tell_state(client, by="cmd", execution_id=execution_id)
        await self._answer(client, execution_id, status="done", relay="ON" if self.relay else "OFF")

    async def _answer(self, client: aiomqtt.Client, execution_id: str, **said: str) -> None:
        await client.publish(self._topic("result"), json.dumps({"id": execution_id, **said}), qos=1)

    async def _tell_state(self, client: aiomqtt.Client, by: str | None = None, execution_id: str | None = None) -> None:
        state: dict[str, object] = {"relay": "ON" if self.relay else "OFF", "ts": self._clock.now_ms()}
        if by is not None:
            state |= {"by": by, "id": execution_id}
        await client.publish(self._topic("state"), json.dumps(state), qos=1, retain=True)

    def _topic(self, below: str) -> str:
        return f"devices/{self._login.device_id}/{below}"
