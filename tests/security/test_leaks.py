"""Secrets, guesses and mistyped passwords are in no file of the running program: not in its DEBUG log, not in its database.

The event log still records each action with its caller and address, denied ones included.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pyotp
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from domain.kernel.clock import to_iso
from domain.keys.model import compose_key
from support.service import EMAIL, PASSWORD, Service
from support.waiting import TIMEOUT_S

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
GUESS, TYPO, NEXT, CODE = "a guess at a password", "a mistyped account password", "the password to come", "918273"
UNKNOWN = compose_key("guessedKey" * 4)


async def listen(service: Service, query: str = "", **headers: str) -> None:
    """A feed connection until its first message or its end."""
    address = f"ws://127.0.0.1:{service.port}/api/v1/ws{query}"
    async with connect(address, additional_headers=headers, open_timeout=TIMEOUT_S) as socket, asyncio.timeout(TIMEOUT_S):
        try:
            await socket.recv()
        except ConnectionClosed:
            return


async def live(service: Service, raw: httpx.AsyncClient) -> dict[str, str]:
    """Perform all kinds of actions, allowed and denied. Returns the secrets by name."""

    async def send(method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = await raw.request(method, path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return answer.json()

    await send("POST", "/auth/login", {"email": EMAIL, "password": GUESS})
    await send("POST", "/auth/login", {"email": "nobody@example.com", "password": GUESS})
    tokens = await send("POST", "/auth/login", {"email": EMAIL, "password": PASSWORD})
    owner = {"Authorization": f"Bearer {tokens['accessToken']}"}
    device = (await send("POST", "/devices/register", NEW, **owner))["deviceId"]
    made = await send("POST", f"/devices/{device}/credentials", {}, **owner)
    await send("POST", f"/devices/{device}/credentials/reveal", {"password": TYPO}, **owner)
    await send("POST", f"/devices/{device}/credentials/reveal", {"password": PASSWORD}, **owner)
    await send("POST", "/auth/password/request-otp", None, **owner)
    await send("POST", "/auth/change-password", {"otp": CODE, "newPassword": NEXT}, **owner)
    key = (await send("POST", "/keys", {"name": "Robot"}, Idempotency_Key="leaks", **owner))["key"]
    for shown in (key, UNKNOWN):
        await send("GET", "/keys", None, X_Api_Key=shown)
        await send("POST", f"/devices/{device}/command", {"cmd": "ON"}, X_Api_Key=shown)
        await send("GET", f"/devices?token={shown}&apiKey={shown}")
        await listen(service, f"?token={shown}")
        await listen(service, **{"X-Api-Key": shown})
    await listen(service, f"?token={tokens['accessToken']}")
    spent = await send("POST", "/auth/refresh", {"refreshToken": tokens["refreshToken"]})
    await send("POST", "/auth/refresh", {"refreshToken": tokens["refreshToken"]})
    return {
        "password": PASSWORD,
        "guess": GUESS,
        "typo": TYPO,
        "next password": NEXT,
        "code": CODE,
        "key": key,
        "unknown key": UNKNOWN,
        "access token": tokens["accessToken"],
        "refresh token": tokens["refreshToken"],
        "next refresh token": spent["refreshToken"],
        "MQTT password": made["mqttPassword"],
    }


async def live_with_what_is_shown_once(service: Service, raw: httpx.AsyncClient) -> dict[str, str]:
    """Every kind of secret that is shown once or only kept sealed, made and used. Returns the secrets by name."""
    tokens = (await raw.post("/auth/login", json={"email": EMAIL, "password": PASSWORD})).json()
    owner = {"Authorization": f"Bearer {tokens['accessToken']}"}

    async def made(path: str, body: Any = None, status: int = 201, **headers: str) -> Any:
        answer = await raw.post(path, json=body, headers=owner | {k.replace("_", "-"): v for k, v in headers.items()})
        assert answer.status_code == status, answer.text
        return answer.json()

    ends = {"expiresAt": to_iso(int(time.time() * 1000) + 3_600_000)}
    robot = await made("/service-sessions", {"name": "ci", "role": "Admin", "operations": ["devices:write"], **ends})
    await raw.get("/members", headers={"Authorization": f"Bearer {robot['token']}"})
    await listen(service, f"?token={robot['token']}")
    code = (await made("/provisioning-codes", {**NEW, **ends, "requiresApproval": False}))["code"]
    claimed = (await raw.post("/provisioning/claim", json={"code": code, "hardwareId": "AA:BB:CC:01"})).json()
    await raw.post("/provisioning/claim", json={"code": code[:-1], "hardwareId": "AA:BB:CC:02"})
    fleet = {"devices": [NEW | {"externalId": "serial-1"}], "credentials": "NEW"}
    for _ in range(2):
        [registered] = (await made("/devices/register/bulk", fleet, 200, Idempotency_Key="fleet"))["devices"]
    invited = (await made("/invitations", {"email": "bob@example.com", "name": "Bob", "role": "Admin"}))["link"].split("/")[-1]
    await raw.post("/invitations/preview", json={"token": invited})
    await raw.post("/invitations/accept", json={"token": invited, "password": NEXT})
    shown = {"ntfy": {"url": "https://ntfy.invalid", "topic": "a-topic-to-find", "token": "tk_to_find"}}
    for destination in (shown, {"telegram": {"botToken": "123:bot-token-to-find", "chatId": "42"}}):
        channel = (await made("/auth/notifications/channels", {"name": "Phone", **destination}))["channelId"]
        await made(f"/auth/notifications/channels/{channel}/test", {}, 200)
    app = (await made("/auth/second-factor/totp", {}, 200))["secret"]
    codes = await made("/auth/second-factor/totp/confirm", {"code": pyotp.TOTP(app).now()}, 200)
    await raw.post("/auth/step-up", json={"recoveryCode": codes["recoveryCodes"][0]}, headers=owner)
    return {
        "service session": robot["token"],
        "provisioning code": code,
        "claimed MQTT password": claimed["mqttPassword"],
        "claim token": claimed["claimToken"],
        "MQTT password of a fleet": registered["credentials"]["mqttPassword"],
        "invitation": invited,
        "ntfy topic": "a-topic-to-find",
        "ntfy token": "tk_to_find",
        "bot token": "bot-token-to-find",
        "secret of the app": app,
        "recovery code": codes["recoveryCodes"][0],
    }


def reported(service: Service) -> list[tuple[str, str, str, str]]:
    """Kind, source, address and code of every event."""
    connection = sqlite3.connect(service.data_dir / "latchboard.db", timeout=10)
    try:
        rows = connection.execute("SELECT kind, source, address, payload FROM events ORDER BY position").fetchall()
        return [(kind, source, address or "", json.loads(data or "{}").get("code", "")) for kind, source, address, data in rows]
    finally:
        connection.close()


async def test_no_file_of_the_program_contains_a_secret_or_a_guess(tmp_path: Path) -> None:
    # A server that refuses mail. Without a mail server the code is written to the log, the only way to the user.
    settings = {
        "LATCHBOARD_LOG_LEVEL": "DEBUG",
        "LATCHBOARD_SMTP_URL": "smtp://127.0.0.1:9",
        "LATCHBOARD_TELEGRAM_URL": "https://telegram.invalid",
    }
    with Service(tmp_path, **settings) as service:
        async with httpx.AsyncClient(base_url=f"{service.url}/api/v1", timeout=40) as raw:
            secrets = await live(service, raw) | await live_with_what_is_shown_once(service, raw)
        service.stop()
        events = reported(service)
        files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [
        (name, str(path)) for name, secret in secrets.items() for path, text in files.items() if secret.encode() in text
    ] == []

    kinds = [kind for kind, *_ in events]
    for kind in (
        "login_failed",
        "login",
        "otp_requested",
        "password_change_failed",
        "key_created",
        "session_revoked",
        "access_refused",
    ):
        assert kind in kinds, kind
    refused = {code for kind, _, _, code in events if kind == "access_refused"}
    assert {"SESSION_REQUIRED", "GRANT_MISSING"} <= refused
    acts = [event for event in events if not event[1].startswith(("service:", "device:", "operator"))]
    assert all(
        source.split(":")[0] in ("user", "apikey", "provisioning") and address == "127.0.0.1" for _, source, address, _ in acts
    ), acts
