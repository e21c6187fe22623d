"""Two programs over one database, SQLite's file or PostgreSQL: of two changes at once neither undoes the other, and nothing that
is counted is counted short."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from domain.kernel import checks
from domain.kernel.caller import Role
from domain.kernel.errors import RateLimited, Unauthenticated, ValidationFailed
from domain.kernel.ids import CommandId, GrantId, KeyId, UserId, WebhookId
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD
from support.in_process_app import RECEIVER_URL, InProcessApp
from support.two_instances import DATABASES, NEW_DEVICE, TwoInstances, concurrent_change, two_instances

NEW_PASSWORD = "a new long password"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=DATABASES, scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[TwoInstances]:
    """One for all, because making it takes longer than any test; so each works on things of its own."""
    async with two_instances(tmp_path_factory.mktemp("pair"), request.param) as made:
        yield made


async def test_renaming_a_key_does_not_enable_it_again(pair: TwoInstances) -> None:
    made = await pair.owner.send_ok("POST", "/keys", {"name": "Robot"})
    rename = pair.owner_at_second.send("PATCH", f"/keys/{made['keyId']}", {"name": "Renamed"})
    async with concurrent_change(pair, rename) as (tx, others_come):
        key = await tx.api_keys.get_for_update(pair.account.account.account_id, KeyId(made["keyId"]))
        await others_come()
        await tx.api_keys.save(replace(key, enabled=False))
    keys = {key["keyId"]: key for key in await pair.owner.send_ok("GET", "/keys")}
    key = keys[made["keyId"]]
    assert (key["name"], key["enabled"]) == ("Renamed", False)


async def test_another_edit_of_a_grant_does_not_take_its_limit_away(pair: TwoInstances) -> None:
    device = f"/devices/{(await pair.owner.send_ok('POST', '/devices/register', NEW_DEVICE))['deviceId']}"
    key = await pair.owner.send_ok("POST", "/keys", {"name": "Robot"})
    made = await pair.owner.send_ok("POST", f"{device}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]})
    edit = pair.owner_at_second.send("PATCH", f"{device}/grants/{made['grantId']}", {"commands": ["ON"]})
    async with concurrent_change(pair, edit) as (tx, others_come):
        grant = await tx.grants.get_for_update(pair.account.account.account_id, GrantId(made["grantId"]))
        await others_come()
        await tx.grants.save(replace(grant, rate_limit_per_minute=3))
    [grant] = await pair.owner.send_ok("GET", f"{device}/grants")
    assert (grant["commands"], grant["rateLimitPerMinute"]) == (["ON"], 3)


async def test_another_edit_of_a_command_does_not_take_its_approval_away(pair: TwoInstances) -> None:
    device = f"/devices/{(await pair.owner.send_ok('POST', '/devices/register', NEW_DEVICE))['deviceId']}"
    made = await pair.owner.send_ok("POST", f"{device}/commands", {"name": "FLUSH", "label": "Flush"})
    edit = pair.owner_at_second.send("PATCH", f"{device}/commands/{made['commandId']}", {"label": "Flush it"})
    async with concurrent_change(pair, edit) as (tx, others_come):
        command = await tx.definitions.get_for_update(pair.account.account.account_id, CommandId(made["commandId"]))
        await others_come()
        await tx.definitions.save(replace(command, requires_approval=True))
    commands = {one["name"]: one for one in await pair.owner.send_ok("GET", f"{device}/commands")}
    assert (commands["FLUSH"]["label"], commands["FLUSH"]["requiresApproval"]) == ("Flush it", True)


async def test_a_new_name_does_not_bring_the_old_password_back(pair: TwoInstances) -> None:
    membership_id = await pair.first.create_member(pair.account, "ada@example.com", Role.MEMBER)
    rename = pair.owner_at_second.send("PATCH", f"/members/{membership_id}", {"name": "Ada L."})
    async with concurrent_change(pair, rename) as (tx, others_come):
        user = await tx.users.get_for_update((await tx.users.find_by_email("ada@example.com")).user_id)
        await others_come()
        new_hash = await pair.first.hasher.hash(NEW_PASSWORD)
        await tx.users.save(user.with_password(new_hash, pair.first.clock.now_ms()))
    login = {"email": "ada@example.com", "password": NEW_PASSWORD}
    assert (await pair.second.caller().send_ok("POST", "/auth/login", login))["user"]["name"] == "Ada L."


async def test_another_address_does_not_bring_a_rotated_secret_back(pair: TwoInstances) -> None:
    key = await pair.owner.send_ok("POST", "/keys", {"name": "Robot"})
    made = await pair.owner.send_ok("POST", "/webhooks", {"keyId": key["keyId"], "url": RECEIVER_URL})
    edit = pair.owner_at_second.send("PATCH", f"/webhooks/{made['webhookId']}", {"url": f"{RECEIVER_URL}/other"})
    async with concurrent_change(pair, edit) as (tx, others_come):
        webhook = await tx.webhooks.get_for_update(pair.account.account.account_id, WebhookId(made["webhookId"]))
        await others_come()
        await tx.webhooks.save(replace(webhook, secret_prefix="whsec_rotated", generation=2))
    [webhook] = [one for one in await pair.owner.send_ok("GET", "/webhooks") if one["webhookId"] == made["webhookId"]]
    assert (webhook["url"], webhook["secretPrefix"]) == (f"{RECEIVER_URL}/other", "whsec_rotated")


@pytest.mark.parametrize("way", ["refresh", "logout"])
async def test_no_token_outlives_the_end_of_all_sessions(pair: TwoInstances, way: str) -> None:
    tokens = await pair.first.caller().send_ok("POST", "/auth/login", {"email": "owner@example.com", "password": PASSWORD})
    user_id: UserId = pair.account.owner.user.user_id
    async with pair.first.services.uow.write() as tx:
        await tx.users.get_for_update(user_id)
        other = asyncio.create_task(pair.second.caller().send("POST", f"/auth/{way}", {"refreshToken": tokens["refreshToken"]}))
        await pair.wait_for_blocked_transactions()
        await tx.refresh_tokens.revoke_by_user(user_id, pair.first.clock.now_ms())
    assert (await other).status_code == (401 if way == "refresh" else 200)
    page = await pair.owner.send_ok("GET", "/events?type=session_revoked")
    assert page["data"] == []  # it was ended, not stolen


async def test_the_second_of_two_owners_who_step_down_at_once_stays(pair: TwoInstances) -> None:
    second_id = await pair.first.create_member(pair.account, "second@example.com", Role.OWNER)
    second = await pair.second.sign_in("second@example.com")
    first_id = pair.account.owner.membership.membership_id
    for _ in range(5):
        answers = await asyncio.gather(
            pair.owner.send("PATCH", f"/members/{first_id}", {"role": "Admin"}),
            second.send("PATCH", f"/members/{second_id}", {"role": "Admin"}),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        remaining, gone_id = (second, first_id) if answers[0].is_success else (pair.owner, second_id)
        await remaining.send_ok("PATCH", f"/members/{gone_id}", {"role": "Owner"})


async def test_a_code_has_five_tries_at_both_together(pair: TwoInstances) -> None:
    await pair.owner.send_ok("POST", "/auth/password/request-otp")
    [code] = re.findall(r"\b\d{6}\b", pair.first.mail.mails[-1][2])
    wrong = "000000" if code != "000000" else "111111"

    async def guess(program: InProcessApp) -> Any:
        body = {"otp": wrong, "newPassword": NEW_PASSWORD}
        return await program.caller(**pair.owner.headers).send("POST", "/auth/change-password", body)

    assert {answer.status_code for answer in await pair.call_both(8, guess)} == {400}
    async with pair.second.services.uow.read() as tx:
        kept = await tx.one_time_codes.get_for_update(pair.account.owner.user.user_id)
    assert (kept.tries, kept.used) == (5, False)
    right = await pair.owner_at_second.send("POST", "/auth/change-password", {"otp": code, "newPassword": NEW_PASSWORD})
    assert right.json()["error"] == "OTP_INVALID"


async def test_of_guesses_at_both_five_are_answered(pair: TwoInstances) -> None:
    async def guess(program: InProcessApp) -> Any:
        return await program.services.logins.login("owner@example.com", "a wrong password", client=ClientInfo("203.0.113.7"))

    found = await pair.call_both(16, guess)
    assert not any(isinstance(one, ValidationFailed) for one in found)
    assert [sum(isinstance(one, kind) for one in found) for kind in (Unauthenticated, RateLimited)] == [5, 11]


async def bounded_creation(pair: TwoInstances, kind: str) -> tuple[str, list[dict[str, Any]]]:
    """The path of the list, and two creations."""
    key = await pair.owner.send_ok("POST", "/keys", {"name": "Robot"})
    if kind == "webhooks":
        return "/webhooks", [{"keyId": key["keyId"], "url": RECEIVER_URL}] * 2
    if kind == "grants":
        device = (await pair.owner.send_ok("POST", "/devices/register", NEW_DEVICE))["deviceId"]
        path = f"/devices/{device}/grants"
        return path, [{"commands": ["ON"], "apiKeyId": key["keyId"]}] * 2
    person = {"role": "Viewer", "password": PASSWORD} if kind == "members" else {}
    names = [f"{kind} {number} on {pair.database}" for number in (1, 2)]
    emails = [{"email": f"{kind}{number}@example.com"} if person else {} for number in (1, 2)]
    return f"/{kind}", [{"name": name} | person | email for name, email in zip(names, emails, strict=True)]


@pytest.mark.parametrize("kind", ["keys", "projects", "members", "grants", "webhooks"])
async def test_of_two_who_take_the_last_place_at_once_one_gets_it(
    pair: TwoInstances, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bodies = await bounded_creation(pair, kind)
    before = len(await pair.owner.send_ok("GET", path))
    monkeypatch.setattr(checks, "MAX_LISTED", before + 1)
    monkeypatch.setattr("domain.webhooks.service.MAX_WEBHOOKS_PER_KEY", 1)
    async with pair.first.services.uow.write() as tx:
        await tx.memberships.lock_account(pair.account.account.account_id)
        creations = [
            asyncio.create_task(caller.send("POST", path, body))
            for caller, body in zip((pair.owner, pair.owner_at_second), bodies, strict=True)
        ]
        await pair.wait_for_blocked_transactions(2)
    assert sorted(answer.status_code for answer in await asyncio.gather(*creations)) == [201, 409]
    assert len(await pair.owner.send_ok("GET", path)) == before + 1
