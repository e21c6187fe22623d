"""SIGKILL between the decision that somebody is to be told and the sending: each notification is sent at least once, none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path

import httpx
import pytest

from support import empty_database
from support.service import ApiClient, Service
from support.service_database import ServiceDatabase
from support.transports import ALL_DATABASES
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver

GATES, KILLS, AT_ONCE = 20, 5, 4
TITLE = ": a command waits for approval"


async def prepare(owner: ApiClient, receiver: Receiver) -> tuple[list[str], str]:
    """Gates whose command needs an approval, and a key that may request it. The owner is told by ntfy."""
    ntfy = {"url": receiver.url.removesuffix("/hook"), "topic": "gates", "token": "tk_1"}
    await owner.post("/auth/notifications/channels", {"name": "Phone", "ntfy": ntfy}, expect=201)
    await owner.call("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": False}, 200)
    guarded = {"name": "OPEN", "label": "Open", "requiresApproval": True}
    made = await owner.post("/device-types", {"name": "Gate", "commands": [guarded]}, expect=201)
    row = {"boardType": "ESP32", "appType": "PUMP", "deviceTypeId": made["deviceTypeId"]}
    rows = [{"name": f"Gate {number}", **row} for number in range(GATES)]
    devices = (await owner.post("/devices/register/bulk", {"devices": rows, "credentials": "NEW"}))["devices"]
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    grant = {"commands": ["OPEN"], "apiKeyId": key["keyId"], "appliesVia": "project"}
    await owner.post(f"/devices/{devices[0]['deviceId']}/grants", grant, expect=201)
    return [each["deviceId"] for each in devices], key["key"]


async def ask_and_kill(service: Service, device_ids: list[str], key: str, chance: random.Random) -> int:
    """Request them all at once, and kill after some are accepted. How many were."""
    accepted = 0
    enough = asyncio.Event()
    wanted = chance.randint(1, len(device_ids))

    async def ask(device_id: str) -> None:
        nonlocal accepted
        with contextlib.suppress(httpx.TransportError):
            await robot.post(f"/devices/{device_id}/command", {"cmd": "OPEN"}, expect=202)
            accepted += 1
            if accepted >= wanted:
                enough.set()

    async with service.api(**{"X-Api-Key": key}) as robot:
        asking = [asyncio.create_task(ask(each)) for each in device_ids]
        await asyncio.wait_for(enough.wait(), TIMEOUT_S)
        await asyncio.sleep(chance.choice([0.0, 0.01, 0.05]))  # a moment of the sending, each time another
        service.kill()
        await asyncio.gather(*asking)
    return accepted


def titles(receiver: Receiver) -> set[str]:
    """The gates of the messages about one request, and of those about several of the key."""
    sent = [json.loads(request.body) for request in receiver.requests]
    lines = [line for each in sent for line in (str(each["title"]), *str(each["message"]).splitlines())]
    return {line.partition(TITLE)[0] for line in lines if TITLE in line}


@pytest.mark.parametrize("kind", ALL_DATABASES)
async def test_whoever_is_to_be_told_is_told_though_the_program_is_killed(tmp_path: Path, kind: str) -> None:
    settings = {"LATCHBOARD_DATABASE_URL": await empty_database.empty_postgres()} if kind == "postgres" else {}
    chance, accepted = random.Random(7), 0
    service = Service(tmp_path, **settings)
    async with webhook_receiver(respond(200)) as receiver:
        with service:
            async with service.api() as owner:
                device_ids, key = await prepare(owner, receiver)
                for number in range(KILLS):
                    receiver.behave = respond(200, after_s=float(3 * (number % 2)))
                    asked = device_ids[number * AT_ONCE : (number + 1) * AT_ONCE]
                    accepted += await ask_and_kill(service, asked, key, chance)
                    if number == KILLS - 1:
                        await asyncio.to_thread(bring_forward, service)
                    service.start()
                receiver.behave = respond(200)
                names = {each["deviceId"]: each["name"] for each in await owner.get("/devices?limit=100")}
                waiting = {names[each["deviceId"]] for each in await owner.get("/approvals")}
                assert len(waiting) >= accepted >= KILLS
                async with asyncio.timeout(TIMEOUT_S):
                    while not waiting <= titles(receiver):
                        await asyncio.sleep(0.05)
                assert titles(receiver) <= waiting, "nobody is told of what was not stored"
            async with asyncio.timeout(TIMEOUT_S):
                while await asyncio.to_thread(count_owed, service):
                    await asyncio.sleep(0.05)
    assert service.error_lines() == []


def count_owed(service: Service) -> int:
    [(count,)] = ServiceDatabase(service).run("SELECT COUNT(*) FROM notifications")
    return int(count)


def bring_forward(service: Service) -> None:
    """What was claimed and not sent is due again after a minute: here at once."""
    ServiceDatabase(service).run("UPDATE notifications SET due_ms = 0")
