"""A database that goes back to an older copy, while work goes on: restored from a backup, or a standby that lacked the last commits.
A checker compares what is told afterwards with what happened after the copy: nothing of it is told as not run, nothing runs again,
and no cursor goes on as if nothing had been.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from faults.boards import SETTLE_S
from faults.checks import FINAL, Verdict
from faults.wire_kills import Runner
from faults.workload import Workload
from support.device import cancel_tasks, create_device
from support.waiting import TIMEOUT_S, until

TTL_S = 20
LEAD_S = 12
"""From saving the slot to its edge, which comes after the copy."""
HOUR_S = 3_600


class OlderDatabase:
    """One return. Call `prepare` before the copy, `go_on` after it, `forget` when the service has heard its last message of that
    database, and `check` at the end. `turns` counts the returns so far."""

    def __init__(self, workload: Workload, turns: Callable[[], int]) -> None:
        self._work, self._turns = workload, turns
        self._before: dict[str, set[int]] = {}
        self._runner: Runner
        self._living: asyncio.Task[None]
        self._due_ts = 0
        self._command_id = self._list_cursor = self._feed_cursor = ""
        self._is_edge_checked = True

    async def prepare(self) -> None:
        """The commander must hold still. A command waits for a device that is away, and a slot for its edge."""
        work = self._work
        await work.sign_in()
        path = work.switch.device.path
        await work.api.wait_until(
            f"{path}/executions?limit=100", lambda page: all(one["status"] in FINAL for one in page["data"])
        )
        device = await create_device(work.api, f"Goes back {self._turns()}")
        self._runner = Runner(device, lambda: None)
        self._due_ts = int(time.time()) + LEAD_S
        slot = {"slot": 0, "onTs": self._due_ts, "offTs": self._due_ts + HOUR_S, "misfireGraceSeconds": HOUR_S}
        await work.api.post(f"{device.path}/schedules", {**slot, "onCommand": {"command": "TOGGLE"}}, expect=201)
        sent = await work.api.post(f"{device.path}/command", {"cmd": "TOGGLE", "ttlSeconds": TTL_S})
        self._command_id = sent["executionId"]
        self._before = work.acknowledged_readings()

    async def go_on(self) -> None:
        """The device comes and runs the command and the edge; nothing of that is in the copy."""
        work, path = self._work, self._runner.device.path
        self._is_edge_checked = time.time() < self._due_ts - 1  # else this machine was too slow, and the copy may have it
        self._living = asyncio.create_task(self._runner.live(work.service))
        async with asyncio.timeout(TIMEOUT_S):
            while not self._runner.came:
                await asyncio.sleep(0.02)
        await work.api.wait_until(f"{path}/schedules", lambda slots: slots[0]["lastOutcome"] == "FIRED")
        await work.progress(200)
        self._list_cursor = (await work.api.get("/events?limit=1"))["cursor"]
        async with work.service.feed(work.api) as feed:
            self._feed_cursor = feed.state["cursor"]

    def forget(self) -> None:
        self._work.forget_since(self._before)

    async def check_cursors(self, found: Verdict) -> None:
        """Right after the return: a cursor from before it is refused, and the feed begins anew."""
        await self._work.sign_in()
        answer = await until(
            lambda: self._work.api.send("GET", f"/events?limit=1&cursor={self._list_cursor}"), lambda one: one.status_code != 503
        )
        found.count(
            "wrong", int(answer.status_code != 410), f"a cursor of the other database: {answer.status_code} {answer.text}"
        )
        async with self._work.service.resumed_feed(self._work.api, self._feed_cursor) as feed:
            told = json.loads(await asyncio.wait_for(feed.socket.recv(), TIMEOUT_S))["type"]
        found.count("wrong", int(told != "resync"), f"the feed goes on across the gap with {told}")

    async def check(self, found: Verdict) -> None:
        api, path = self._work.api, self._runner.device.path
        status = (await self._settled(f"{path}/executions/{self._command_id}", lambda one: one["status"] in FINAL))["status"]
        found.acknowledged += 1
        found.count("wrong", int(status != "TIMED_OUT"), f"{self._command_id} ran after the copy and is told as {status}")
        if self._is_edge_checked:
            slots = await self._settled(f"{path}/schedules", lambda slots: slots[0]["lastOutcome"] in ("MISSED", "FIRED"))
            outcome = slots[0]["lastOutcome"]
            found.count("wrong", int(outcome != "MISSED"), f"an edge that ran after the copy is told as {outcome}")
            found.count("doubled", max(0, len(self._runner.came) - 2), "runs of an edge that ran after the copy")
        turns = self._turns()
        told = len((await api.get("/events?limit=200&type=database_restored"))["data"])
        found.count("lost", max(0, turns - told), "events that tell of another database")
        lines = self._work.service.log_file.read_text(errors="replace").count('"level": "critical"')
        found.count("wrong", abs(lines - turns), f"{lines} critical lines for {turns} returns")
        await cancel_tasks(self._living)

    async def _settled(self, path: str, is_so: Any) -> Any:
        deadline = time.monotonic() + SETTLE_S
        while not is_so(one := await self._work.api.get(path)) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        return one
