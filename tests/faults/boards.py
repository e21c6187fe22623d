"""Boards that go on by themselves while no service hears them: one runs its plan, at one somebody presses the button, one loses its
power, one is watched by a `silent` rule, one answers a command too late. A checker compares what the service then did and said with
what happened at the boards: nothing is switched against a person, and no edge is told otherwise than it went.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiomqtt

from faults.checks import Verdict
from support.device import Device, cancel_tasks, create_device
from support.service import ApiClient, Service

TICK_S = 0.1
PUBLISH_TIMEOUT_S = 8
SILENCE_S = 15
LEAD_S = 15
"""From saving a plan to the begin of the absence; by then each board has its plan."""
SETTLE_S = 100.0
"""More than the 60 seconds that a board has to say what it did."""


class Site(Protocol):
    """Where the boards are: the running service, and its owner."""

    @property
    def service(self) -> Service: ...

    @property
    def api(self) -> ApiClient: ...


@dataclass
class Board:
    """Firmware with a relay: it holds its plan, runs it by its own clock, and tells by whom the relay was switched last."""

    device: Device
    now_s: Callable[[], float]
    plan: dict[str, Any] = field(default_factory=lambda: {"rev": 0, "s": []})
    relay: bool = False
    by: str = "boot"
    reports_flow: bool = False
    answers: bool = True
    commands: list[dict[str, Any]] = field(default_factory=list)
    _told_ts: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def switch(self, relay: bool, by: str) -> None:
        self.relay, self.by = relay, by
        self._changed.set()

    def lose_power(self) -> None:
        self.plan = {"rev": 0, "s": []}
        self.switch(False, "boot")

    def run_plan(self) -> None:
        """Run the edges since the last call, in their order."""
        now = self.now_s()
        edges = [edge for slot in self.plan["s"] for edge in ((slot[1], True), (slot[2], False)) if edge[0]]
        for ts, relay in sorted(edges):
            if self._told_ts < ts <= now:
                self.switch(relay, "sched")
        self._told_ts = now

    async def live(self, service: Service) -> None:
        """Connect, say what is, obey, connect again, until cancelled."""
        self._told_ts = self.now_s()
        ticking = asyncio.create_task(self._tick())
        try:
            while True:
                with contextlib.suppress(aiomqtt.MqttError, OSError, TimeoutError):
                    async with self.device.client(service, timeout=5) as client:
                        await self._talk(client)
                await asyncio.sleep(TICK_S)
        finally:
            await cancel_tasks(ticking)

    async def _tick(self) -> None:
        while True:
            self.run_plan()
            await asyncio.sleep(TICK_S)

    async def _talk(self, client: aiomqtt.Client) -> None:
        await self._publish(client, "hello", {"fw": "1", "sched": self.plan["rev"]})
        await self._publish(client, "sched/rev", {"rev": self.plan["rev"]}, retain=True)
        self._changed.set()
        for below in ("cmd", "sched"):
            await client.subscribe(self.device.topic(below), qos=1)
        reporting = asyncio.create_task(self._report(client))
        try:
            async for message in client.messages:
                await self._on(client, str(message.topic).rpartition("/")[2], json.loads(bytes(message.payload)))
        finally:
            await cancel_tasks(reporting)

    async def _report(self, client: aiomqtt.Client) -> None:
        with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.5)
                    self._changed.clear()
                    state = {"relay": "ON" if self.relay else "OFF", "by": self.by}
                    await self._publish(client, "state", state, retain=True)
                if self.reports_flow:
                    await self._publish(client, "telemetry", {"m": {"flow": 1}})

    async def _on(self, client: aiomqtt.Client, below: str, message: dict[str, Any]) -> None:
        if below == "sched":
            self.plan = message
            await self._publish(client, "sched/rev", {"rev": message["rev"]}, retain=True)
        elif message["id"] not in [known["id"] for known in self.commands]:
            self.commands.append(message)
            if message["cmd"] in ("ON", "OFF"):
                self.switch(message["cmd"] == "ON", "cmd")
            if self.answers:
                await self.answer(client, message)

    async def answer(self, client: aiomqtt.Client, command: dict[str, Any]) -> None:
        result = {"id": command["id"], "status": "done", "relay": "ON" if self.relay else "OFF"}
        await self._publish(client, "result", result)

    async def _publish(self, client: aiomqtt.Client, below: str, message: dict[str, Any], *, retain: bool = False) -> None:
        payload = json.dumps(message)
        await client.publish(self.device.topic(below), payload, qos=1, retain=retain, timeout=PUBLISH_TIMEOUT_S)


class LateBoard(Board):
    """It carries out a command before the absence, and tells so after it."""

    async def _talk(self, client: aiomqtt.Client) -> None:
        if self.answers:
            for command in self.commands:
                await self.answer(client, command)
        await super()._talk(client)


class Boards:
    """The boards of one absence. Call `prepare` while the service runs, `act` during the absence, `check` at the end."""

    def __init__(self, workload: Site, now_s: Callable[[], float], absence_s: float) -> None:
        """`now_s`: Unix seconds by the clock that boards and service share."""
        self._work = workload
        self.now_s = now_s
        self._absence_s = absence_s
        self._made: dict[str, Board] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._late_id = ""
        self.begin_ts = 0

    async def prepare(self) -> None:
        """Returns when each board holds its plan. The absence is to begin at `begin_ts` (Unix seconds)."""
        for name in ("holds", "pressed", "powerless", "silent", "late"):
            kind = LateBoard if name == "late" else Board
            board = kind(await create_device(self._work.api, f"Board {name}"), self.now_s, reports_flow=name == "silent")
            board.device.credentials["mqttPort"] = self._work.service.mqtt_port  # the balancer's, where there is one
            self._made[name] = board
            self._tasks.append(asyncio.create_task(board.live(self._work.service)))
        await self._watch_silence(self._made["silent"])
        self.begin_ts = int(self.now_s()) + LEAD_S
        on_ts, off_ts = self._at(0.25), self._at(0.5)
        plans = {"holds": (on_ts, off_ts), "pressed": (on_ts, self._at(1) + 86_400), "powerless": (on_ts, self._at(1) + 86_400)}
        for name, (on, off) in plans.items():
            path = f"{self._made[name].device.path}/schedules"
            await self._work.api.post(path, {"slot": 0, "onTs": on, "offTs": off}, expect=201)
        for name in plans:
            path = f"{self._made[name].device.path}/schedules"
            await self._work.api.wait_until(path, lambda found: found[0]["firmwareSynced"])
        late = self._made["late"]
        late.answers = False
        sent = await self._work.api.post(f"{late.device.path}/command", {"cmd": "ON", "ttlSeconds": 30})
        self._late_id = sent["executionId"]
        await self._work.api.wait_until(f"{late.device.path}/executions/{self._late_id}", lambda found: found["status"] == "SENT")
        assert self.now_s() < on_ts, "this machine was too slow: an edge is due before the service is away"

    async def _watch_silence(self, board: Board) -> None:
        path, condition = board.device.path, {"metric": "flow", "comparator": "silent", "value": SILENCE_S}
        await self._work.api.wait_until(f"{path}/rules/context", lambda found: "flow" in found["metrics"])
        rule = {"name": "No flow", "conditions": [condition], "action": {"command": "OFF"}}
        await self._work.api.post(f"{path}/rules", rule, expect=201)

    def _at(self, part: float) -> int:
        return self.begin_ts + round(part * self._absence_s)

    async def act(self) -> None:
        """Call when the service is away and, on a clock that jumps, the absence is over."""
        await asyncio.sleep(max(0.0, self._at(0.75) - self.now_s()))
        self._made["holds"].run_plan()
        self._made["pressed"].run_plan()
        assert self._made["pressed"].relay, "its plan has switched it on"
        self._made["pressed"].switch(False, "button")
        self._made["powerless"].lose_power()
        self._made["late"].answers = True
        await asyncio.sleep(max(0.0, self._at(1) - self.now_s()))

    async def check(self, found: Verdict) -> None:
        """Wait until the service has settled everything, then compare."""
        made = self._made
        has_expired = self._absence_s * 0.75 > 15 * 60  # what a slot may be late
        expected = {"holds": "RAN_ON_DEVICE", "pressed": "SUPERSEDED", "powerless": "MISSED" if has_expired else "FIRED_LATE"}
        for name, outcome in expected.items():
            await self._check_outcome(found, made[name], name, outcome)
        late = await self._settled(f"{made['late'].device.path}/executions/{self._late_id}", lambda one: one["status"] == "DONE")
        found.count("wrong", int(late["status"] != "DONE"), f"a command that ran is told as {late['status']}")
        for name in ("holds", "pressed", "silent"):
            switched = [command["cmd"] for command in made[name].commands]
            found.count("wrong", len(switched), f"the board '{name}' was switched: {switched}")
        wanted = [] if has_expired else ["ON"]
        deadline = time.monotonic() + SETTLE_S
        while len(made["powerless"].commands) < len(wanted) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)  # it is told as fired when it is queued
        made_good = [command["cmd"] for command in made["powerless"].commands]
        found.count("wrong", int(made_good != wanted), f"the board without power was sent {made_good}, not {wanted}")
        for name in expected:
            relay = (await self._work.api.get(made[name].device.path))["relayState"]
            found.count(
                "wrong", int(relay != made[name].relay), f"the relay of '{name}' is {made[name].relay} and told as {relay}"
            )
        await cancel_tasks(*self._tasks)

    async def _check_outcome(self, found: Verdict, board: Board, name: str, outcome: str) -> None:
        path = f"{board.device.path}/schedules"

        async def outcomes() -> list[str | None]:
            rows = [*await self._work.api.get(path), *await self._work.api.get(f"{path}/history")]
            return [row["lastOutcome"] for row in rows]

        deadline = time.monotonic() + SETTLE_S
        while (told := await outcomes())[:1] != [outcome] and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        found.count("wrong", int(told[:1] != [outcome]), f"the edge of '{name}' is told as {told}, not {outcome}")
        page = await self._work.api.get("/events", params={"deviceId": board.device.device_id, "limit": 200})
        kinds = [event["eventType"] for event in page["data"] if event["eventType"] in ("schedule_fired", "schedule_skipped")]
        fired = {"holds": 2, "pressed": 0, "powerless": int(outcome == "FIRED_LATE")}[name]
        told_fired = kinds.count("schedule_fired")
        found.count("wrong", abs(told_fired - fired), f"{told_fired} edges of '{name}' are told as fired, not {fired}")

    async def _settled(self, path: str, is_so: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + SETTLE_S
        while not is_so(one := await self._work.api.get(path)) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        return one
