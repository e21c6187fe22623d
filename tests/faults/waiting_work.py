"""What a wrong clock could end, on a device that never connects: slots that run once, a slot with a rule, a request that waits for an
approval. A checker compares what became of them with the true time.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from faults.checks import RECOVERY_S, Verdict
from faults.workload import Workload
from support.device import Device, create_device
from support.waiting import until

SOON_S = 45
"""From saving to the slot that is to run once while or right after the clock is wrong."""
HOUR_S = 3_600
INTERVAL_S = 120
RULE = "FREQ=MINUTELY;INTERVAL=2"
ONCE_LATER, WITH_RULE, ONCE_SOON = range(3)
_COMMAND = {"name": "BREW", "label": "Brew", "requiresApproval": True}


class WaitingWork:
    """Call `prepare` while the clock is right, `check` when it is right again."""

    def __init__(self, workload: Workload) -> None:
        self._work = workload
        self._device: Device
        self._approval_id = ""
        self._soon_ts = self._later_ts = 0

    async def prepare(self) -> None:
        self._device = await create_device(self._work.api, "Waits")
        path, now_ts = self._device.path, int(time.time())
        self._soon_ts, self._later_ts = now_ts + SOON_S, now_ts + HOUR_S
        for slot, on_ts, more in (
            (ONCE_LATER, self._later_ts, {}),
            (WITH_RULE, now_ts + INTERVAL_S, {"rrule": RULE}),
            (ONCE_SOON, self._soon_ts, {}),
        ):
            body: dict[str, Any] = {"slot": slot, "onTs": on_ts, "offTs": on_ts + (HOUR_S if slot == ONCE_SOON else 60), **more}
            await self._work.api.post(f"{path}/schedules", body, expect=201)
        await self._work.api.post(f"{path}/commands", _COMMAND, expect=201)
        made = await self._work.api.post("/keys", {"name": f"Brewer {now_ts}"}, expect=201)
        grant = {"commands": ["*"], "apiKeyId": made["keyId"]}
        await self._work.api.post(f"{path}/grants", grant, expect=201)
        async with self._work.service.api(**{"X-Api-Key": made["key"]}) as key:
            request = await key.post(f"{path}/command", {"cmd": "BREW"}, expect=202)
        self._approval_id = request["approvalId"]

    async def check(self, found: Verdict) -> None:
        path = self._device.path
        wait_s = max(0.0, self._soon_ts - time.time()) + RECOVERY_S
        try:
            await until(self._slots, lambda slots: slots[ONCE_SOON]["lastOutcome"] is not None, within_s=wait_s)
        except TimeoutError:
            found.count("wrong", 1, "the slot that was due has not run")
        slots = await self._slots()
        for slot in (ONCE_LATER, WITH_RULE, ONCE_SOON):
            if slot not in slots:
                found.count("wrong", 1, f"slot {slot} has ended: {await self._work.api.get(f'{path}/schedules/history')}")
        if not {ONCE_LATER, WITH_RULE, ONCE_SOON} <= slots.keys():
            return
        soon, later, ruled = slots[ONCE_SOON], slots[ONCE_LATER], slots[WITH_RULE]
        has_run = soon["lastOutcome"] in ("FIRED", "FIRED_LATE")
        found.count("wrong", int(not has_run), f"the slot that was due is told as {soon['lastOutcome']}")
        is_untouched = later["status"] == "PENDING" and _unix_s(later["nextFireAt"]) == self._later_ts
        found.count("wrong", int(not is_untouched), f"the slot of the next hour is {later['status']}, next {later['nextFireAt']}")
        ahead_s = _unix_s(ruled["nextFireAt"]) - time.time()
        found.count("wrong", int(ahead_s > INTERVAL_S), f"the slot of every two minutes runs next in {ahead_s:.0f} s")
        approval = await self._work.api.get(f"{path}/approvals/{self._approval_id}")
        found.count("wrong", int(approval["status"] != "PENDING"), f"the request is {approval['status']}")

    async def _slots(self) -> dict[int, Any]:
        return {one["slot"]: one for one in await self._work.api.get(f"{self._device.path}/schedules")}


def _unix_s(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
