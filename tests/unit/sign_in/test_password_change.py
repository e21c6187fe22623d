"""The mailed code: short, few tries, once."""

from __future__ import annotations

import re

import pytest

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import PermissionDenied, RateLimited, Unavailable, ValidationFailed
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD, HttpWorld

NEW = "a better password"


async def request_code(world: HttpWorld, caller: SessionCaller) -> str:
    await world.passwords.send_code(caller, language="en")
    found = re.search(r"\b\d{6}\b", world.mail.mails[-1][2])
    assert found is not None
    return found[0]


async def refused(world: HttpWorld, caller: SessionCaller, code: str) -> bool:
    try:
        await world.passwords.change_password(caller, code, NEW)
    except ValidationFailed as error:
        return error.code == "OTP_INVALID"
    return False


def another(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06d}"


async def test_a_code_works_once(world: HttpWorld, owner: SessionCaller) -> None:
    code = await request_code(world, owner)
    assert not await refused(world, owner, code)
    assert await refused(world, owner, code)


async def test_a_code_is_valid_for_ten_minutes(world: HttpWorld, owner: SessionCaller) -> None:
    code = await request_code(world, owner)
    world.clock.forward(minutes=10)
    assert await refused(world, owner, code)


async def test_after_five_wrong_attempts_the_correct_code_is_rejected(world: HttpWorld, owner: SessionCaller) -> None:
    code = await request_code(world, owner)
    for _ in range(5):
        assert await refused(world, owner, another(code))
    assert await refused(world, owner, code)


async def test_the_fifth_attempt_may_succeed(world: HttpWorld, owner: SessionCaller) -> None:
    code = await request_code(world, owner)
    for _ in range(4):
        assert await refused(world, owner, another(code))
    assert not await refused(world, owner, code)


async def test_a_new_code_invalidates_the_old_one(world: HttpWorld, owner: SessionCaller) -> None:
    old = await request_code(world, owner)
    world.clock.forward(minutes=1)
    new = await request_code(world, owner)
    assert await refused(world, owner, old if old != new else another(new))
    assert not await refused(world, owner, new)


async def test_a_second_code_within_a_minute_is_rejected(world: HttpWorld, owner: SessionCaller) -> None:
    await request_code(world, owner)
    world.clock.forward(seconds=20)
    with pytest.raises(RateLimited) as caught:
        await world.passwords.send_code(owner, language="en")
    assert (caught.value.code, caught.value.retry_after) == ("OTP_COOLDOWN", 40)


async def test_the_code_of_another_user_is_rejected(world: HttpWorld, owner: SessionCaller) -> None:
    admin = await world.join(owner, Role.ADMIN, "grace@example.com")
    theirs = await request_code(world, admin)
    mine = await request_code(world, owner)
    assert await refused(world, owner, theirs if theirs != mine else another(mine))


async def test_a_mail_that_could_not_be_sent_starts_no_cooldown(world: HttpWorld, owner: SessionCaller) -> None:
    world.mail.broken = Unavailable("no route")
    with pytest.raises(Unavailable):
        await world.passwords.send_code(owner, language="en")
    world.mail.broken = None
    assert not await refused(world, owner, await request_code(world, owner))


async def test_a_change_revokes_all_refresh_tokens_and_the_log_does_not_contain_the_code(
    world: HttpWorld, owner: SessionCaller
) -> None:
    signed_in = await world.logins.login("ada@example.com", PASSWORD, client=ClientInfo("192.0.2.1"))
    code = await request_code(world, owner)
    await world.passwords.change_password(owner, code, NEW)
    async with world.uow.read() as tx:
        token = await tx.refresh_tokens.get(world.digest.sha256(signed_in.tokens.refresh_token))
        kept = await tx.one_time_codes.get_for_update(owner.user_id)
    assert token.revoked_ms is not None
    assert code.encode() not in kept.code_hash
    assert code not in " ".join(event.description for event in world.uow.emitted_events)
    assert NEW not in repr(world.uow.emitted_events)


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_a_password_change_needs_an_admin_or_owner(world: HttpWorld, owner: SessionCaller, role: Role) -> None:
    caller = await world.join(owner, role, "grace@example.com")
    with pytest.raises(PermissionDenied):
        await world.passwords.send_code(caller, language="en")
    with pytest.raises(PermissionDenied):
        await world.passwords.change_password(caller, "123456", NEW)


@pytest.mark.parametrize("password", ["1234567", "x" * 257])
async def test_the_new_password_has_eight_to_256_characters(world: HttpWorld, owner: SessionCaller, password: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        await world.passwords.change_password(owner, "123456", password)
    assert caught.value.details[0].field == "newPassword"
