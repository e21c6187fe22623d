"""Invalid input of clients and devices: refused with the standard error body, or dropped and counted. Other clients are not
affected."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import Any

import httpx
import jwt
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.tokens import JwtAccessTokenCodec
from domain.accounts.model import Membership
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, MembershipId, SessionId, UserId
from support.device import create_device
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
NOBODY = "dev_" + "0" * 20
JSON = {"Content-Type": "application/json"}


def is_an_error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check the standard error body; returns it."""
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["error"]) == (status, code), answer.text
    assert body.keys() <= {"error", "message", "details", "requestId", "retryAfter"}
    assert body["message"]
    assert body["requestId"] == answer.headers["x-request-id"]
    return body


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "INVALID_JSON"),
        (b"", 400, "INVALID_JSON"),
        (b"\xff\xfe{}", 400, "INVALID_JSON"),
        (b'{"name": NaN, "boardType": "ESP32", "appType": "PUMP"}', 400, "INVALID_JSON"),
        (b'{"name": 1e999, "boardType": "ESP32", "appType": "PUMP"}', 400, "INVALID_JSON"),
        (b'{"name": ' + b"[" * 200 + b"]" * 200 + b"}", 400, "INVALID_JSON"),
        (b"[" * 200_000, 400, "INVALID_JSON"),
        (b"[]", 400, "INVALID_JSON"),
        (b"null", 400, "INVALID_JSON"),
        (b'"' + b"x" * 300_000 + b'"', 413, "PAYLOAD_TOO_LARGE"),
    ],
    ids=["cut off", "empty", "not UTF-8", "NaN", "infinite", "deep", "very deep", "array", "null", "300 kB"],
)
async def test_a_body_of_malformed_json_is_refused(owner: ApiClient, raw: bytes, status: int, code: str) -> None:
    answer = await owner.raw.post("/devices/register", content=raw, headers=owner.headers | JSON)
    is_an_error(answer, status, code)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nmae": "Pump"}, "nmae"),
        ({"name": 5}, "name"),
        ({"name": ""}, "name"),
        ({"name": None}, "name"),
        ({"name": "x" * 10_000}, "name"),
        ({"tags": "wet"}, "tags"),
        ({"tags": [str(number) for number in range(21)]}, "tags"),
        ({"boardType": ["ESP32"]}, "boardType"),
        ({"profile": "toaster"}, "profile"),
    ],
)
async def test_a_field_that_is_unknown_or_of_the_wrong_type_is_named(
    owner: ApiClient, change: dict[str, Any], field: str
) -> None:
    body = is_an_error(await owner.send("POST", "/devices/register", NEW | change), 400, "VALIDATION_ERROR")
    assert field in [fault["field"].split(".")[0] for fault in body["details"]]


async def test_invalid_rules_and_schedules_are_refused(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await line.report(temperature=20)
    soon = int(time.time()) + 60
    hot = {"metric": "temperature", "comparator": ">", "value": 30}
    for condition in ({"comparator": "=>"}, {"value": True}, {"value": {"a": 1}}, {"value": "hot"}, {"metric": ""}):
        rule = {"name": "hot", "conditions": [hot | condition], "action": {"command": "OFF"}}
        assert (await owner.post(f"{pump.path}/rules", rule, expect=400))["details"], condition
    await owner.post(f"{pump.path}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True}, expect=201)
    for action, code, field in (
        ({"command": "FLY"}, "UNKNOWN_COMMAND", "action.command"),
        ({"command": "FLUSH"}, "COMMAND_NEEDS_APPROVAL", "action.command"),
        ({"command": "ON", "params": {"level": 1}}, "INVALID_PARAMS", "action.params"),
    ):
        refused = await owner.post(f"{pump.path}/rules", {"name": "hot", "conditions": [hot], "action": action}, expect=400)
        assert (refused["error"], refused["details"][0]["field"]) == (code, field)
    for slot in (
        {"slot": 5},
        {"slot": -1},
        {"onTs": soon * 1000},
        {"onTs": 1.5},
        {"rrule": "FREQ=NEVER"},
        {"timezone": "Mars/X"},
    ):
        given = {"slot": 0, "onTs": soon, "offTs": soon + 1} | slot
        assert (await owner.post(f"{pump.path}/schedules", given, expect=400))["details"], slot
    assert await owner.get(f"{pump.path}/rules") == []
    assert await owner.get(f"{pump.path}/schedules") == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"/devices/{NOBODY}", 404, "NOT_FOUND"),
        ("GET", "/devices/%00%ff", 404, "NOT_FOUND"),
        ("GET", f"/devices/{NOBODY}/telemetry", 404, "NOT_FOUND"),
        ("POST", f"/devices/{NOBODY}/command/on", 404, "NOT_FOUND"),
        ("POST", f"/devices/{NOBODY}/approvals/apv_{'0' * 20}/approve", 404, "NOT_FOUND"),
        ("DELETE", f"/keys/key_{'0' * 20}", 404, "NOT_FOUND"),
        ("DELETE", "/webhooks/nonsense", 404, "NOT_FOUND"),
        ("GET", "/nothing/here", 404, "NOT_FOUND"),
        ("PATCH", "/events", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/events?limit=many", 400, "VALIDATION_ERROR"),
        ("GET", "/events?limit=100000", 400, "VALIDATION_ERROR"),
        ("GET", "/events?cursor=%F0%9F%98%80", 400, "VALIDATION_ERROR"),
    ],
)
async def test_unknown_resources_are_not_found(owner: ApiClient, method: str, path: str, status: int, code: str) -> None:
    is_an_error(await owner.send(method, path), status, code)


