"""Sends commands to the simulated fleet through the API, as a user would, and counts how they end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence

from app.simulator.api_client import SimulatorApiClient
from app.simulator.options import DeviceLogin, SimulationError

RESULT_WAIT_S = 10
MAX_IN_FLIGHT = 128


class CommandLoadGenerator:
    """Sends `rate` commands per second, ON in one round over all devices and OFF in the next. `outcomes` counts commands by final
    status, or by error code when the service refuses one."""

    def __init__(self, api: SimulatorApiClient, logins: Sequence[DeviceLogin], rate: float) -> None:
        self._api = api
        self._logins = logins
        self._rate = rate
        self.outcomes: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        """Time from the request to the response with the device's result; DONE only."""

    async def run(self) -> None:
        """Run until cancelled. With MAX_IN_FLIGHT commands open it waits, and does not catch up afterwards."""
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            for number, login in enumerate(itertools.cycle(self._logins)):
                await slots.acquire()
                cmd = "OFF" if number // len(self._logins) % 2 else "ON"
                group.create_task(self._send_one(login, cmd, slots))
                await asyncio.sleep(1 / self._rate)

    async def _send_one(self, login: DeviceLogin, cmd: str, slots: asyncio.Semaphore) -> None:
        started_at = time.perf_counter()
        try:
            body = {"cmd": cmd, "waitSeconds": RESULT_WAIT_S}
            response = await self._api.post(f"/devices/{login.device_id}/command", body)
            self.outcomes[str(response.get("status", "WAITS"))] += 1
            if response.get("status") == "DONE":
                self.latencies_s.append(time.perf_counter() - started_at)
        except SimulationError as error:
            self.outcomes[str(error).split(": ")[1] if ": " in str(error) else "REFUSED"] += 1
        finally:
            slots.release()

    def latency_quantile_s(self, share: float) -> float:
        """Nearest-rank quantile in seconds; 0 when no command is DONE."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
