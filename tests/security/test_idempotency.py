"""With an `Idempotency-Key` a command runs once, although the client disconnects, retries, or the service is killed before it
responds.

The real program, its socket and its database.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S, until

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Service(tmp_path_factory.mktemp("once")) as service:
        yield service


@pytest.fixture
async def owner(running: Service) -> AsyncIterator[ApiClient]:
    async with running.api() as api:
        yield api
    assert running.error_lines() == []


async def device_of(owner: ApiClient) -> str:
    device = (await owner.post("/devices/register", NEW, expect=201))["deviceId"]
    await owner.post(f"/devices/{device}/credentials", {})
    return f"/devices/{device}"


async def hang_up_in_the_middle(running: Service, owner: ApiClient, path: str, body: dict[str, Any], key: str) -> None:
    """Send the request, see that it was accepted, and disconnect before the response."""
    raw = json.dumps(body, separators=(",", ":")).encode()  # as httpx does: the same bytes are the same request
    head = (
        f"POST /api/v1{path}/command HTTP/1.1\r\nHost: x\r\nAuthorization: {owner.headers['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\nIdempotency-Key: {key}\r\n\r\n"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(head.encode() + raw)
    await owner.wait_until(f"{path}/executions", lambda page: page["data"])
    writer.transport.abort()


async def again(owner: ApiClient, path: str, body: dict[str, Any], key: str) -> httpx.Response:
    return await owner.send("POST", f"{path}/command", body, headers={"Idempotency-Key": key})


async def executions(owner: ApiClient, path: str) -> list[str]:
    return [one["executionId"] for one in (await owner.get(f"{path}/executions"))["data"]]


async def test_a_retry_after_a_disconnect_gets_the_first_response(running: Service, owner: ApiClient) -> None:
    path, body = await device_of(owner), {"cmd": "ON", "waitSeconds": 2}
    await hang_up_in_the_middle(running, owner, path, body, "hung-up")
    async with asyncio.timeout(TIMEOUT_S):
        while (answer := await again(owner, path, body, "hung-up")).status_code == 409:
            assert answer.json()["error"] == "IDEMPOTENCY_IN_PROGRESS"
            await asyncio.sleep(0.1)
    assert (answer.status_code, answer.headers["Idempotency-Replayed"]) == (200, "true")
    assert [answer.json()["executionId"]] == await executions(owner, path)


async def test_a_disconnect_without_a_key_leaves_no_claim(running: Service, owner: ApiClient) -> None:
    path = await device_of(owner)
    for count in range(1, 4):
        asking = asyncio.create_task(owner.send("POST", f"{path}/command", {"cmd": "STATUS", "waitSeconds": 20}))
        await until(lambda: executions(owner, path), lambda found, count=count: len(found) == count)
        asking.cancel()
        await asyncio.wait({asking})
    await owner.get("/devices")


async def test_a_kill_between_command_and_response_causes_no_second_command(tmp_path: Path) -> None:
    with Service(tmp_path) as running:
        async with running.api() as owner:
            path, body = await device_of(owner), {"cmd": "ON", "waitSeconds": 20, "ttlSeconds": 3_600}
            await hang_up_in_the_middle(running, owner, path, body, "killed")
            await running.kill_and_restart()
            for seconds in (0, 150):
                let_time_pass(running, seconds)
                retry = await again(owner, path, body, "killed")
                assert (retry.status_code, retry.json()["error"]) == (409, "IDEMPOTENCY_ANSWER_LOST")
            assert len(await executions(owner, path)) == 1
            other = await again(owner, path, {"cmd": "OFF"}, "killed")
            assert other.json()["error"] == "IDEMPOTENCY_MISMATCH"
            let_time_pass(running, 24 * 3_600)
            anew = await again(owner, path, {"cmd": "OFF"}, "killed")
            assert anew.status_code == 200
            assert len(await executions(owner, path)) == 2


async def test_a_kill_before_the_change_leaves_the_key_free_at_once(tmp_path: Path) -> None:
    with Service(tmp_path) as running:
        async with running.api() as owner:
            path, body = await device_of(owner), {"cmd": "ON", "waitSeconds": 20, "ttlSeconds": 3_600}
            await hang_up_in_the_middle(running, owner, path, body, "early")
            await running.kill_and_restart()
            forget_the_change(running)
            retry = await again(owner, path, {"cmd": "ON"}, "early")
            assert retry.status_code == 200, retry.text


def forget_the_change(running: Service) -> None:
    """Leave the claim as a process does that is killed before it commits its change."""
    connection = sqlite3.connect(running.data_dir / "latchboard.db", timeout=10)
    with connection:
        assert connection.execute("UPDATE stored_responses SET status = NULL WHERE status = 102").rowcount == 1
    connection.close()


def let_time_pass(running: Service, seconds: int) -> None:
    """Move the stored times of requests into the past."""
    connection = sqlite3.connect(running.data_dir / "latchboard.db", timeout=10)
    with connection:
        assert connection.execute("UPDATE stored_responses SET at_ms = at_ms - ?", (seconds * 1_000,)).rowcount > 0
    connection.close()


async def test_a_refusal_after_a_stored_claim_leaves_the_key_free(running: Service, owner: ApiClient) -> None:
    """A refused approval is stored and is still a refusal: the key can be used again."""
    path = await device_of(owner)
    await owner.post(f"{path}/commands", {"name": "SPIN", "label": "Spin", "requiresApproval": True}, expect=201)
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{path}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]}, expect=201)
    async with running.api(**{"X-Api-Key": made["key"]}) as robot:
        requested = await robot.post(f"{path}/command", {"cmd": "SPIN"}, expect=202)
    approve = f"{path}/approvals/{requested['approvalId']}/approve"
    key = {"Idempotency-Key": "decided"}
    await owner.patch(f"/keys/{made['keyId']}", {"enabled": False})
    refused = await owner.send("POST", approve, headers=key)
    assert (refused.status_code, refused.json()["error"]) == (403, "GRANT_MISSING")
    await owner.patch(f"/keys/{made['keyId']}", {"enabled": True})
    first = await owner.send("POST", approve, headers=key)
    second = await owner.send("POST", approve, headers=key)
    assert (first.status_code, second.status_code, second.json()) == (200, 200, first.json())