async def test_a_body_without_the_json_content_type_is_refused(owner: ApiClient) -> None:
    answer = await owner.raw.post(
        "/devices/register", content=json.dumps(NEW), headers=owner.headers | {"Content-Type": "text/plain"}
    )
    is_an_error(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


async def test_expired_and_forged_tokens_are_refused(service: Service, owner: ApiClient) -> None:
    good = owner.headers["Authorization"].removeprefix("Bearer ")
    claims = jwt.decode(good, options={"verify_signature": False})
    ids = MembershipId(claims["mbr"]), AccountId(claims["acc"]), UserId(claims["sub"])
    its_keys = KeyRing.parse((service.data_dir / "secret_keys").read_text())
    kid = jwt.get_unverified_header(good)["kid"]

    def signed_by(ring: KeyRing, now_s: float) -> str:
        return JwtAccessTokenCodec(ring).issue(Membership(*ids, Role.OWNER, 0), SessionId(claims["sid"]), int(now_s) * 1000)

    head, body, signature = good.split(".")
    bad = {
        "expired": signed_by(its_keys, time.time() - 3_600),
        "of another installation": signed_by(KeyRing.generate(), time.time()),
        "of the future": signed_by(its_keys, time.time() + 3_600),
        "unsigned": jwt.encode(claims, key="", algorithm="none", headers={"kid": kid}),
        "without signature": f"{head}.{body}.",
        "changed": f"{head}.{body[:-2]}AA.{signature}",
        "cut": good[:-1],
        "nonsense": "x" * 5_000,
    }
    for what, token in bad.items():
        answer = await owner.raw.get("/auth/me", headers={"Authorization": f"Bearer {token}"})
        is_an_error(answer, 401, "TOKEN_EXPIRED" if what == "expired" else "UNAUTHENTICATED")
        async with connect(f"ws://127.0.0.1:{service.port}/api/v1/ws?token={token}") as feed:
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(feed.recv(), TIMEOUT_S)
            assert feed.close_code == 4001, what
    is_an_error(await owner.raw.get("/devices", headers={"X-Api-Key": "sk_live_" + "a" * 40}), 401, "UNAUTHENTICATED")
    is_an_error(await owner.raw.get("/auth/me"), 401, "UNAUTHENTICATED")


GARBLED = [
    ("telemetry", b"{"),
    ("telemetry", b""),
    ("telemetry", b"\xff\xfe\x00"),
    ("telemetry", b'{"temperature": NaN}'),
    ("telemetry", b'{"m": {"temperature": 1e999}}'),
    ("telemetry", b'{"m": {"temperature": Infinity}}'),
    ("telemetry", b'{"m": {"temperature": {"a": 1}}}'),
    ("telemetry", b'{"m": [7]}'),
    ("telemetry", b'{"ts": "yesterday", "m": {"temperature": 1}}'),
    ("telemetry", b"[" * 60_000),
    ("telemetry", b'{"m": {"temperature": 1}, "x": "' + b"x" * 70_000 + b'"}'),
    ("state", b"PERHAPS"),
    ("state", b'{"relay": 3}'),
    ("state", b'{"relay": "ON", "id": {}}'),
    ("result", b'{"id": "exe_unknown", "status": "done"}'),
    ("result", b'{"id": "exe_unknown", "status": "splendid"}'),
    ("result", b"[]"),
    ("status", b"perhaps"),
    ("sched/rev", b'{"rev": -1}'),
    ("sched/rev", b'{"rev": 1e400}'),
    ("hello", b'{"fw": ["1.0"]}'),
    ("nonsense", b"{}"),
    ("cmd", b'{"id": "exe_1", "cmd": "ON"}'),
]


@pytest.mark.parametrize("version", [4, 5], ids=["MQTT 3.1.1", "MQTT 5"])
async def test_malformed_device_messages_are_dropped_and_counted(service: Service, owner: ApiClient, version: int) -> None:
    pump, other = await create_device(owner), await create_device(owner)
    before = await faults(service)
    async with pump.online(service, version=version) as line, other.online(service) as bystander:
        for below, payload in GARBLED:
            with contextlib.suppress(Exception):  # MQTT 5 can say that a publish is refused
                await line.publish(below, payload)
        await line.report(temperature=20)
        await bystander.report(temperature=21)
        assert await line.drain_commands(owner) == []
        assert await bystander.drain_commands(owner) == []

    for device, value in ((pump, 20), (other, 21)):
        assert [row["value"] for row in await owner.get(f"{device.path}/telemetry")] == [value]
        assert (await owner.get(device.path))["relayState"] is not True
    assert sum((await faults(service)).values()) > sum(before.values())
    assert (await owner.raw.get(f"{service.url}/readyz")).status_code == 200
    assert service.error_lines() == []


async def faults(service: Service) -> dict[str, float]:
    """The service's counts of malformed device messages."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as raw:
        lines = (await raw.get(f"{service.url}/metrics")).text.splitlines()
    rows = [line.rpartition(" ") for line in lines if line.startswith("latchboard_ingest_faults_total{")]
    return {name: float(value) for name, _, value in rows}


async def shout(port: int, first: bytes, until: asyncio.Event) -> int:
    """Connect and send `first` and garbage, repeatedly; returns how often."""
    times = 0
    while not until.is_set():
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(first + os.urandom(16_384))
                    await reader.read(100)
                finally:
                    writer.transport.abort()
        times += 1
        await asyncio.sleep(0.002)
    return times


async def test_garbage_on_every_port_disturbs_no_client(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    upgrade = b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n"
    connect_head = b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05\xc2\x00\x3c"
    ports = (service.mqtt_port, service.ws_port, service.port)
    over = asyncio.Event()
    flood = [asyncio.create_task(shout(port, first, over)) for port in ports for first in (b"", connect_head, upgrade)]
    try:
        async with pump.online(service) as line:
            for value in range(20):
                await line.report(temperature=value)
            for relay in ("on", "off"):
                done = await owner.post(f"{pump.path}/command/{relay}")
                await owner.wait_until(f"{pump.path}/executions/{done['executionId']}", lambda each: each["status"] == "DONE")
            assert await line.drain_commands(owner) == ["ON", "OFF"]
    finally:
        over.set()
        shouted = await asyncio.wait_for(asyncio.gather(*flood), TIMEOUT_S)
    assert min(shouted) > 0
    assert service.error_lines() == []
    assert len(await owner.get(f"{pump.path}/telemetry")) == 20
    assert (await owner.raw.get(f"{service.url}/readyz")).status_code == 200


async def test_a_key_without_a_grant_does_not_learn_the_commands_of_a_device(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    await owner.post(f"{pump.path}/commands", {"name": "OPEN_VAULT", "label": "Open"}, expect=201)
    made = await owner.post("/keys", {"name": "Stranger"}, expect=201)
    async with service.api(**{"X-Api-Key": made["key"]}) as stranger:
        is_an_error(await stranger.send("GET", f"{pump.path}/commands"), 403, "GRANT_MISSING")
        answer = await stranger.send("POST", f"{pump.path}/command", {"cmd": "GUESS"})
    assert "OPEN_VAULT" not in is_an_error(answer, 400, "UNKNOWN_COMMAND")["message"]
