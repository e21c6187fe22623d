"""Signing in, and being slowed down."""

from __future__ import annotations

import asyncio

import pytest

from domain.kernel.caller import SessionCaller
from domain.kernel.errors import RateLimited, Unauthenticated
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD, HttpWorld

ADA = "ada@example.com"
HOME = "192.0.2.1"
ATTACKER = "203.0.113.9"


async def attempt(world: HttpWorld, password: str = PASSWORD, address: str = HOME, email: str = ADA) -> str:
    """`in`, or the code of the refusal."""
    try:
        await world.logins.login(email, password, client=ClientInfo(address))
    except (Unauthenticated, RateLimited) as error:
        return error.code
    return "in"


async def fail_from(world: HttpWorld, address: str, times: int) -> None:
    """So many counted failures, patiently."""
    for _ in range(times):
        while await attempt(world, "guess", address) == "LOGIN_THROTTLED":
            world.clock.forward(seconds=1)


async def test_the_email_is_accepted_in_any_case_and_with_surrounding_spaces(world: HttpWorld, owner: SessionCaller) -> None:
    assert await attempt(world, email=" Ada@Example.COM ") == "in"


async def test_an_unknown_email_takes_the_same_hashing_work(world: HttpWorld, owner: SessionCaller) -> None:
    before = world.hasher.verified
    await attempt(world, "guess")
    known = world.hasher.verified - before
    await attempt(world, "guess", email="nobody@example.com")
    assert world.hasher.verified - before - known == known == 1


async def test_outdated_hash_parameters_are_upgraded_at_login(world: HttpWorld, owner: SessionCaller) -> None:
    world.hasher.version = 2
    assert await attempt(world) == "in"
    async with world.uow.read() as tx:
        user = await tx.users.get(owner.user_id)
    assert user.password_hash.startswith("plain:2:")
    assert user.password_changed_ms == user.created_ms


async def test_the_login_delay_doubles_up_to_a_minute(world: HttpWorld, owner: SessionCaller) -> None:
    await fail_from(world, HOME, 5)
    pauses = []
    for _ in range(8):
        with pytest.raises(RateLimited) as caught:
            await world.logins.login(ADA, "guess", client=ClientInfo(HOME))
        pauses.append(caught.value.retry_after)
        world.clock.forward(seconds=pauses[-1])
        assert await attempt(world, "guess") == "INVALID_CREDENTIALS"
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_throttled_login_does_not_lengthen_the_delay(world: HttpWorld, owner: SessionCaller) -> None:
    await fail_from(world, HOME, 5)
    for _ in range(50):
        assert await attempt(world, "guess") == "LOGIN_THROTTLED"
    world.clock.forward(seconds=1)
    assert await attempt(world) == "in"


async def test_a_successful_login_resets_the_counter(world: HttpWorld, owner: SessionCaller) -> None:
    await fail_from(world, HOME, 4)
    assert await attempt(world) == "in"
    await fail_from(world, HOME, 4)
    assert await attempt(world) == "in"


async def test_guesses_from_elsewhere_do_not_lock_out_the_owner_of_an_email(world: HttpWorld, owner: SessionCaller) -> None:
    assert await attempt(world) == "in"
    for network in range(40):
        await fail_from(world, f"203.0.{network}.9", 5)
    assert await attempt(world) == "in"


async def test_guesses_from_many_addresses_are_slowed_down(world: HttpWorld, owner: SessionCaller) -> None:
    for network in range(5):
        await fail_from(world, f"203.0.{network}.9", 5)
    with pytest.raises(RateLimited) as caught:
        await world.logins.login(ADA, "guess", client=ClientInfo("198.51.100.1"))
    assert caught.value.retry_after <= 10


async def test_an_address_that_tries_many_emails_is_slowed_down(world: HttpWorld, owner: SessionCaller) -> None:
    codes = [await attempt(world, "guess", ATTACKER, f"user{number}@example.com") for number in range(40)]
    assert codes[:30] == ["INVALID_CREDENTIALS"] * 30
    assert set(codes[30:]) == {"LOGIN_THROTTLED"}
    assert await attempt(world) == "in"


async def test_concurrent_guesses_gain_nothing_over_sequential_ones(world: HttpWorld, owner: SessionCaller) -> None:
    passwords = ["guess"] * 30 + [PASSWORD]
    codes = await asyncio.gather(*(attempt(world, password, ATTACKER) for password in passwords))
    assert codes.count("INVALID_CREDENTIALS") == 5
    assert codes[-1] == "LOGIN_THROTTLED"


async def test_logins_are_logged_with_their_address_and_without_a_password(world: HttpWorld, owner: SessionCaller) -> None:
    await attempt(world, "my other password", ATTACKER)
    await attempt(world)
    reported = {event.kind: event for event in world.uow.emitted_events if event.kind.startswith("login")}
    assert reported["login_failed"].address == ATTACKER
    assert reported["login"].address == HOME
    assert "my other password" not in repr(world.uow.emitted_events)


async def test_a_user_without_a_membership_cannot_sign_in(world: HttpWorld, owner: SessionCaller) -> None:
    async with world.uow.write() as tx:
        await tx.memberships.delete(owner.membership_id)
    assert await attempt(world) == "INVALID_CREDENTIALS"
