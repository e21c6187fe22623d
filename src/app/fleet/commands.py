"""Commands to a playing fleet, through the API as a user would give them, and what became of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence

from app.fleet.api import Api
from app.fleet.order import Login, SimulationRefused

WAIT_S = 10
MOST_AT_ONCE = 128


class Commanding:
    """`rate` commands a second, ON and OFF to one device after the other. `outcomes`: by status, or by the code of a refusal."""

    def __init__(self, api: Api, logins: Sequence[Login], rate: float) -> None:
        self._api = api
        self._logins = logins
        self._rate = rate
        self.outcomes: Counter[str] = Counter()
        self.seconds: list[float] = []
        """From the request to the answer that holds the device's result."""

    async def run(self) -> None:
        """Until cancelled. What is under way when there are too many is waited for: the rate is a rate, not a debt."""
        places = asyncio.Semaphore(MOST_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for number, login in enumerate(itertools.cycle(self._logins)):
                await places.acquire()
                # Each device hears ON in one round and OFF in the next.
                cmd = "OFF" if number // len(self._logins) % 2 else "ON"
                group.create_task(self._one(login, cmd, places))
                await asyncio.sleep(1 / self._rate)

    async def _one(self, login: Login, cmd: str, places: asyncio.Semaphore) -> None:
        began = time.perf_counter()
        try:
            order = {"cmd": cmd, "waitSeconds": WAIT_S}
            answer = await self._api.post(f"/devices/{login.device_id}/command", order)
            self.outcomes[str(answer.get("status", "WAITS"))] += 1
            if answer.get("status") == "DONE":
                self.seconds.append(time.perf_counter() - began)
        except SimulationRefused as refused:
            self.outcomes[str(refused).split(": ")[1] if ": " in str(refused) else "REFUSED"] += 1
        finally:
            places.release()

    def quantile(self, share: float) -> float:
        """Seconds; 0 when none was done."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
