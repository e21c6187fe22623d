"""API keys, passwords and one-time codes of the real program, seen in its responses, its database and its mail."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from argon2 import PasswordHasher

from support.mail_receiver import Postbox, mail_receiver
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


@pytest.fixture(scope="module")
def postbox() -> Iterator[tuple[Postbox, int]]:
    with mail_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, postbox: tuple[Postbox, int]) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("outside"), LATCHBOARD_SMTP_URL=f"smtp://127.0.0.1:{postbox[1]}") as service:
        yield service


@pytest.fixture
async def owner(running: Service) -> AsyncIterator[ApiClient]:
    async with running.api() as api:
        yield api
    assert running.error_lines() == []


def database(running: Service, statement: str, *values: Any) -> list[Any]:
    """The database as another process reads or writes it."""
    connection = sqlite3.connect(running.data_dir / "latchboard.db", timeout=10)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def kept_hash(running: Service, email: str) -> str:
    [[found]] = database(running, "SELECT password_hash FROM users WHERE email = ?", email)
    return str(found)


async def test_an_outdated_hash_is_replaced_only_after_the_right_password(running: Service, owner: ApiClient) -> None:
    email = "old@example.com"
    await owner.post("/members", {"email": email, "name": "Old", "role": "Member", "password": PASSWORD}, expect=201)
    strong = kept_hash(running, email)
    assert re.match(r"\$argon2id\$v=19\$m=19456,t=2,p=1\$", strong)
    old = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(PASSWORD)
    database(running, "UPDATE users SET password_hash = ? WHERE email = ?", old, email)
    await owner.post("/auth/login", {"email": email, "password": "not the password"}, expect=401)
    assert kept_hash(running, email) == old
    await owner.post("/auth/login", {"email": email, "password": PASSWORD})
    renewed = kept_hash(running, email)
    assert renewed.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert renewed != strong
    await owner.post("/auth/login", {"email": email, "password": PASSWORD})
    assert kept_hash(running, email) == renewed


async def test_the_last_use_of_a_key_is_written_in_batches_and_shown_soon(running: Service, owner: ApiClient) -> None:
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    database(running, "CREATE TABLE seen_writes (n INTEGER)")
    database(
        running,
        "CREATE TRIGGER see_writes AFTER UPDATE OF last_used_ms ON api_keys BEGIN INSERT INTO seen_writes VALUES (1); END",
    )
    try:
        async with running.api(**{"X-Api-Key": made["key"]}) as robot:
            for _ in range(200):
                assert await robot.get("/devices") == []

        def used(keys: Any) -> bool:
            return any(key["keyId"] == made["keyId"] and key["lastUsedAt"] is not None for key in keys)

        await owner.wait_until("/keys", used)
        [[writes]] = database(running, "SELECT count(*) FROM seen_writes")
        assert 1 <= writes < 20
    finally:
        database(running, "DROP TRIGGER see_writes")
        database(running, "DROP TABLE seen_writes")


async def test_deleting_a_key_ends_its_grants_webhooks_and_feed_at_once(running: Service, owner: ApiClient) -> None:
    device = (await owner.post("/devices/register", NEW, expect=201))["deviceId"]
    await owner.post(f"/devices/{device}/credentials", {})
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    kept = await owner.post("/keys", {"name": "Kept"}, expect=201)
    async with webhook_receiver(respond()) as receiver:
        for key in (made, kept):
            await owner.post(f"/devices/{device}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
            await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
        async with running.api(**{"X-Api-Key": made["key"]}) as robot, running.feed(robot) as feed:
            await robot.get(f"/devices/{device}/executions")
            await owner.delete(f"/keys/{made['keyId']}")
            await robot.get(f"/devices/{device}/executions", expect=401)
            await robot.post(f"/devices/{device}/command/on", expect=401)
            async with asyncio.timeout(TIMEOUT_S):
                await feed.socket.wait_closed()
            assert feed.socket.close_code == 4003
        assert [grant["subject"]["id"] for grant in await owner.get(f"/devices/{device}/grants")] == [kept["keyId"]]
        assert [webhook["keyId"] for webhook in await owner.get("/webhooks")] == [kept["keyId"]]
        await owner.get(f"/keys/{made['keyId']}/grants", expect=404)
    left = database(running, "SELECT count(*) FROM grants WHERE key_id = ?", made["keyId"])
    assert left == [(0,)]


async def test_a_password_is_changed_with_a_mailed_code(running: Service, owner: ApiClient, postbox: tuple[Postbox, int]) -> None:
    email, new = "admin@example.com", "an entirely new password"
    await owner.post("/members", {"email": email, "name": "Admin", "role": "Admin", "password": PASSWORD}, expect=201)
    tokens = await owner.post("/auth/login", {"email": email, "password": PASSWORD})
    async with running.api(Authorization=f"Bearer {tokens['accessToken']}") as admin:
        await admin.post("/auth/password/request-otp")
        again = await admin.send("POST", "/auth/password/request-otp")
        assert (again.status_code, again.json()["error"]) == (429, "OTP_COOLDOWN")
        assert 1 <= int(again.headers["Retry-After"]) == again.json()["retryAfter"] <= 60
        mail = postbox[0].mails.get(timeout=TIMEOUT_S)
        assert mail["To"] == email
        [code] = re.findall(r"\b\d{6}\b", str(mail.get_payload()))
        kept = database(running, "SELECT code_hash FROM one_time_codes")
        assert all(code.encode() not in row[0] for row in kept)
        wrong = "000000" if code != "000000" else "111111"
        await admin.post("/auth/change-password", {"otp": wrong, "newPassword": new}, expect=400)
        await admin.post("/auth/change-password", {"otp": code, "newPassword": new})
        await admin.get("/auth/me", expect=401)  # the change ends every session
    await owner.post("/auth/refresh", {"refreshToken": tokens["refreshToken"]}, expect=401)
    await owner.post("/auth/login", {"email": email, "password": PASSWORD}, expect=401)
    await owner.post("/auth/login", {"email": email, "password": new})
    assert code not in running.log(1_000_000)
    reported = database(running, "SELECT kind FROM events WHERE kind LIKE 'otp%' OR kind LIKE 'password%' ORDER BY position")
    assert [kind for [kind] in reported] == ["otp_requested", "password_change_failed", "password_changed"]


async def test_a_waiting_request_ends_with_the_callers_access(running: Service, owner: ApiClient) -> None:
    """A request that began while the key was valid completes; the next one is refused."""
    device = (await owner.post("/devices/register", NEW, expect=201))["deviceId"]
    await owner.post(f"/devices/{device}/credentials", {})
    made = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"/devices/{device}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]}, expect=201)
    async with running.api(**{"X-Api-Key": made["key"]}) as robot:
        waiting = asyncio.create_task(robot.send("POST", f"/devices/{device}/command", {"cmd": "ON", "waitSeconds": 2}))
        await owner.wait_until(f"/devices/{device}/executions", lambda page: page["data"])
        await owner.patch(f"/keys/{made['keyId']}", {"enabled": False})
        assert (await waiting).status_code == 200
        await robot.post(f"/devices/{device}/command/on", expect=401)
        await owner.patch(f"/keys/{made['keyId']}", {"enabled": True})
        await robot.post(f"/devices/{device}/command/on")


async def test_the_owner_can_sign_in_during_a_guessing_attack(running: Service, owner: ApiClient) -> None:
    for _ in range(8):
        await owner.raw.post("/auth/login", json={"email": EMAIL, "password": "a guess"})
    throttled = await owner.raw.post("/auth/login", json={"email": EMAIL, "password": "a guess"})
    assert throttled.status_code == 429
    assert 1 <= int(throttled.headers["Retry-After"]) <= 60
    await owner.get("/auth/me")
