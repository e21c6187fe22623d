"""The URL of a webhook is in no copy of the database, and the service can still use it after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.empty_database import empty_postgres
from support.service import ApiClient, Service
from support.service_database import ServiceDatabase
from support.transports import ALL_DATABASES
from support.webhook_receiver import Receiver, respond, webhook_receiver

TOKEN = "token-of-the-receiver"


@pytest.fixture(params=ALL_DATABASES)
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> Service:
    settings: dict[str, Any] = {} if request.param == "sqlite" else {"LATCHBOARD_DATABASE_URL": await empty_postgres()}
    return Service(tmp_path, **settings)


async def stored_copy(service: Service) -> bytes:
    """What somebody with a copy of the stopped service's database can read."""
    if "LATCHBOARD_DATABASE_URL" in service.settings:
        rows = await asyncio.to_thread(ServiceDatabase(service).run, "SELECT w::text FROM webhooks w")
        return "".join(row[0] for row in rows).encode()
    return b"".join(file.read_bytes() for file in service.data_dir.glob("latchboard.db*"))


async def ping(owner: ApiClient, webhook_id: str, receiver: Receiver, count: int) -> None:
    await owner.post(f"/webhooks/{webhook_id}/ping")
    await receiver.wait_for(count)
    assert TOKEN.encode() in receiver.request_lines[-1]


async def test_no_copy_of_the_database_shows_the_url(service: Service) -> None:
    async with webhook_receiver(respond()) as receiver:
        url = f"{receiver.url}?key={TOKEN}"
        with service:
            async with service.api() as owner:
                key = await owner.post("/keys", {"name": "Robot"}, expect=201)
                made = await owner.post("/webhooks", {"keyId": key["keyId"], "url": url}, expect=201)
                await ping(owner, made["webhookId"], receiver, 1)
            await asyncio.to_thread(service.stop)
            assert TOKEN.encode() not in await stored_copy(service)

            await asyncio.to_thread(service.start)
            async with service.api() as owner:
                assert [one["url"] for one in await owner.get("/webhooks")] == [url]
                await ping(owner, made["webhookId"], receiver, 2)
            await asyncio.to_thread(service.stop)
            assert TOKEN.encode() not in await stored_copy(service)
