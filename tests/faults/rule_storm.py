"""Hundreds of rules whose `forSeconds` ends at one moment, and what became of each while the service was killed in the middle. Of
the rules of a device that match at one moment, one sends its command, and the others are told as suppressed."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

from faults.boards import SETTLE_S
from faults.checks import FINAL, Verdict
from faults.wire_kills import Runner
from faults.workload import Workload
from support.device import cancel_tasks, create_device
from support.waiting import TIMEOUT_S

RULES_PER_DEVICE = 10
FOR_S = 5
AT_ONCE = 4
"""Devices whose rules are made at the same time."""


class RuleStorm:
    """Call `prepare`, then `break_loose`, which returns when the first commands have come, and `check` at the end."""

    def __init__(self, workload: Workload, rules: int) -> None:
        self._work = workload
        self._count = rules // RULES_PER_DEVICE
        self._runners: list[Runner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._has_begun = asyncio.Event()

    async def prepare(self) -> None:
        await self._work.sign_in()
        for number in range(self._count):
            device = await create_device(self._work.api, f"Storm {number} {time.time():.0f}")
            self._runners.append(Runner(device, self._has_begun.set, answers=True, answers_at_once=True))
            self._tasks.append(asyncio.create_task(self._runners[-1].live(self._work.service)))
        for first in range(0, self._count, AT_ONCE):
            await asyncio.gather(*map(self._add_rules, self._runners[first : first + AT_ONCE]))

    async def _add_rules(self, runner: Runner) -> None:
        path = runner.device.path
        await self._report(runner, 0)
        await self._work.api.wait_until(f"{path}/rules/context", lambda found: "hot" in found["metrics"])
        condition = {"metric": "hot", "comparator": "==", "value": 1}
        for number in range(RULES_PER_DEVICE):
            rule = {"name": f"storm {number}", "conditions": [condition], "forSeconds": FOR_S, "action": {"command": "TOGGLE"}}
            await self._work.api.post(f"{path}/rules", rule, expect=201)

    async def _report(self, runner: Runner, hot: int) -> None:
        """Returns after the PUBACK."""
        async with asyncio.timeout(TIMEOUT_S):
            await runner.subscribed.wait()
        assert runner.client is not None
        await runner.client.publish(runner.device.topic("telemetry"), json.dumps({"m": {"hot": hot}}), qos=1, timeout=TIMEOUT_S)

    async def break_loose(self) -> None:
        await asyncio.gather(*[self._report(runner, 1) for runner in self._runners])
        async with asyncio.timeout(TIMEOUT_S):
            await self._has_begun.wait()

    async def check(self, found: Verdict) -> None:
        for runner in self._runners:
            path, name = runner.device.path, runner.device.device_id
            deadline = asyncio.get_running_loop().time() + SETTLE_S
            told: dict[str, str] = {}
            while True:
                page = await self._work.api.get(f"{path}/executions?limit=100")
                told = {one["executionId"]: one["status"] for one in page["data"]}
                settled = bool(told) and all(status in FINAL for status in told.values())
                if settled or asyncio.get_running_loop().time() > deadline:
                    break
                await asyncio.sleep(0.5)
            fired: Counter[str] = Counter()
            for kind in ("rule_matched", "rule_suppressed"):
                events = await self._work.api.get(f"/events?limit=200&deviceId={name}&type={kind}")
                fired.update(event["description"].split("'")[1] for event in events["data"])
            found.acknowledged += RULES_PER_DEVICE
            found.count("lost", RULES_PER_DEVICE - len(fired), f"rules of {name} that were due and did not fire")
            found.count("lost", int(not told), f"the command of the rules of {name}")
            found.count("doubled", fired.total() - len(fired), f"firings of rules of {name}")
            found.count("doubled", max(0, len(told) - 1), f"commands of rules of {name}")
            for command_id, status in told.items():
                has_run = command_id in runner.came
                found.count("wrong", int(not has_run or status != "DONE"), f"{command_id} is {status}; it ran: {has_run}")
        await cancel_tasks(*self._tasks)
