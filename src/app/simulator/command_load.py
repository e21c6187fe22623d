"""Commands to a playing fleet, through the API as a user would give them, and what became of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence

from app.simulator.api_client import ApiClient
from app.simulator.options import DeviceLogin, SimulationError

RESULT_WAIT_S = 10
MAX_IN_FLIGHT = 128


class CommandLoad:
    """`rate` commands a second, ON and OFF to one device after the other. `outcomes`: by status, or by the code of a refusal."""

    def __init__(self, api: ApiClient, logins: Sequence[DeviceLogin], rate: float) -> None:
        self._api = api
        self._logins = logins
        self._rate = rate
        self.outcomes: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        """From the request to the answer that holds the device's result."""

    async def run(self) -> None:
        """Until cancelled. What is under way when there are too many is waited for: the rate is a rate, not a debt."""
        places = asyncio.Semaphore(MAX_IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            for number, login in enumerate(itertools.cycle(self._logins)):
                await places.acquire()
                # Each device hears ON in one round and OFF in the next.
                cmd = "OFF" if number // len(self._logins) % 2 else "ON"
                group.create_task(self._send_one(login, cmd, places))
                await asyncio.sleep(1 / self._rate)

    async def _send_one(self, login: DeviceLogin, cmd: str, places: asyncio.Semaphore) -> None:
        began = time.perf_counter()
        try:
            order = {"cmd": cmd, "waitSeconds": RESULT_WAIT_S}
            answer = await self._api.post(f"/devices/{login.device_id}/command", order)
            self.outcomes[str(answer.get("status", "WAITS"))] += 1
            if answer.get("status") == "DONE":
                self.latencies_s.append(time.perf_counter() - began)
        except SimulationError as refused:
            self.outcomes[str(refused).split(": ")[1] if ": " in str(refused) else "REFUSED"] += 1
        finally:
            places.release()

    def latency_quantile_s(self, share: float) -> float:
        """Seconds; 0 when none was done."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
