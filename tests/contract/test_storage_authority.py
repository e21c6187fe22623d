"""A writing transaction reads its caller again: what the caller may no longer do is not stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.errors import Conflict, DomainError
from domain.kernel.ids import SessionId
from domain.sign_in.model import UserSession
from support.storage import StoredAccount, a_grant, a_user

SESSION = SessionId("ses_1")
Change = Callable[[Any, StoredAccount], Awaitable[None]]


async def nothing(tx: Any, world: StoredAccount) -> None: ...


async def remove(tx: Any, world: StoredAccount) -> None:
    await tx.memberships.delete(world.membership.membership_id)


async def demote(tx: Any, world: StoredAccount) -> None:
    await tx.memberships.save(replace(world.membership, role=Role.ADMIN))


async def sign_out(tx: Any, world: StoredAccount) -> None:
    await tx.user_sessions.revoke(SESSION, 1)


async def disable(tx: Any, world: StoredAccount) -> None:
    await tx.api_keys.save(replace(world.key, enabled=False))


async def rotate(tx: Any, world: StoredAccount) -> None:
    await tx.api_keys.save(replace(world.key, secret_hash=b"new"))


async def rotate_with_overlap(tx: Any, world: StoredAccount) -> None:
    await tx.api_keys.save(replace(world.key, secret_hash=b"new", previous_hash=world.key.secret_hash))


async def keep_to_a_network(tx: Any, world: StoredAccount) -> None:
    await tx.api_keys.save(replace(world.key, allowed_networks=("10.0.0.0/8",)))


async def delete(tx: Any, world: StoredAccount) -> None:
    await tx.api_keys.delete(world.key.key_id)


def owner(world: StoredAccount) -> SessionCaller:
    return world.membership.to_session("")


def session(world: StoredAccount) -> SessionCaller:
    return replace(owner(world), session_id=SESSION)


def key(world: StoredAccount) -> ApiKeyCaller:
    return ApiKeyCaller(world.account.account_id, world.key.key_id)


def shown_key(world: StoredAccount) -> ApiKeyCaller:
    return replace(key(world), secret_hash=world.key.secret_hash)


async def write(world: StoredAccount, caller: Any, needs: Role, **more: Any) -> str:
    """Stores a user on behalf of `caller`; `stored`, or the code of the error. Nothing is stored with an error."""
    user = a_user()
    try:
        async with world.uow.write(caller, needs, **more) as tx:
            await tx.users.add(user)
        code = "stored"
    except DomainError as error:
        code = error.code
    async with world.uow.read() as tx:
        assert (await tx.users.get(user.user_id) is not None) == (code == "stored")
    return code


@pytest.mark.parametrize("locks_account", [False, True])
@pytest.mark.parametrize(
    ("change", "caller", "needs", "expected"),
    [
        (nothing, owner, Role.OWNER, "stored"),
        (remove, owner, Role.VIEWER, "UNAUTHENTICATED"),
        (demote, owner, Role.OWNER, "ROLE_REQUIRED"),
        (demote, owner, Role.VIEWER, "ROLE_REQUIRED"),  # what the service decided by the higher role must not be stored
        (nothing, session, Role.OWNER, "stored"),
        (sign_out, session, Role.VIEWER, "UNAUTHENTICATED"),
        (demote, session, Role.OWNER, "ROLE_REQUIRED"),
        (remove, session, Role.VIEWER, "UNAUTHENTICATED"),
        (nothing, key, Role.OWNER, "stored"),  # a key has grants instead of a role
        (disable, key, Role.VIEWER, "UNAUTHENTICATED"),
        (delete, key, Role.VIEWER, "UNAUTHENTICATED"),
        (nothing, shown_key, Role.OWNER, "stored"),
        (rotate, shown_key, Role.VIEWER, "SECRET_REPLACED"),
        (rotate, key, Role.VIEWER, "stored"),  # a caller that the service puts together has shown no secret
        (rotate_with_overlap, shown_key, Role.VIEWER, "stored"),
        (keep_to_a_network, shown_key, Role.VIEWER, "UNAUTHENTICATED"),
    ],
)
async def test_a_caller_that_has_lost_its_authority_changes_nothing(
    world: StoredAccount, change: Change, caller: Callable[[StoredAccount], Any], needs: Role, expected: str, locks_account: bool
) -> None:
    member = world.membership
    opened = UserSession(SESSION, member.user_id, member.membership_id, 0, 0, 9, "", "")
    async with world.uow.write() as tx:
        await tx.user_sessions.add(opened)
        await change(tx, world)
    assert await write(world, caller(world), needs, locks_account=locks_account) == expected


async def test_a_role_that_is_too_low_begins_no_transaction(world: StoredAccount) -> None:
    admin = replace(owner(world), role=Role.ADMIN)
    assert await write(world, admin, Role.OWNER) == "ROLE_REQUIRED"
    assert await write(world, admin, Role.ADMIN) == "stored"  # by now the member is an Owner: more is no obstacle


async def test_who_has_lost_its_authority_is_told_nothing_else(world: StoredAccount) -> None:
    caller = owner(world)
    async with world.uow.write() as tx:
        await remove(tx, world)
    with pytest.raises(DomainError) as caught:
        async with world.uow.write(caller, Role.MEMBER) as tx:
            await tx.users.get(world.user.user_id)
            raise Conflict("something about the account")
    assert caught.value.code == "UNAUTHENTICATED"


async def test_an_owner_may_end_its_own_membership(world: StoredAccount) -> None:
    async with world.uow.write(owner(world), Role.OWNER, locks_account=True) as tx:
        assert await tx.memberships.get_for_update(world.membership.membership_id) == world.membership
        await tx.memberships.delete(world.membership.membership_id)
    async with world.uow.read() as tx:
        assert await tx.memberships.get(world.membership.membership_id) is None


async def test_a_grant_is_held_as_long_as_it_is_the_one_that_was_read(world: StoredAccount) -> None:
    grant = a_grant(world)
    async with world.uow.write() as tx:
        await tx.grants.add(grant)
    async with world.uow.write(key(world), Role.VIEWER) as tx:
        [found] = await tx.grants.list_by_key(world.account.account_id, world.key.key_id)
        assert await tx.grants.lock_for_share(found)
        assert await tx.api_keys.get_for_share(world.account.account_id, world.key.key_id) == world.key
        assert await tx.memberships.get_for_share(world.membership.membership_id) == world.membership
