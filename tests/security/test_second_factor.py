"""The second factor: needed at sign-in once set up, its codes work once, tries are bounded, and a stolen session cannot change it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyotp
import pytest

from domain.kernel.caller import Role
from domain.sign_in.second_factor import MAX_WRONG_CODES
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

ADA = "ada@example.com"
LOGIN = {"email": ADA, "password": PASSWORD}


@pytest.fixture
async def app() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as made:
            await made.create_account(ADA)
            yield made


def code_of(app: InProcessApp, secret: str) -> str:
    return pyotp.TOTP(secret).at(app.clock.now_ms() // 1000)


async def set_up(app: InProcessApp, caller: ApiCaller) -> tuple[str, list[str]]:
    """The secret of the app and the recovery codes. The next code is of the next time step."""
    setup = await caller.send_ok("POST", "/auth/second-factor/totp")
    assert setup["secret"] in setup["otpauthUri"]
    assert setup["qrSvg"].startswith("<svg")
    confirmed = await caller.send_ok("POST", "/auth/second-factor/totp/confirm", {"code": code_of(app, setup["secret"])})
    app.clock.forward(seconds=30)
    return setup["secret"], confirmed["recoveryCodes"]


async def begin(app: InProcessApp) -> str:
    answer = await app.caller().send("POST", "/auth/login", LOGIN)
    assert answer.status_code == 202, answer.text
    assert answer.json()["methods"] == ["totp", "recoveryCode"]
    assert "accessToken" not in answer.json()
    token: str = answer.json()["challengeToken"]
    return token


async def complete(app: InProcessApp, token: str, **factor: str) -> Any:
    return await app.caller().send("POST", "/auth/login/second-factor", {"challengeToken": token, **factor})


async def test_once_set_up_a_password_alone_lets_nobody_in(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    secret, _ = await set_up(app, ada)
    answer = await complete(app, await begin(app), totp=code_of(app, secret))
    assert answer.status_code == 200
    assert answer.json()["user"]["email"] == ADA
    signed_in = app.caller(Authorization=f"Bearer {answer.json()['accessToken']}")
    assert (await signed_in.send_ok("GET", "/auth/second-factor")) == {
        "enabled": True,
        "required": False,
        "totp": True,
        "passkeys": 0,
        "recoveryCodesLeft": 10,
    }


async def test_setting_it_up_signs_out_the_sessions_that_were_opened_without_it(app: InProcessApp) -> None:
    other, ada = await app.sign_in(ADA), await app.sign_in(ADA)
    await set_up(app, ada)
    assert (await other.send("GET", "/auth/me")).status_code == 401
    assert (await ada.send("GET", "/auth/me")).status_code == 200


async def test_a_code_works_once_and_only_around_its_time(app: InProcessApp) -> None:
    secret, _ = await set_up(app, await app.sign_in(ADA))
    code = code_of(app, secret)
    assert (await complete(app, await begin(app), totp=code)).status_code == 200
    again = await complete(app, await begin(app), totp=code)
    assert (again.status_code, again.json()["error"]) == (401, "SECOND_FACTOR_INVALID")
    app.clock.forward(minutes=5)
    late = code_of(app, secret)
    app.clock.forward(seconds=75)
    assert (await complete(app, await begin(app), totp=late)).status_code == 401


async def test_a_challenge_expires_and_is_used_once(app: InProcessApp) -> None:
    secret, codes = await set_up(app, await app.sign_in(ADA))
    token = await begin(app)
    assert (await complete(app, token, totp=code_of(app, secret))).status_code == 200
    used = await complete(app, token, recoveryCode=codes[0])
    assert (used.status_code, used.json()["error"]) == (400, "CHALLENGE_EXPIRED")
    token = await begin(app)
    app.clock.forward(minutes=5)
    assert (await complete(app, token, recoveryCode=codes[0])).json()["error"] == "CHALLENGE_EXPIRED"


async def test_a_change_of_the_password_voids_a_sign_in_that_waits_for_its_code(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    secret, _ = await set_up(app, ada)
    token = await begin(app)
    app.clock.forward(seconds=30)
    changed = {"currentPassword": PASSWORD, "newPassword": "another good password"}
    await ada.send_ok("POST", "/auth/password/change", changed)
    assert (await complete(app, token, totp=code_of(app, secret))).json()["error"] == "CHALLENGE_EXPIRED"


async def test_a_recovery_code_stands_in_once(app: InProcessApp) -> None:
    _, codes = await set_up(app, await app.sign_in(ADA))
    assert len(set(codes)) == 10
    assert (await complete(app, await begin(app), recoveryCode=codes[3].replace("-", " "))).status_code == 200
    assert (await complete(app, await begin(app), recoveryCode=codes[3])).status_code == 401
    assert (await complete(app, await begin(app), recoveryCode=codes[4])).status_code == 200


async def test_wrong_codes_are_bounded_over_all_challenges(app: InProcessApp) -> None:
    secret, _ = await set_up(app, await app.sign_in(ADA))
    seen = [(await complete(app, await begin(app), totp="no code")).json()["error"] for _ in range(7)]
    assert seen == ["SECOND_FACTOR_INVALID"] * 5 + ["LOGIN_THROTTLED"] * 2
    assert (await complete(app, await begin(app), totp=code_of(app, secret))).status_code == 429
    app.clock.forward(minutes=15)
    assert (await complete(app, await begin(app), totp=code_of(app, secret))).status_code == 200


async def test_a_stolen_session_cannot_change_the_factor_without_proof(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    secret, _ = await set_up(app, ada)
    app.clock.forward(minutes=6)
    for method, path, body in (
        ("DELETE", "/auth/second-factor", None),
        ("POST", "/auth/second-factor/recovery-codes", None),
        ("POST", "/auth/second-factor/totp", None),
        ("POST", "/auth/second-factor/totp/confirm", {"code": "000000"}),
    ):
        answer = await ada.send(method, path, body)
        assert (answer.status_code, answer.json()["error"]) == (403, "STEP_UP_REQUIRED"), path
    by_password = await ada.send("POST", "/auth/step-up", {"password": PASSWORD})
    assert by_password.json()["error"] == "SECOND_FACTOR_INVALID", "who has a factor shows it"
    await ada.send_ok("POST", "/auth/step-up", {"totp": code_of(app, secret)})
    await ada.send_ok("DELETE", "/auth/second-factor")
    assert (await app.caller().send("POST", "/auth/login", LOGIN)).status_code == 200


async def test_who_has_a_second_factor_reveals_credentials_only_with_the_password_and_a_recent_proof(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    made = await ada.send_ok("POST", "/devices/register", {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"})
    credentials = await ada.send_ok("POST", f"/devices/{made['deviceId']}/credentials", {})
    reveal = f"/devices/{made['deviceId']}/credentials/reveal"
    secret, _ = await set_up(app, ada)
    app.clock.forward(minutes=6)
    assert (await ada.send("POST", reveal, {"password": PASSWORD})).json()["error"] == "STEP_UP_REQUIRED"
    await ada.send_ok("POST", "/auth/step-up", {"totp": code_of(app, secret)})
    assert (await ada.send("POST", reveal, {"password": "wrong"})).json()["error"] == "PASSWORD_MISMATCH"
    assert (await ada.send_ok("POST", reveal, {"password": PASSWORD}))["mqttPassword"] == credentials["mqttPassword"]


async def test_who_has_a_second_factor_approves_only_with_a_recent_proof(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    made = await ada.send_ok("POST", "/devices/register", {"name": "Gate", "boardType": "ESP32", "appType": "PUMP"})
    device = f"/devices/{made['deviceId']}"
    await ada.send_ok("POST", f"{device}/credentials", {})
    await ada.send_ok("POST", f"{device}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True})
    key = await ada.send_ok("POST", "/keys", {"name": "Robot"})
    await ada.send_ok("POST", f"{device}/grants", {"apiKeyId": key["keyId"], "commands": ["*"]})
    asked = await app.caller(X_Api_Key=key["key"]).send_ok("POST", f"{device}/command", {"cmd": "OPEN"})
    approve = f"{device}/approvals/{asked['approvalId']}/approve"
    secret, _ = await set_up(app, ada)
    signed_in = (await complete(app, await begin(app), totp=code_of(app, secret))).json()
    app.clock.forward(minutes=14)
    renewed = await app.caller().send_ok("POST", "/auth/refresh", {"refreshToken": signed_in["refreshToken"]})
    ada = app.caller(Authorization=f"Bearer {renewed['accessToken']}")
    app.clock.forward(minutes=2)
    late = await ada.send("POST", approve)
    assert (late.status_code, late.json()["error"]) == (403, "STEP_UP_REQUIRED")
    await ada.send_ok("POST", "/auth/step-up", {"totp": code_of(app, secret)})
    await ada.send_ok("POST", approve)


async def test_the_secret_is_sealed_and_the_operator_can_reset_it(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    secret, codes = await set_up(app, ada)
    stored = app.sqlite_path().read_bytes() + app.sqlite_path().with_name("latchboard.db-wal").read_bytes()
    for kept_nowhere in (secret, codes[0], codes[0].replace("-", "")):
        assert kept_nowhere.encode() not in stored
    await app.services.operator.reset_second_factor(ADA)
    assert (await ada.send("GET", "/auth/me")).status_code == 401
    assert (await app.caller().send("POST", "/auth/login", LOGIN)).status_code == 200


async def test_where_one_is_required_a_session_without_it_can_only_set_it_up() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), require_second_factor="admins") as app:
            account = await app.create_account(ADA)
            await app.create_member(account, "member@example.com", Role.MEMBER)
            member = await app.sign_in("member@example.com")
            assert (await member.send("GET", "/devices")).status_code == 200
            ada = await app.sign_in(ADA)
            answer = await ada.send("GET", "/devices")
            assert (answer.status_code, answer.json()["error"]) == (403, "SECOND_FACTOR_REQUIRED")
            assert (await ada.send_ok("GET", "/auth/second-factor"))["required"] is True
            secret, _ = await set_up(app, ada)
            assert (await ada.send("GET", "/devices")).status_code == 200
            removal = await ada.send("DELETE", "/auth/second-factor")
            assert (removal.status_code, removal.json()["error"]) == (409, "SECOND_FACTOR_REQUIRED")
            assert (await complete(app, await begin(app), totp=code_of(app, secret))).status_code == 200


async def test_the_dashboard_completes_its_sign_in_with_its_cookie(app: InProcessApp) -> None:
    secret, _ = await set_up(app, await app.sign_in(ADA))
    proof = {"X-CSRF-Protection": "1"}
    first = await app.http.post("/dashboard/session/login", json=LOGIN, headers=proof)
    assert first.status_code == 202
    assert "Set-Cookie" not in first.headers
    body = {"challengeToken": first.json()["challengeToken"], "totp": code_of(app, secret)}
    second = await app.http.post("/dashboard/session/login/second-factor", json=body, headers=proof)
    assert second.status_code == 200
    assert "latchboard_refresh" in second.headers["Set-Cookie"]
    assert "refreshToken" not in second.json()


async def test_an_app_does_not_count_after_a_hundred_wrong_codes_in_a_row_until_another_factor_is_shown(
    app: InProcessApp,
) -> None:
    """However slowly they are tried: the window of the five wrong ones passes each time."""
    secret, codes = await set_up(app, await app.sign_in(ADA))
    for _ in range(MAX_WRONG_CODES):
        assert (await complete(app, await begin(app), totp="000000")).status_code == 401
        app.clock.forward(minutes=4)
    locked = await complete(app, await begin(app), totp=code_of(app, secret))
    assert (locked.status_code, locked.json()["error"]) == (403, "TOTP_LOCKED")
    assert (await complete(app, await begin(app), recoveryCode=codes[0])).status_code == 200
    assert (await complete(app, await begin(app), totp=code_of(app, secret))).status_code == 200


async def test_a_right_code_ends_the_row_of_wrong_ones(app: InProcessApp) -> None:
    secret, _ = await set_up(app, await app.sign_in(ADA))
    for wrong in (MAX_WRONG_CODES - 1, 1):
        for _ in range(wrong):
            assert (await complete(app, await begin(app), totp="000000")).status_code == 401
            app.clock.forward(minutes=4)
        assert (await complete(app, await begin(app), totp=code_of(app, secret))).status_code == 200
