"""`/mcp` under attack: strangers without a valid key, and an agent that gives a path where an id belongs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.in_process_app import ApiCaller, InProcessApp, in_process_app

ADDRESSES = [("X-Forwarded-For", "203.0.113.7")]
DEVICE = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path, trusted_proxies="127.0.0.1/32") as program:
        await program.create_account("ada@example.com")
        yield program


@pytest.fixture
async def ada(app: InProcessApp) -> ApiCaller:
    return await app.sign_in("ada@example.com")


async def send(app: InProcessApp, key: str, method: str, **parameters: Any) -> httpx.Response:
    headers = [("X-Api-Key", key), ("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
    content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
    return await app.http.request("POST", "/mcp", headers=[*headers, *ADDRESSES], content=content)


async def call(app: InProcessApp, key: str, tool: str, **arguments: Any) -> Any:
    answer = await send(app, key, "tools/call", name=tool, arguments=arguments)
    return json.loads(answer.json()["result"]["content"][0]["text"])


async def test_a_stranger_does_not_even_see_the_tools(app: InProcessApp, ada: ApiCaller) -> None:
    made = await ada.send_ok("POST", "/keys", {"name": "agent"})
    assert (await send(app, made["key"], "tools/list")).status_code == 200
    unknown = made["key"][:-6] + "aaaaaa"
    for key in ("sk_live_guess", unknown):
        assert ((refused := await send(app, key, "tools/list")).status_code, refused.json()["error"]) == (401, "UNAUTHENTICATED")
    await ada.send_ok("PATCH", f"/keys/{made['keyId']}", {"enabled": False})
    assert (await send(app, made["key"], "tools/list")).status_code == 401
    [refusal] = (await ada.send_ok("GET", "/events?type=access_refused"))["data"]
    assert refusal["address"] == "203.0.113.7"


@pytest.mark.parametrize(
    "device_id",
    ["../keys?", "{id}/../../auth/me?x=", "{id}/command/on?", "{id}/command/on#", "{id}%2f..%2f..", "..", "", "{id}\n"],
)
async def test_no_id_is_the_way_to_another_operation(app: InProcessApp, ada: ApiCaller, device_id: str) -> None:
    own_id = (await ada.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
    await ada.send_ok("POST", f"/devices/{own_id}/credentials", {})
    made = await ada.send_ok("POST", "/keys", {"name": "agent"})
    await ada.send_ok("POST", f"/devices/{own_id}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]})
    given = device_id.format(id=own_id)
    sent = await call(app, made["key"], "send_command", device_id=given, command="ON", reason="because", wait_seconds=0)
    read = await call(app, made["key"], "explain_access", device_id=given, command="ON")
    decided = await call(app, made["key"], "wait_for_approval", device_id=own_id, approval_id=given, wait_seconds=0)
    assert {sent["error"], read["error"], decided["error"]} == {"NOT_FOUND"}
    assert (await ada.send_ok("GET", f"/devices/{own_id}/executions"))["data"] == []
    queued = await call(app, made["key"], "send_command", device_id=own_id, command="ON", reason="because", wait_seconds=0)
    assert queued["status"] == "QUEUED"


async def test_no_answer_is_kept_or_taken_for_another_kind(app: InProcessApp, ada: ApiCaller) -> None:
    key = (await ada.send_ok("POST", "/keys", {"name": "agent"}))["key"]
    for answer in (await send(app, key, "tools/list"), await send(app, "sk_live_guess", "tools/list"), await send(app, key, "x")):
        assert answer.headers.get_list("cache-control") == ["no-store"] or "no-store" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
