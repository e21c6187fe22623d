"""Commands whose sender dies, or hangs, while devices have them and before anything is stored of it. The devices carry out each
command in the moment it comes and answer later or never; a checker compares what is told of it with what they ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiomqtt
import httpx

from faults.boards import SETTLE_S
from faults.checks import FINAL, Verdict
from faults.workload import Workload
from support.device import Device, cancel_tasks, create_device
from support.service import Service
from support.waiting import TIMEOUT_S

DEVICES = 6
TTL_S = (1, 2)
TRY_S = 3.0
"""Of one operation on a connection; then it connects again."""


@dataclass
class Runner:
    """Firmware that runs each id once. `came`: how often each came. `answers`: whether it tells so, from its next connection on, or at once."""

    device: Device
    on_command: Callable[[], None]
    answers: bool = False
    answers_at_once: bool = False
    client: aiomqtt.Client | None = None
    """Of the connection that it has, while it is `subscribed`."""
    came: Counter[str] = field(default_factory=Counter)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self, service: Service) -> None:
        """Connect, carry out, connect again, until cancelled."""
        while True:
            with contextlib.suppress(aiomqtt.MqttError, OSError, TimeoutError):
                async with self.device.client(service, timeout=TRY_S) as client:
                    await client.publish(self.device.topic("status"), "online", qos=1, retain=True)
                    await client.subscribe(self.device.topic("cmd"), qos=1)
                    if self.answers:
                        for command_id in list(self.came):
                            await self._answer(client, command_id)
                    self.client = client
                    self.subscribed.set()
                    async for message in client.messages:
                        command_id = json.loads(bytes(message.payload))["id"]
                        self.came[command_id] += 1
                        self.on_command()
                        if self.answers_at_once:
                            await self._answer(client, command_id)
            self.subscribed.clear()
            await asyncio.sleep(0.1)

    async def _answer(self, client: aiomqtt.Client, command_id: str) -> None:
        await client.publish(self.device.topic("result"), json.dumps({"id": command_id, "status": "done"}), qos=1)


class WireKills:
    """Call `prepare` once, `strike` for each injection, `check` at the end. `front`: the instance that the devices connect to."""

    def __init__(self, workload: Workload, front: Service) -> None:
        self._work, self._front = workload, front
        self._runners: list[Runner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: dict[str, Runner] = {}
        self._awaited = 0
        self._struck = asyncio.Event()

    async def prepare(self) -> None:
        await self._work.sign_in()
        for number in range(DEVICES):
            device = await create_device(self._work.api, f"Wire {number}")
            device.credentials["mqttPort"] = self._front.mqtt_port
            runner = Runner(device, self._count, answers=number % 2 == 1)
            self._runners.append(runner)
            self._tasks.append(asyncio.create_task(runner.live(self._front)))

    async def strike(self, end: Callable[[], Awaitable[None]]) -> None:
        """Send one command to each device; `end` kills or stops the sender when some devices have theirs. Returns after
        the deadlines."""
        await self._work.sign_in()
        async with asyncio.timeout(TIMEOUT_S):
            for runner in self._runners:
                await runner.subscribed.wait()
                await self._work.api.wait_until(runner.device.path, lambda found: found["isOnline"])
        self._struck.clear()
        self._awaited = random.randint(1, DEVICES)
        sending = [asyncio.create_task(self._send(runner)) for runner in self._runners]
        async with asyncio.timeout(TIMEOUT_S):
            await self._struck.wait()
        await end()
        await asyncio.gather(*sending)
        await asyncio.sleep(max(TTL_S))

    def _count(self) -> None:
        self._awaited -= 1
        if self._awaited == 0:
            self._struck.set()

    async def _send(self, runner: Runner) -> None:
        """A caller that hears nothing does not repeat a TOGGLE: then nobody is told anything of it."""
        body = {"cmd": "TOGGLE", "ttlSeconds": random.choice(TTL_S)}
        with contextlib.suppress(httpx.HTTPError):
            answer = await self._work.api.send("POST", f"{runner.device.path}/command", body, timeout=10)
            if answer.status_code == 200:
                self._sent[answer.json()["executionId"]] = runner

    async def check(self, found: Verdict) -> None:
        ends: dict[str, str] = {}
        for runner in self._runners:
            ends |= await self._ends(runner)
        found.acknowledged += len(self._sent)
        found.count("lost", len(self._sent.keys() - ends.keys()), "commands that were accepted are not there")
        for runner in self._runners:
            for command_id in runner.came:
                status = ends.get(command_id, "not there")
                told = ("DONE",) if runner.answers else ("TIMED_OUT",)
                found.count("wrong", int(status not in told), f"{command_id} was at its device and is told as {status}")
        at_device = {command_id for runner in self._runners for command_id in runner.came}
        done = [each for each, status in ends.items() if status == "DONE" and each not in at_device]
        found.count("wrong", len(done), f"no device had {done}, and they are DONE")
        await cancel_tasks(*self._tasks)

    async def _ends(self, runner: Runner) -> dict[str, str]:
        """Status by id, when all have ended, and those of a device that answers are DONE; or after the time for that."""
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while True:
            page = await self._work.api.send("GET", f"{runner.device.path}/executions?limit=100")
            found = {each["executionId"]: each["status"] for each in page.json()["data"]} if page.status_code == 200 else {}
            ended = bool(found) and all(status in FINAL for status in found.values())
            told = not runner.answers or all(found.get(command_id) == "DONE" for command_id in runner.came)
            if (ended and told) or asyncio.get_running_loop().time() > deadline:
                return found
            await asyncio.sleep(0.5)
