"""A key gets a new secret while a program works with the old one, and the service is killed in the middle of the overlap."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from websockets.asyncio.client import ClientConnection, connect

from support.device import create_device
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S


async def status(service: Service, secret: str) -> int:
    async with service.api(**{"X-Api-Key": secret}) as robot:
        return (await robot.send("GET", "/devices")).status_code


async def close_code(socket: ClientConnection) -> int | None:
    async with asyncio.timeout(TIMEOUT_S):
        await socket.wait_closed()
    return socket.close_code


async def test_both_secrets_work_after_a_kill_in_the_overlap_and_the_oldest_does_not(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    made = await owner.post("/keys", {"name": "Robot", "allowedNetworks": ["127.0.0.0/8", "::1"]}, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]}, expect=201)
    secrets = [made["key"]]
    for _ in range(2):
        secrets.append((await owner.post(f"/keys/{made['keyId']}/rotate", {"overlapSeconds": 3_600}))["key"])
    before = await owner.get(f"/keys/{made['keyId']}")

    await service.kill_and_restart()

    assert [await status(service, each) for each in secrets] == [401, 200, 200]
    after = await owner.get(f"/keys/{made['keyId']}")
    shown = {"prefix", "previousPrefix", "previousExpiresAt", "allowedNetworks", "expiresAt"}
    assert {name: after[name] for name in shown} == {name: before[name] for name in shown}
    last = await owner.post(f"/keys/{made['keyId']}/rotate", {"overlapSeconds": 0})
    assert [await status(service, each) for each in (*secrets, last["key"])] == [401, 401, 401, 200]


async def test_feeds_end_with_the_secret_with_the_key_and_with_the_network(service: Service, owner: ApiClient) -> None:
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    path, feed = f"/keys/{made['keyId']}", f"ws://127.0.0.1:{service.port}/api/v1/ws"
    async with connect(feed, additional_headers={"X-Api-Key": made["key"]}) as old:
        assert json.loads(await old.recv())["type"] == "initial_state"
        secret = (await owner.post(f"{path}/rotate", {"overlapSeconds": 0}))["key"]
        assert await close_code(old) == 4003
    async with connect(feed, additional_headers={"X-Api-Key": secret}) as open_one:
        assert json.loads(await open_one.recv())["type"] == "initial_state"
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        await owner.patch(path, {"expiresAt": soon})
        assert await close_code(open_one) in (4001, 4003)
    async with connect(feed, additional_headers={"X-Api-Key": secret}) as refused:
        assert await close_code(refused) == 4001
    await owner.patch(path, {"expiresAt": None})
    async with connect(feed, additional_headers={"X-Api-Key": secret}) as open_one:
        assert json.loads(await open_one.recv())["type"] == "initial_state"
        await owner.patch(path, {"allowedNetworks": ["192.0.2.0/24"]})
        assert await close_code(open_one) == 4003
    async with connect(feed, additional_headers={"X-Api-Key": secret}) as refused:
        assert await close_code(refused) == 4001
