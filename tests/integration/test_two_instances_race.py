"""Two whole programs over one PostgreSQL: what is counted is counted exactly, whichever of them is asked, and however many at
once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import RateLimited, Unauthenticated, ValidationFailed
from domain.kernel.idempotency import StoredResponse
from domain.sign_in.model import ClientInfo, LoginFailures
from domain.team.operator import CreatedAccountWithOwner
from support import postgres
from support.http import PASSWORD
from support.in_process_app import InProcessApp
from support.two_instances import NEW_DEVICE, TwoInstances, two_instances

pytestmark = pytest.mark.skipif(not postgres.available(), reason="PostgreSQL is not installed")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[TwoInstances]:
    async with two_instances(tmp_path) as made:
        yield made


def mailed_code(program: InProcessApp) -> str:
    [code] = re.findall(r"\b\d{6}\b", program.mail.mails[-1][2])
    return str(code)


def as_session(account: CreatedAccountWithOwner) -> SessionCaller:
    member = account.owner.membership
    return SessionCaller(account.account.account_id, member.user_id, member.membership_id, member.role)


async def limited(pair: TwoInstances, limit: int) -> tuple[str, str]:
    """The path of a device and a key that is granted so many commands a minute."""
    device = f"/devices/{(await pair.owner.send_ok('POST', '/devices/register', NEW_DEVICE))['deviceId']}"
    await pair.owner.send_ok("POST", f"{device}/credentials", {})
    key = await pair.owner.send_ok("POST", "/keys", {"name": "Robot"})
    grant = {"commands": ["*"], "apiKeyId": key["keyId"], "rateLimitPerMinute": limit}
    await pair.owner.send_ok("POST", f"{device}/grants", grant)
    return device, key["key"]


async def test_a_rolling_limit_is_exact_over_two_programs(pair: TwoInstances) -> None:
    device, key = await limited(pair, 7)
    for seconds, free in ((0, 7), (59.999, 0), (0.001, 7)):
        for program in (pair.first, pair.second):
            program.clock.forward(seconds=seconds)

        async def send(program: InProcessApp) -> Any:
            return await program.caller(X_Api_Key=key).send("POST", f"{device}/command", {"cmd": "STATUS"})

        answers = await pair.call_both(24, send)
        assert sorted(answer.status_code for answer in answers) == [200] * free + [429] * (24 - free)
        left = {int(answer.headers["RateLimit"].partition("r=")[2].partition(";")[0]) for answer in answers if answer.is_success}
        assert left == set(range(free))


async def test_a_limit_is_exact_though_one_clock_is_ahead(pair: TwoInstances) -> None:
    device, key = await limited(pair, 5)
    pair.second.clock.forward(seconds=3)

    async def send(program: InProcessApp) -> Any:
        return await program.caller(X_Api_Key=key).send("POST", f"{device}/command", {"cmd": "STATUS"})

    statuses = [answer.status_code for answer in await pair.call_both(20, send)]
    assert (statuses.count(200), statuses.count(429)) == (5, 15)


async def test_who_counts_a_grant_makes_the_others_wait(pair: TwoInstances) -> None:
    device, key = await limited(pair, 1)
    grant_id = (await pair.owner.send_ok("GET", f"{device}/grants"))[0]["grantId"]
    async with pair.first.services.uow.write() as tx:
        now_ms = pair.first.clock.now_ms()
        grant = await tx.grants.get_for_update(pair.account.account.account_id, grant_id)
        assert list(await tx.grants.list_recent_uses(grant, now_ms - 60_000, now_ms + 60_000, 1)) == []
        other = asyncio.create_task(pair.second.caller(X_Api_Key=key).send("POST", f"{device}/command", {"cmd": "STATUS"}))
        await pair.wait_for_blocked_transactions()
        await tx.grants.add_use(grant_id, now_ms)
    assert (await other).status_code == 429


async def test_two_last_owners_cannot_remove_each_other(pair: TwoInstances) -> None:
    second_id = await pair.first.create_member(pair.account, "second@example.com", Role.OWNER)
    second = await pair.second.sign_in("second@example.com")
    first_id = pair.account.owner.membership.membership_id
    async with pair.first.services.uow.write() as tx:
        await tx.memberships.lock_account(pair.account.account.account_id)
        assert await tx.memberships.count_owners(pair.account.account.account_id) == 2
        removing = asyncio.create_task(second.send("DELETE", f"/members/{first_id}"))
        demoting = asyncio.create_task(pair.owner.send("PATCH", f"/members/{second_id}", {"role": "Admin"}))
        await pair.wait_for_blocked_transactions(2)
    answers = [await removing, await demoting]
    # Who came second is no Owner any more (403), or no member (401).
    assert sorted(answer.status_code for answer in answers) in ([200, 401], [200, 403])
    async with pair.first.services.uow.read() as tx:
        assert await tx.memberships.count_owners(pair.account.account.account_id) == 1


async def test_who_was_made_the_last_owner_meanwhile_is_not_removed_as_an_admin(pair: TwoInstances) -> None:
    third_id = await pair.first.create_member(pair.account, "third@example.com", Role.ADMIN)
    await pair.first.create_member(pair.account, "admin@example.com", Role.ADMIN)
    admin = await pair.second.sign_in("admin@example.com")
    async with pair.first.services.uow.write() as tx:
        await tx.memberships.lock_account(pair.account.account.account_id)
        removing = asyncio.create_task(admin.send("DELETE", f"/members/{third_id}"))
        await pair.wait_for_blocked_transactions()
        third = await tx.memberships.get(third_id)
        await tx.memberships.save(type(third)(third.membership_id, third.account_id, third.user_id, Role.OWNER, third.created_ms))
    assert (await removing).status_code == 403


async def test_a_code_has_five_tries_however_many_come_at_once(pair: TwoInstances) -> None:
    await pair.owner.send_ok("POST", "/auth/password/request-otp")
    code = mailed_code(pair.first)
    wrong = "000000" if code != "000000" else "111111"

    async def guess(program: InProcessApp) -> Any:
        return await program.services.passwords.change_password(as_session(pair.account), wrong, "a new long password")

    assert all(isinstance(one, ValidationFailed | RateLimited) for one in await pair.call_both(16, guess))
    async with pair.first.services.uow.read() as tx:
        kept = await tx.one_time_codes.get_for_update(pair.account.owner.user.user_id)
    assert kept is not None
    assert kept.tries == 5
    with pytest.raises((ValidationFailed, RateLimited)):
        await pair.second.services.passwords.change_password(as_session(pair.account), code, "a new long password")


async def test_a_right_code_is_used_once_by_whoever_is_first(pair: TwoInstances) -> None:
    await pair.owner.send_ok("POST", "/auth/password/request-otp")
    code = mailed_code(pair.first)

    async def change(program: InProcessApp) -> Any:
        return await program.services.passwords.change_password(as_session(pair.account), code, "a new long password")

    found = await pair.call_both(4, change)
    assert [one for one in found if one is None] == [None]


async def test_of_two_codes_requested_at_once_one_is_mailed(pair: TwoInstances) -> None:
    async def request_code(program: InProcessApp) -> Any:
        return await program.services.passwords.send_code(as_session(pair.account), language="en")

    found = await pair.call_both(10, request_code)
    assert sum(isinstance(one, RateLimited) for one in found) == 9
    assert len(pair.first.mail.mails) + len(pair.second.mail.mails) == 1


async def test_guesses_sent_to_both_at_once_are_counted_as_one_after_the_other(pair: TwoInstances) -> None:
    async def guess(program: InProcessApp) -> Any:
        return await program.services.logins.login("owner@example.com", "a wrong password", client=ClientInfo("203.0.113.7"))

    found = await pair.call_both(20, guess)
    assert sum(isinstance(one, Unauthenticated) for one in found) == 5
    assert sum(isinstance(one, RateLimited) for one in found) == 15


async def test_guesses_of_the_account_password_at_a_reveal_are_counted_exactly(pair: TwoInstances) -> None:
    device_id = (await pair.owner.send_ok("POST", "/devices/register", NEW_DEVICE))["deviceId"]
    await pair.owner.send_ok("POST", f"/devices/{device_id}/credentials", {})

    async def reveal(program: InProcessApp) -> Any:
        body = {"password": "a wrong password"}
        caller = program.caller(**pair.owner.headers)
        return (await caller.send("POST", f"/devices/{device_id}/credentials/reveal", body)).status_code

    statuses = await pair.call_both(24, reveal)
    assert (statuses.count(403), statuses.count(429)) == (10, 14)


async def test_a_spent_token_is_exchanged_once_and_its_family_ends(pair: TwoInstances) -> None:
    tokens = await pair.first.caller().send_ok("POST", "/auth/login", {"email": "owner@example.com", "password": PASSWORD})
    body = {"refreshToken": tokens["refreshToken"]}
    answers = await pair.call_both(10, lambda program: program.caller().send("POST", "/auth/refresh", body))
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 9
    [new] = [answer.json()["refreshToken"] for answer in answers if answer.status_code == 200]
    assert (await pair.second.caller().send("POST", "/auth/refresh", {"refreshToken": new})).status_code == 401


async def test_one_idempotency_key_runs_a_command_once_over_two_programs(pair: TwoInstances) -> None:
    device, key = await limited(pair, 100)

    async def send(program: InProcessApp) -> Any:
        headers = {"Idempotency-Key": "only-once"}
        return await program.caller(X_Api_Key=key).send("POST", f"{device}/command", {"cmd": "STATUS"}, headers=headers)

    answers = await pair.call_both(16, send)
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert len((await pair.owner.send_ok("GET", f"{device}/executions"))["data"]) == 1


async def test_an_abandoned_idempotency_key_is_taken_over_by_one(pair: TwoInstances) -> None:
    now_ms = pair.first.clock.now_ms()
    abandoned = StoredResponse("acc/user", "left", b"hash", None, b"", now_ms - 600_000)
    async with pair.first.services.uow.write() as tx:
        await tx.stored_responses.claim(abandoned)

    async def take_over(program: InProcessApp) -> bool:
        async with program.services.uow.write() as tx:
            found = await tx.stored_responses.get("acc/user", "left")
            if found is None or found.at_ms == now_ms or not await tx.stored_responses.delete_if_unchanged(found):
                return False
            return bool(await tx.stored_responses.claim(StoredResponse("acc/user", "left", b"hash", None, b"", now_ms)))

    assert (await pair.call_both(12, take_over)).count(True) == 1


async def test_of_forty_decisions_at_both_one_wins(pair: TwoInstances) -> None:
    device, key = await limited(pair, 100)
    await pair.owner.send_ok("POST", f"{device}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True})
    requested = await pair.second.caller(X_Api_Key=key).send_ok("POST", f"{device}/command", {"cmd": "FLUSH"})
    path = f"{device}/approvals/{requested['approvalId']}"
    words = iter(["approve", "approve", "deny", "deny"] * 10)

    async def decide(program: InProcessApp) -> Any:
        return await program.caller(**pair.owner.headers).send("POST", f"{path}/{next(words)}")

    answers = await pair.call_both(40, decide)
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 39
    [approval] = await pair.owner_at_second.send_ok("GET", f"{device}/approvals")
    executions = (await pair.owner.send_ok("GET", f"{device}/executions"))["data"]
    assert len(executions) == (1 if approval["status"] == "APPROVED" else 0)


async def test_an_overdue_request_expires_once_whoever_looks(pair: TwoInstances) -> None:
    device, key = await limited(pair, 100)
    await pair.owner.send_ok("POST", f"{device}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True})
    await pair.first.caller(X_Api_Key=key).send_ok("POST", f"{device}/command", {"cmd": "FLUSH"})
    for program in (pair.first, pair.second):
        program.clock.forward(minutes=25 * 60)
    await pair.call_both(8, lambda program: program.services.approvals.expire_due())
    async with pair.first.services.uow.read() as tx:
        found = await tx.events.page(
            pair.account.account.account_id, limit=50, before=None, kind="approval_decided", device_id=None
        )
    assert len(found) == 1


async def test_two_counts_of_one_subject_lose_nothing(pair: TwoInstances) -> None:
    async def count(program: InProcessApp) -> None:
        async with program.services.uow.write() as tx:
            before = await tx.login_failures.get_for_update("pair:nobody@example.com|203.0.113.9")
            number = before.count if before else 0
            await tx.login_failures.upsert(LoginFailures("pair:nobody@example.com|203.0.113.9", number + 1, 1, 1))

    await pair.call_both(30, count)
    async with pair.second.services.uow.read() as tx:
        kept = await tx.login_failures.get_for_update("pair:nobody@example.com|203.0.113.9")
    assert kept is not None
    assert kept.count == 30


async def test_an_email_is_given_once(pair: TwoInstances) -> None:
    body = {"email": "new@example.com", "name": "New", "role": "Member", "password": "a new long password"}
    answers = await pair.call_both(6, lambda program: program.caller(**pair.owner.headers).send("POST", "/members", body))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5


async def test_a_project_is_not_deleted_under_a_device_that_moves_in(pair: TwoInstances) -> None:
    for number in range(5):
        project_id = (await pair.owner.send_ok("POST", "/projects", {"name": f"Yard {number}"}))["projectId"]
        moving = pair.owner.send("POST", "/devices/register", NEW_DEVICE | {"projectId": project_id})
        deleting = pair.owner_at_second.send("DELETE", f"/projects/{project_id}")
        moved, deleted = await asyncio.gather(moving, deleting)
        assert {moved.status_code, deleted.status_code} & {201, 200}
        assert (moved.status_code, deleted.status_code) != (201, 200)
        assert moved.status_code in (201, 400, 404, 409)
        assert deleted.status_code in (200, 409)
        if moved.status_code == 201:
            device = await pair.owner.send_ok("GET", f"/devices/{moved.json()['deviceId']}")
            assert device["project"]["projectId"] == project_id
