"""Each reveal call is in the device's event log, on both databases: the successful and the denied ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.events.denied_requests import MAX_LOGGED_PER_MINUTE
from domain.kernel.caller import Role
from domain.sign_in.policy import PASSWORD_CONFIRMATIONS
from security.people import a_key
from support import postgres
from support.empty_database import empty_postgres
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
TYPO = "correct-horse-battery-staple-41"
DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]


@pytest.fixture(params=DATABASES)
async def program(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcessApp]:
    chosen = {"database_url": await empty_postgres()} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        yield program


async def log(owner: ApiCaller, device: str) -> list[str]:
    """The device's reveal events, oldest first."""
    found: list[dict[str, Any]] = await owner.send_ok("GET", f"{device}/events?limit=200")
    reported = [f"{each['eventType']} {each['description']}" for each in reversed(found)]
    return [text for text in reported if "reveal" in text.lower()]


async def test_every_call_is_logged_with_its_caller_and_denial_reason(program: InProcessApp) -> None:
    account = await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    await program.create_member(account, "viewer@example.com", Role.VIEWER)
    viewer, (key, _) = await program.sign_in("viewer@example.com"), await a_key(owner)
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"

    async def reveal(caller: ApiCaller, body: Any, status: int, **more: Any) -> None:
        answer = await caller.send("POST", f"{device}/credentials/reveal", body, **more)
        assert answer.status_code == status, answer.text

    await reveal(owner, {"password": PASSWORD}, 404)
    await owner.send_ok("POST", f"{device}/credentials", {})
    await reveal(owner, {"password": PASSWORD}, 200)
    await reveal(viewer, {"password": PASSWORD}, 403)
    await reveal(key, {"password": PASSWORD}, 403)
    for body in ({}, {"password": 5}, {"password": PASSWORD, "why": "x"}, {"password": "x" * 257}):
        await reveal(owner, body, 400)
    await reveal(owner, None, 415, headers={"Content-Type": "text/plain"})
    await reveal(owner, None, 400)
    for _ in range(PASSWORD_CONFIRMATIONS.max_failures):
        await reveal(owner, {"password": TYPO}, 403)
    await reveal(owner, {"password": PASSWORD}, 429)
    await owner.send_ok("POST", f"{device}/revoke")
    program.clock.forward(seconds=901)
    owner = await program.sign_in("owner@example.com")
    await reveal(owner, {"password": PASSWORD}, 409)

    refused, turned_away = "credentials_reveal_refused Reveal of credentials denied", "access_refused Refused"
    call = "Reveal MQTT credentials (POST /devices/{deviceId}/credentials/reveal)"
    assert await log(owner, device) == [
        f"{refused} (NOT_FOUND)",
        "credentials_revealed Credentials revealed",
        f"{refused} (ROLE_REQUIRED)",
        f"{turned_away} (SESSION_REQUIRED): {call}",
        *[f"{turned_away} ({code}): {call}" for code in (*["VALIDATION_ERROR"] * 4, "UNSUPPORTED_MEDIA_TYPE", "INVALID_JSON")],
        *[f"{refused} (PASSWORD_MISMATCH)"] * PASSWORD_CONFIRMATIONS.max_failures,
        f"{refused} (LOGIN_THROTTLED)",
        f"{refused} (CREDENTIALS_REVOKED)",
    ]


async def test_a_refused_reveal_is_in_the_log_after_any_number_of_other_refusals(program: InProcessApp) -> None:
    await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
    key, _ = await a_key(owner)
    for _ in range(MAX_LOGGED_PER_MINUTE + 5):
        assert (await key.send("GET", "/keys")).status_code == 403
    for _ in range(MAX_LOGGED_PER_MINUTE + 5):
        assert (await owner.send("POST", f"{device}/credentials/reveal", {})).status_code == 400
    assert (await key.send("POST", f"{device}/credentials/reveal", {"password": PASSWORD})).status_code == 403
    found = await log(owner, device)
    assert len([text for text in found if "VALIDATION_ERROR" in text]) == MAX_LOGGED_PER_MINUTE + 5
    assert len([text for text in found if "SESSION_REQUIRED" in text]) == 1


async def test_the_log_of_a_reveal_holds_neither_password(program: InProcessApp) -> None:
    await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
    made = await owner.send_ok("POST", f"{device}/credentials", {})
    for password in (PASSWORD, TYPO):
        await owner.send("POST", f"{device}/credentials/reveal", {"password": password})
    reported = (await owner.send("GET", f"{device}/events?limit=200")).text + (await owner.send("GET", "/events?limit=200")).text
    assert not [word for word in (PASSWORD, TYPO, made["mqttPassword"]) if word in reported]
