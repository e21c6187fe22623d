"""Compare what the service acknowledged with what it stored, delivered and switched.

- lost: acknowledged and not there (a reading, a command's execution, a webhook delivery, the event of a result);
- doubled: there twice (a stored reading, an execution for one key, a result event for one execution, the delivery of an event);
- wrong: told and not true (a 500, a command that the device ran and the service reports as never run, or the other way round, the
  state of the relay).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faults.delivery_rows import by_state, count_doubled, count_pending, settled_deliveries

if TYPE_CHECKING:
    from faults.workload import Workload

FINAL = ("DONE", "FAILED", "EXPIRED", "TIMED_OUT", "CANCELLED")
RECOVERY_S = 60.0
"""How long the checks wait for what the service still owes after the last fault."""
CORRECTED = " instead of "
"""Only in the description of a result event that corrects an earlier one."""


@dataclass
class Verdict:
    """All are counts; `acknowledged` is the number of readings and commands that were confirmed."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    deliveries: int = 0
    """Rows of webhook deliveries."""
    waiting: int = 0
    """Those of them that were still PENDING when everything else had been checked."""
    edges: int = 0
    """Acknowledged readings that made a rule fire."""
    hand_overs: list[float] = field(default_factory=list)
    """Seconds that partitions stood still after a kill of their instance."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def count(self, kind: str, number: int, note: str) -> None:
        if number:
            setattr(self, kind, getattr(self, kind) + number)
            self.notes.append(f"{kind} {number}: {note}")

    def add(self, other: Verdict) -> None:
        for name in ("acknowledged", "lost", "doubled", "wrong", "deliveries", "waiting", "edges"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes += other.notes
        self.hand_overs += other.hand_overs


class Check:
    def __init__(self, workload: Workload) -> None:
        self._work = workload
        self._api = workload.api
        self._found = Verdict()

    async def run(self) -> Verdict:
        errors = self._work.commander.server_errors
        self._found.count("wrong", errors.total(), f"HTTP 500: {dict(errors)}")
        await self._check_readings()
        for meter in self._work.meters:
            await meter.check(self._api, self._found)
        for check in self._work.checks:
            await check(self._found)
        await self._check_executions()
        await self._check_relay()
        await self._check_deliveries()
        return self._found

    async def _check_readings(self) -> None:
        for device_id, acknowledged in self._work.acknowledged_readings().items():
            stored = await self._stored(device_id, acknowledged)
            self._found.acknowledged += len(acknowledged)
            missing = sorted(acknowledged - set(stored))
            self._found.count("lost", len(missing), f"readings of {device_id}: {missing[:10]}")
            self._found.count("doubled", stored.total() - len(stored), f"readings of {device_id}")

    async def _stored(self, device_id: str, wanted: set[int]) -> Counter[int]:
        """The numbers of the stored readings; waits for `wanted`, because an external broker may still hold some."""
        deadline = asyncio.get_running_loop().time() + RECOVERY_S
        while True:
            answer = await self._api.send("GET", f"/devices/{device_id}/telemetry/export?format=csv&metric=seq", timeout=120)
            stored = Counter(int(float(row.split(",")[1])) for row in answer.text.splitlines()[1:])
            if wanted <= set(stored) or asyncio.get_running_loop().time() > deadline:
                return stored
            await asyncio.sleep(1)

    async def _check_executions(self) -> None:
        path, ran = self._work.switch.device.path, self._work.switch.ran
        by_key = self._work.commander.executions
        self._found.acknowledged += len(by_key)
        self._found.count("doubled", sum(len(ids) - 1 for ids in by_key.values()), "executions for one Idempotency-Key")
        executions = await self._ended_executions(path)
        for execution_id in [one for ids in by_key.values() for one in ids]:
            status = executions.get(execution_id)
            if status is None:
                self._found.count("lost", 1, f"execution {execution_id}")
            elif (execution_id in ran) != (status == "DONE"):
                what = "ran on the device" if execution_id in ran else "never ran"
                self._found.count("wrong", 1, f"{execution_id} {what} and is {status}")
        of_switch = [event for event in await self._events("command_result") if path.endswith(event["deviceId"])]
        results = [event for event in of_switch if CORRECTED not in event["description"]]
        ended = sum(status in FINAL for status in executions.values())
        self._found.count("doubled", max(0, len(results) - ended), f"{len(results)} result events for {ended} ended executions")
        self._found.count("lost", max(0, ended - len(results)), f"{len(results)} result events for {ended} ended executions")

    async def _ended_executions(self, path: str) -> dict[str, str]:
        """Status by id, when all have ended and none is told otherwise than it went, or after the time for that."""
        deadline = asyncio.get_running_loop().time() + RECOVERY_S
        while True:
            found = {one["executionId"]: one["status"] for one in await self._pages(f"{path}/executions?limit=100")}
            settled = all(status in FINAL for status in found.values())
            told = all(found.get(execution_id) == "DONE" for execution_id in self._work.switch.ran)
            if (settled and told) or asyncio.get_running_loop().time() > deadline:
                return found
            await asyncio.sleep(0.5)

    async def _check_relay(self) -> None:
        device, relay = self._work.switch.device, self._work.switch.relay
        told = (await self._get(device.path))["relayState"]
        self._found.count("wrong", int(relay is not None and told != relay), f"the relay is {relay} and is told as {told}")

    async def _check_deliveries(self) -> None:
        """Every relay change in the log and every acknowledged reading has a delivery, and the receiver has accepted each."""
        changes = {event["id"] for event in await self._events("relay_changed")}
        self._found.waiting += await count_pending(self._work.service)
        rows = await settled_deliveries(self._work.service)
        self._found.deliveries += len(rows)
        events = {row.event_id for row in rows}
        self._found.count("doubled", count_doubled(rows), "deliveries of one event to one webhook")
        without = changes - events
        self._found.count("lost", len(without), f"relay changes without a delivery, of {len(changes)}")
        announced = {row.reading for row in rows}
        readings = {(device, number) for device, numbers in self._work.acknowledged_readings().items() for number in numbers}
        self._found.count("lost", len(readings - announced), f"acknowledged readings without a delivery, of {len(readings)}")
        unsent = [row for row in rows if row.event_id not in self._work.delivered]
        self._found.count("lost", len(unsent), f"deliveries that the receiver has not accepted: {by_state(unsent)}")

    async def _events(self, kind: str) -> list[dict[str, Any]]:
        return await self._pages(f"/events?limit=200&type={kind}")

    async def _pages(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = await self._get(path)
        while True:
            found += page["data"]
            if not page["hasMore"]:
                return found
            page = await self._get(f"{path}&cursor={page['cursor']}")

    async def _get(self, path: str) -> Any:
        """Waits while the service is still busy with what the fault has left behind, and says so with 503."""
        deadline = asyncio.get_running_loop().time() + RECOVERY_S
        while True:
            answer = await self._api.send("GET", path)
            if answer.status_code != 503 or asyncio.get_running_loop().time() > deadline:
                assert answer.status_code == 200, f"GET {path}: {answer.status_code} {answer.text}"
                return answer.json()
            await asyncio.sleep(0.5)
