"""Revoked access applies to requests in flight too. With the real program, its sockets and its clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from support.service import PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Service(tmp_path_factory.mktemp("taken")) as service:
        yield service


@pytest.fixture
async def owner(running: Service) -> AsyncIterator[ApiClient]:
    async with running.api() as api:
        yield api
    assert running.error_lines() == []


async def held_back(
    running: Service, path: str, body: dict[str, Any], headers: dict[str, str], meanwhile: Callable[[], Awaitable[Any]]
) -> tuple[int, Any]:
    """A request whose body is sent after `meanwhile`; returns the status and the response."""
    raw = json.dumps(body).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    head = f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(raw)}\r\n{lines}\r\n".encode() + raw[:1])
    await asyncio.sleep(0.5)  # long enough to be authenticated
    await meanwhile()
    writer.write(raw[1:])
    async with asyncio.timeout(TIMEOUT_S):
        answer = await reader.read()
    writer.close()
    reply, _, content = answer.partition(b"\r\n\r\n")
    return int(reply[9:12]), json.loads(content)


async def test_a_delayed_body_does_not_outlive_its_key(running: Service, owner: ApiClient) -> None:
    device = (await owner.post("/devices/register", NEW, expect=201))["deviceId"]
    path = f"/devices/{device}"
    await owner.post(f"{path}/credentials", {})
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{path}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]}, expect=201)
    shown = {"X-Api-Key": made["key"]}

    async def nothing() -> None: ...

    async def disable() -> None:
        await owner.patch(f"/keys/{made['keyId']}", {"enabled": False})

    status, reported = await held_back(running, f"{path}/command", {"cmd": "ON"}, shown, nothing)
    assert (status, reported["ok"]) == (200, True)
    status, reported = await held_back(running, f"{path}/command", {"cmd": "OFF"}, shown, disable)
    assert (status, reported["error"]) == (401, "UNAUTHENTICATED")
    assert [one["cmd"] for one in (await owner.get(f"{path}/executions"))["data"]] == ["ON"]


@pytest.mark.parametrize("end", ["removed", "demoted"])
async def test_a_delayed_body_does_not_outlive_a_role(running: Service, owner: ApiClient, end: str) -> None:
    email = f"{end}@example.com"
    person = {"email": email, "name": "Admin", "role": "Admin", "password": PASSWORD}
    membership = (await owner.post("/members", person, expect=201))["membershipId"]
    tokens = await owner.post("/auth/login", {"email": email, "password": PASSWORD})

    async def take_away() -> None:
        if end == "removed":
            await owner.delete(f"/members/{membership}")
        else:
            await owner.patch(f"/members/{membership}", {"role": "Viewer"})

    shown = {"Authorization": f"Bearer {tokens['accessToken']}"}
    status, reported = await held_back(running, "/keys", {"name": "Backdoor"}, shown, take_away)
    assert (status, reported["error"]) == ((401, "UNAUTHENTICATED") if end == "removed" else (403, "ROLE_REQUIRED"))
    assert all(key["name"] != "Backdoor" for key in await owner.get("/keys"))


async def test_a_removed_member_cannot_refresh_a_session(running: Service, owner: ApiClient) -> None:
    person = {"email": "gone@example.com", "name": "Gone", "role": "Owner", "password": PASSWORD}
    membership = (await owner.post("/members", person, expect=201))["membershipId"]
    tokens = await owner.post("/auth/login", {"email": person["email"], "password": PASSWORD})
    await owner.delete(f"/members/{membership}")
    await owner.post("/auth/refresh", {"refreshToken": tokens["refreshToken"]}, expect=401)
    again = await owner.post("/members", person, expect=201)
    assert again["membershipId"] != membership
    async with running.api(Authorization=f"Bearer {tokens['accessToken']}") as gone:
        await gone.get("/auth/me", expect=401)  # the token names a deleted membership, although the person is a member again
    await owner.post("/auth/refresh", {"refreshToken": tokens["refreshToken"]}, expect=401)
    await owner.delete(f"/members/{again['membershipId']}")
