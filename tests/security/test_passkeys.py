"""Passkeys: one signs in alone, counts as a second factor and as step-up; nothing replayed, foreign, copied or removed does."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from support.authenticator import PRESENT, SoftwareAuthenticator
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

ADA, EVE = "ada@example.com", "eve@example.com"
LOGIN = {"email": ADA, "password": PASSWORD}
OPTIONS = "/auth/login/passkey/options"


@pytest.fixture
async def app() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as made:
            await made.create_account(ADA)
            yield made


def authenticator(app: InProcessApp, **more: Any) -> SoftwareAuthenticator:
    return SoftwareAuthenticator(app.program.settings.effective_public_url, **more)


async def add(app: InProcessApp, caller: ApiCaller, **more: Any) -> tuple[SoftwareAuthenticator, Any]:
    device = authenticator(app, **more)
    options = (await caller.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    return device, await caller.send_ok("POST", "/auth/passkeys", {"name": "Phone", "passkey": device.create(options)})


async def question(app: InProcessApp, token: str | None = None) -> dict[str, Any]:
    body = {} if token is None else {"challengeToken": token}
    found: dict[str, Any] = (await app.caller().send_ok("POST", OPTIONS, body))["publicKey"]
    return found


async def sign_in(app: InProcessApp, response: dict[str, Any]) -> Any:
    return await app.caller().send("POST", "/auth/login/passkey", {"passkey": response})


async def begin(app: InProcessApp, email: str = ADA) -> Any:
    answer = await app.caller().send("POST", "/auth/login", {**LOGIN, "email": email})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def complete(app: InProcessApp, token: str, response: dict[str, Any]) -> Any:
    return await app.caller().send("POST", "/auth/login/second-factor", {"challengeToken": token, "passkey": response})


async def test_one_signs_in_without_a_password_and_the_list_says_when(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    device, added = await add(app, ada)
    assert len(added["recoveryCodes"]) == 10, "it is the first second factor"
    assert (await question(app))["allowCredentials"] == [], "the browser finds the passkey"
    assert (await question(app))["userVerification"] == "required"
    app.clock.forward(minutes=1)
    answer = await sign_in(app, device.get(await question(app)))
    assert answer.status_code == 200, answer.text
    signed_in = app.caller(Authorization=f"Bearer {answer.json()['accessToken']}")
    (listed,) = await signed_in.send_ok("GET", "/auth/passkeys")
    assert (listed["name"], listed["passkeyId"]) == ("Phone", added["passkeyId"])
    assert listed["lastUsedAt"] > listed["createdAt"]


async def test_one_is_the_second_factor_of_a_sign_in_and_the_first_signs_other_sessions_out(app: InProcessApp) -> None:
    other, ada = await app.sign_in(ADA), await app.sign_in(ADA)
    device, added = await add(app, ada)
    assert (await other.send("GET", "/auth/me")).status_code == 401
    waiting = await begin(app)
    assert waiting["methods"] == ["passkey", "recoveryCode"]
    options = await question(app, waiting["challengeToken"])
    assert len(options["allowCredentials"]) == 1
    assert (await complete(app, waiting["challengeToken"], device.get(options))).status_code == 200
    status = await ada.send_ok("GET", "/auth/second-factor")
    assert status == {"enabled": True, "required": False, "totp": False, "passkeys": 1, "recoveryCodesLeft": 10}
    again = await begin(app)
    by_code = {"challengeToken": again["challengeToken"], "recoveryCode": added["recoveryCodes"][0]}
    assert (await app.caller().send("POST", "/auth/login/second-factor", by_code)).status_code == 200


async def test_a_response_counts_once_and_for_the_purpose_it_was_asked_for(app: InProcessApp) -> None:
    device, _ = await add(app, await app.sign_in(ADA))
    response = device.get(await question(app))
    assert (await sign_in(app, response)).status_code == 200
    replayed = await sign_in(app, response)
    assert (replayed.status_code, replayed.json()["error"]) == (400, "PASSKEY_REFUSED")
    first, second = await begin(app), await begin(app)
    for_another_sign_in = device.get(await question(app, second["challengeToken"]))
    assert (await complete(app, first["challengeToken"], for_another_sign_in)).json()["error"] == "PASSKEY_REFUSED"
    assert (await sign_in(app, for_another_sign_in)).json()["error"] == "PASSKEY_REFUSED"
    assert (await complete(app, first["challengeToken"], device.get(await question(app)))).json()["error"] == "PASSKEY_REFUSED"
    assert (await complete(app, second["challengeToken"], for_another_sign_in)).status_code == 200


async def test_a_question_expires_and_cannot_be_made_up(app: InProcessApp) -> None:
    device, _ = await add(app, await app.sign_in(ADA))
    late = device.get(await question(app))
    app.clock.forward(minutes=5)
    assert (await sign_in(app, late)).status_code == 400
    options = await question(app)
    for made_up in ("", "AAAA", options["challenge"][:-4] + "AAAA", options["challenge"] + "AAAA"):
        assert (await sign_in(app, device.get({**options, "challenge": made_up}))).json()["error"] == "PASSKEY_REFUSED", made_up


async def test_another_origin_and_a_person_who_was_not_checked_are_refused(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    device, _ = await add(app, ada)
    own = device.origin
    for origin in ("https://latchboard.evil.example", own.replace("http:", "https:"), own + "1"):
        device.origin = origin
        assert (await sign_in(app, device.get(await question(app)))).status_code == 400, origin
    device.origin, device.flags = own, PRESENT
    assert (await sign_in(app, device.get(await question(app)))).status_code == 400
    for wrong in (authenticator(app, flags=PRESENT), SoftwareAuthenticator("https://latchboard.evil.example")):
        options = (await ada.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
        answer = await ada.send("POST", "/auth/passkeys", {"name": "Wrong", "passkey": wrong.create(options)})
        assert (answer.status_code, answer.json()["error"]) == (400, "PASSKEY_REFUSED")


async def test_the_passkey_of_another_user_and_a_wrong_signature_are_refused(app: InProcessApp) -> None:
    await app.create_account(EVE, "Other")
    (device, _), (of_eve, _) = [await add(app, await app.sign_in(one)) for one in (ADA, EVE)]
    waiting = await begin(app)
    token = waiting["challengeToken"]
    answer = await complete(app, token, of_eve.get(await question(app, token)))
    assert (answer.status_code, answer.json()["error"]) == (401, "SECOND_FACTOR_INVALID")
    of_eve.user_handle = device.user_handle
    assert (await sign_in(app, of_eve.get(await question(app)))).json()["error"] == "PASSKEY_REFUSED"
    forged = authenticator(app, credential_id=device.credential_id, user_handle=device.user_handle, sign_count=9)
    assert (await sign_in(app, forged.get(await question(app)))).json()["error"] == "PASSKEY_REFUSED"
    unknown = authenticator(app, user_handle=device.user_handle)
    assert (await sign_in(app, unknown.get(await question(app)))).json()["error"] == "PASSKEY_REFUSED"
    taken = authenticator(app, credential_id=device.credential_id)
    ada_again = app.caller(Authorization=f"Bearer {(await sign_in(app, device.get(await question(app)))).json()['accessToken']}")
    options = (await ada_again.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    answer = await ada_again.send("POST", "/auth/passkeys", {"name": "Twice", "passkey": taken.create(options)})
    assert (answer.status_code, answer.json()["error"]) == (409, "PASSKEY_EXISTS")


async def test_a_copied_passkey_is_noticed_by_its_count_and_logged(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    device, _ = await add(app, ada)
    assert (await sign_in(app, device.get(await question(app)))).status_code == 200
    device.sign_count -= 1
    refused = await sign_in(app, device.get(await question(app)))
    assert (refused.status_code, refused.json()["error"]) == (400, "PASSKEY_REFUSED")
    (event,) = (await ada.send_ok("GET", "/events?type=second_factor_failed"))["data"]
    assert ADA in event["description"]
    device.sign_count += 5
    assert (await sign_in(app, device.get(await question(app)))).status_code == 200


async def test_a_removed_passkey_lets_nobody_in_even_while_it_is_removed(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    device, added = await add(app, ada)
    response = device.get(await question(app))
    await ada.send_ok("DELETE", f"/auth/passkeys/{added['passkeyId']}")
    assert (await sign_in(app, response)).json()["error"] == "PASSKEY_REFUSED"
    assert (await app.caller().send("POST", "/auth/login", LOGIN)).status_code == 200, "the last factor is gone"
    assert (await ada.send_ok("GET", "/auth/second-factor"))["recoveryCodesLeft"] == 0
    assert (await ada.send("DELETE", f"/auth/passkeys/{added['passkeyId']}")).status_code == 404


async def test_a_stolen_session_adds_and_removes_none_and_a_passkey_proves_presence(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    device, added = await add(app, ada)
    options = (await ada.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    app.clock.forward(minutes=6)
    for method, path, body in (
        ("POST", "/auth/passkeys/options", None),
        ("DELETE", f"/auth/passkeys/{added['passkeyId']}", None),
        ("DELETE", "/auth/second-factor/totp", None),
    ):
        answer = await ada.send(method, path, body)
        assert (answer.status_code, answer.json()["error"]) == (403, "STEP_UP_REQUIRED"), path
    late = await ada.send("POST", "/auth/passkeys", {"name": "Late", "passkey": authenticator(app).create(options)})
    assert late.json()["error"] == "PASSKEY_REFUSED"
    asked = (await ada.send_ok("POST", "/auth/step-up/passkey-options"))["publicKey"]
    response = device.get(asked)
    await ada.send_ok("POST", "/auth/step-up", {"passkey": response})
    assert (await ada.send("POST", "/auth/step-up", {"passkey": response})).json()["error"] == "SECOND_FACTOR_INVALID"
    await ada.send_ok("POST", "/auth/passkeys/options")


async def test_the_question_of_one_session_is_no_proof_in_another(app: InProcessApp) -> None:
    device, _ = await add(app, await app.sign_in(ADA))
    first, second = [(await sign_in(app, device.get(await question(app)))).json()["accessToken"] for _ in range(2)]
    one, two = app.caller(Authorization=f"Bearer {first}"), app.caller(Authorization=f"Bearer {second}")
    asked = (await one.send_ok("POST", "/auth/step-up/passkey-options"))["publicKey"]
    assert (await two.send("POST", "/auth/step-up", {"passkey": device.get(asked)})).json()["error"] == "PASSKEY_REFUSED"
    new = (await one.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    answer = await two.send("POST", "/auth/passkeys", {"name": "Foreign", "passkey": authenticator(app).create(new)})
    assert answer.json()["error"] == "PASSKEY_REFUSED"


async def test_at_most_ten_and_one_satisfies_the_requirement() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), require_second_factor="admins") as app:
            account = await app.create_account(ADA)
            await app.create_member(account, EVE, Role.MEMBER)
            ada = await app.sign_in(ADA)
            assert (await ada.send("GET", "/devices")).json()["error"] == "SECOND_FACTOR_REQUIRED"
            _, added = await add(app, ada)
            assert (await ada.send("GET", "/devices")).status_code == 200
            kept = await ada.send("DELETE", f"/auth/passkeys/{added['passkeyId']}")
            assert (kept.status_code, kept.json()["error"]) == (409, "SECOND_FACTOR_REQUIRED")
            for _ in range(9):
                assert (await add(app, ada))[1]["recoveryCodes"] == []
            assert (await ada.send("POST", "/auth/passkeys/options")).json()["error"] == "TOO_MANY_PASSKEYS"


async def test_questions_of_strangers_fill_no_table(app: InProcessApp) -> None:
    device, _ = await add(app, await app.sign_in(ADA))
    for _ in range(20):
        await question(app)
    assert (await sign_in(app, device.get(await question(app)))).status_code == 200
    with contextlib.closing(sqlite3.connect(app.sqlite_path())) as database:
        (used,) = database.execute("SELECT count(*) FROM used_passkey_challenges").fetchone()
    assert used == 2, "the registration and the sign-in"
    app.clock.forward(minutes=6)
    async for _ in app.services.stored_telemetry.retention.purge_steps():
        pass
    with contextlib.closing(sqlite3.connect(app.sqlite_path())) as database:
        assert database.execute("SELECT count(*) FROM used_passkey_challenges").fetchone() == (0,)


async def test_malformed_responses_are_refused(app: InProcessApp) -> None:
    device, _ = await add(app, await app.sign_in(ADA))
    good = device.get(await question(app))
    bad: list[Any] = [{}, {"response": 1}, {"rawId": 5, "response": {}}, {**good, "type": "x"}, {**good, "id": "AAAA"}]
    for name in good["response"]:
        wrongs = [1, "", "AAAA", "ä", {}, [[]]]
        bad += [{**good, "response": {**good["response"], name: wrong}} for wrong in wrongs]
    for response in bad:
        answer = await sign_in(app, response)
        assert (answer.status_code, answer.json()["error"]) == (400, "PASSKEY_REFUSED"), response
    assert (await sign_in(app, good)).status_code == 200
