"""An outage of an external broker is an absence of the service: boards run their plans, people press buttons, nobody hears it, and it
is counted against nobody."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.boards import Boards
from faults.checks import Verdict
from support import postgres
from support.device import create_device
from support.empty_database import empty_postgres
from support.external_broker import ExternalBroker
from support.mosquitto import require_mosquitto
from support.service import ApiClient, Service

RESTARTS = 4
SILENT_S = 3
OUTAGE_S = 20.0
"""More than the seconds of the boards' `silent` rule."""


@dataclass(frozen=True)
class Installation:
    service: Service
    api: ApiClient


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ExternalBroker]:
    require_mosquitto()
    broker = ExternalBroker(tmp_path / "mosquitto")
    yield broker
    broker.remove()


@pytest.mark.parametrize(("database", "way"), [("sqlite", signal.SIGTERM), ("postgresql", signal.SIGKILL)])
async def test_nothing_is_switched_or_told_wrongly_after_the_broker_was_away(
    tmp_path_factory: pytest.TempPathFactory, broker: ExternalBroker, database: str, way: signal.Signals
) -> None:
    settings = broker.settings
    if database == "postgresql":
        if not postgres.available():
            pytest.skip("needs PostgreSQL")
        settings["LATCHBOARD_DATABASE_URL"] = await empty_postgres()
    service = Service(tmp_path_factory.mktemp("service"), **settings)
    await asyncio.to_thread(service.__enter__)
    try:
        async with service.api() as owner:
            boards = Boards(Installation(service, owner), time.time, OUTAGE_S)
            await boards.prepare()
            await asyncio.sleep(max(0.0, boards.begin_ts - time.time()))
            await asyncio.to_thread(broker.end, way)
            await boards.act()
            await asyncio.to_thread(broker.start)
            found = Verdict()
            await boards.check(found)
            assert found.is_clean, found.notes
            assert (await owner.get("/events", params={"type": "rule_matched"}))["data"] == []
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


async def test_a_restart_within_a_moment_is_no_silence_of_the_devices_that_have_yet_to_come_back(
    tmp_path_factory: pytest.TempPathFactory, broker: ExternalBroker
) -> None:
    with Service(tmp_path_factory.mktemp("service"), **broker.settings) as service:
        async with service.api() as owner:
            pump = await create_device(owner, "Pump")
            for _ in range(RESTARTS):
                async with pump.online(service) as line:
                    await line.report(flow=1)
                    await owner.wait_until(f"{pump.path}/telemetry/latest", lambda found: found["telemetry"])
                    if not await owner.get(f"{pump.path}/rules"):
                        silent = {"metric": "flow", "comparator": "silent", "value": SILENT_S}
                        rule = {"name": "No flow", "conditions": [silent], "action": {"command": "OFF"}}
                        await owner.post(f"{pump.path}/rules", rule, expect=201)
                await asyncio.to_thread(broker.end, signal.SIGTERM)
                await asyncio.to_thread(broker.start)
                await asyncio.sleep(2 * SILENT_S)
            assert (await owner.get("/events", params={"type": "rule_matched"}))["data"] == []
            async with pump.online(service) as line:
                await line.report(flow=2)
                await line.next_command("OFF")  # its own silence counts
