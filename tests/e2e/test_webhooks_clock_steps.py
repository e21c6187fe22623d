"""The clock of the service is set by an hour while webhook deliveries wait, are sent, and are tried again: none comes late, twice or never."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.device import Device, create_device
from support.empty_database import empty_postgres
from support.machine_clock import MachineClock
from support.service import ApiClient, Service
from support.transports import ALL_DATABASES
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver

"""A retry is due after 5 s; one that is an hour late never comes."""
SLOW_S = 6.0
_OK, _SLOW, _FAILED = respond(200), respond(200, after_s=SLOW_S), respond(500)


@dataclass
class Attempts:
    """A receiver that refuses the first attempt for each `retried` reading, and takes its time for each `slow` one."""

    by_event: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By metric and event."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    async def behave(self, receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = receiver.requests[-1]
        metric, event_id = request.envelope["data"]["metric"], request.headers["webhook-id"]
        self.by_event[metric, event_id] += 1
        self._more.set()
        is_refused = metric == "retried" and self.by_event[metric, event_id] == 1
        return await (_FAILED if is_refused else _SLOW if metric == "slow" else _OK)(receiver, reader, writer)

    def of(self, metric: str) -> list[int]:
        """The number of attempts for each event."""
        return [count for (name, _), count in self.by_event.items() if name == metric]

    async def wait_for(self, metric: str, counts: list[int]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while self.of(metric) != counts:
                self._more.clear()
                await self._more.wait()


@dataclass
class Instance:
    service: Service
    clock: MachineClock


def instances_of(database: str, folder: Path) -> Iterator[Instance]:
    """One on SQLite, two on PostgreSQL, each with a clock of its own. The first one holds the devices."""
    shared: dict[str, Any] = {"LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode()}
    if database == "postgres":
        shared["LATCHBOARD_DATABASE_URL"] = asyncio.run(empty_postgres())
    for name in ("first", "second")[: 1 if database == "sqlite" else 2]:
        clock = MachineClock(folder / name / "clock")
        yield Instance(Service(folder / name / "service", folder, **shared, **clock.settings), clock)


@pytest.fixture(params=ALL_DATABASES)
def instances(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Instance]]:
    made = list(instances_of(request.param, tmp_path))
    with ExitStack() as stack:
        for instance in made:
            stack.enter_context(instance.service)
        yield made


@asynccontextmanager
async def hooked(owner: ApiClient) -> AsyncIterator[tuple[Attempts, Device, str]]:
    """A receiver, a device whose readings it gets, and the path of the webhook."""
    attempts = Attempts()
    async with webhook_receiver(attempts.behave) as receiver:
        device = await create_device(owner)
        key = await owner.post("/keys", {"name": "Receiver"}, expect=201)
        await owner.post(f"{device.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
        body = {"keyId": key["keyId"], "url": receiver.url, "types": ["telemetry"]}
        made = await owner.post("/webhooks", body, expect=201)
        yield attempts, device, f"/webhooks/{made['webhookId']}"


async def test_no_delivery_comes_late_twice_or_never(instances: list[Instance]) -> None:
    """Each instance's clock is set back an hour, then an hour ahead of the true time, one after the other."""
    holder = instances[0].service
    async with AsyncExitStack() as stack:
        owners = [await stack.enter_async_context(one.service.api()) for one in instances]
        attempts, device, webhook = await stack.enter_async_context(hooked(owners[0]))
        line = await stack.enter_async_context(device.online(holder))
        for turn, hours in enumerate((-1, 2)):
            await line.report(retried=turn, slow=turn)
            await attempts.wait_for("retried", [2] * turn + [1])
            await attempts.wait_for("slow", [1] * (turn + 1))
            for number, (instance, owner) in enumerate(zip(instances, owners, strict=True)):
                await instance.clock.step_running(instance.service, owner, hours=hours)
                await line.report(**{f"after{turn}{number}": 1})
                await attempts.wait_for(f"after{turn}{number}", [1])
            await attempts.wait_for("retried", [2] * (turn + 1))
        await owners[0].wait_until(f"{webhook}/deliveries", lambda found: all_have_ended(found), within_s=TIMEOUT_S)
        assert attempts.of("slow") == [1, 1]
        assert attempts.of("retried") == [2, 2]
        assert all(hook["enabled"] for hook in await owners[0].get("/webhooks"))


def all_have_ended(found: list[dict[str, Any]]) -> bool:
    return all(attempt["statusCode"] is not None for attempt in found)


async def test_a_retry_that_waits_over_a_kill_comes_although_the_clock_was_set_back(tmp_path: Path) -> None:
    [instance] = instances_of("sqlite", tmp_path)
    service = instance.service
    with service:
        async with service.api() as owner, hooked(owner) as (attempts, device, webhook):
            async with device.online(service) as line:
                await line.report(retried=1)
                await attempts.wait_for("retried", [1])
            is_stored = lambda found: any(attempt["statusCode"] == 500 for attempt in found)  # noqa: E731
            await owner.wait_until(f"{webhook}/deliveries", is_stored, within_s=TIMEOUT_S)
            service.kill()
            instance.clock.step(hours=-1)
            await asyncio.to_thread(service.start)
            await attempts.wait_for("retried", [2])
