"""A receiver that was away for longer than all retries gets its events after all, also when the service is killed meanwhile."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from support.device import create_device
from support.empty_database import empty_postgres
from support.service import Service
from support.transports import ALL_DATABASES
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver

EVENTS = 40
GIVE_UP = "UPDATE deliveries SET state = 'GIVEN_UP', attempts = 6, claimed_until_ms = NULL WHERE state = 'PENDING'"
"""As six failed attempts leave them, which take 155 seconds."""


@pytest.fixture(params=ALL_DATABASES)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    settings: dict[str, Any] = {"LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode()}
    if request.param == "postgres":
        settings["LATCHBOARD_DATABASE_URL"] = asyncio.run(empty_postgres())
    with Service(tmp_path, **settings) as running:
        yield running


async def give_up_deliveries(service: Service) -> None:
    url = service.settings.get("LATCHBOARD_DATABASE_URL")
    if url is None:
        with closing(sqlite3.connect(service.data_dir / "latchboard.db")) as connection, connection:
            connection.execute(GIVE_UP)
    else:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        await connection.execute(GIVE_UP)
        await connection.close()


def values(receiver: Receiver) -> list[int]:
    """Each once, in the order in which they came first."""
    return list(dict.fromkeys(int(request.envelope["data"]["value"]) for request in receiver.requests))


async def test_what_a_receiver_lost_is_sent_again_in_order_over_a_kill(service: Service) -> None:
    async with service.api() as owner, webhook_receiver(respond(500)) as receiver:
        device = await create_device(owner)
        key = await owner.post("/keys", {"name": "Receiver"}, expect=201)
        await owner.post(f"{device.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
        body = {"keyId": key["keyId"], "url": receiver.url, "types": ["telemetry"]}
        webhook = await owner.post("/webhooks", body, expect=201)
        async with device.online(service) as line:
            for number in range(EVENTS):
                await line.report(count=number)
        await receiver.wait_for(EVENTS)
        service.kill()
        await give_up_deliveries(service)
        receiver.behave, receiver.requests = respond(), []
        await asyncio.to_thread(service.start)

        asked = await owner.post(f"/webhooks/{webhook['webhookId']}/recover", {"since": "2020-01-01T00:00:00Z"})
        assert asked == {"ok": True, "deliveries": EVENTS}
        await receiver.wait_for(EVENTS // 4)
        await service.kill_and_restart()
        async with asyncio.timeout(3 * TIMEOUT_S):  # an interrupted attempt is made again after its lease of 30 seconds
            while len(values(receiver)) < EVENTS:
                await asyncio.sleep(0.1)

        assert values(receiver) == list(range(EVENTS))
        assert len(receiver.requests) <= EVENTS + 1  # only the interrupted attempt
        ended = await owner.wait_until("/events?type=webhook_recovery_ended", lambda page: page["data"])
        assert f"{EVENTS} delivered, 0 not" in ended["data"][0]["description"]
        again = await owner.post(f"/webhooks/{webhook['webhookId']}/recover", {"since": 0})
        assert again["deliveries"] == 0
        await owner.delete(f"/webhooks/{webhook['webhookId']}")
