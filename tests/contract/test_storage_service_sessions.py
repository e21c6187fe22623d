"""Service sessions on every storage: found by their token, listed while they are open, and what ends with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.approvals.model import Approval, Requester
from domain.kernel.caller import Role
from domain.kernel.ids import SessionId, UserId
from domain.sign_in.model import ServiceSessionToken, UserSession
from support.storage import NOW, StoredAccount, an_approval, new_id

HOUR_MS = 3_600_000


async def add_session(world: StoredAccount, tx: Any, session_id: str, **changes: Any) -> ServiceSessionToken:
    made = ServiceSessionToken(
        session_id=SessionId(session_id),
        account_id=world.account.account_id,
        membership_id=world.membership.membership_id,
        name="pipeline",
        prefix="lbs_abcd",
        secret_hash=session_id.encode(),
        role=Role.ADMIN,
        operations=("devices:write", "groups:read"),
        created_ms=NOW,
        expires_ms=NOW + HOUR_MS,
    )
    made = replace(made, **changes)
    await add_user_session(world, tx, session_id, made.expires_ms)
    await tx.service_sessions.add(made)
    return made


async def add_user_session(world: StoredAccount, tx: Any, session_id: str, expires_ms: int = NOW + HOUR_MS) -> None:
    ids = (SessionId(session_id), world.user.user_id, world.membership.membership_id)
    await tx.user_sessions.add(UserSession(*ids, NOW, NOW, expires_ms, "192.0.2.1", "Service session pipeline"))


async def ids_of(tx: Any, world: StoredAccount, now_ms: int = NOW) -> list[str]:
    return [each.session_id for each in await tx.service_sessions.list_open(world.account.account_id, now_ms)]


async def test_it_is_found_by_the_hash_of_its_token_only(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        made = await add_session(world, tx, "a", secret_hash=b"hash")
    async with world.uow.read() as tx:
        assert await tx.service_sessions.find_by_hash(b"hash") == made
        assert await tx.service_sessions.find_by_hash(b"a") is None


async def test_open_ones_are_listed_oldest_first(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await add_session(world, tx, "new", created_ms=NOW + 1)
        await add_session(world, tx, "old")
        await add_session(world, tx, "short", expires_ms=NOW + 5)
        assert await ids_of(tx, world) == ["old", "short", "new"]
        assert await ids_of(tx, world, NOW + 5) == ["old", "new"]
        await tx.user_sessions.revoke(SessionId("old"), NOW)
        assert await ids_of(tx, world, NOW + 5) == ["new"]
        assert await tx.service_sessions.list_open(new_id("acc"), NOW) == []


@pytest.mark.parametrize("ending", ["expiry", "revoke", "revoke_by_user"])
async def test_an_open_one_is_found_until_it_ends(world: StoredAccount, ending: str) -> None:
    async with world.uow.write() as tx:
        made = await add_session(world, tx, "a")
        assert await tx.service_sessions.find_open_for_share(made.session_id, NOW) == made
        if ending == "revoke":
            await tx.user_sessions.revoke(made.session_id, NOW)
        elif ending == "revoke_by_user":
            await tx.user_sessions.revoke_by_user(world.user.user_id, NOW, keep=SessionId("other"))
    async with world.uow.write() as tx:
        later_ms = NOW + HOUR_MS if ending == "expiry" else NOW
        assert await tx.service_sessions.find_open_for_share(made.session_id, later_ms) is None
        assert await tx.service_sessions.find_open_for_share(SessionId("unknown"), NOW) is None


async def test_the_time_of_its_last_use_never_goes_back(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        first, second = await add_session(world, tx, "a"), await add_session(world, tx, "b")
        for used in ({"a": NOW + 9, "unknown": NOW}, {"a": NOW + 3}, {}):
            await tx.service_sessions.update_last_used(used)
        found = await tx.service_sessions.list_open(world.account.account_id, NOW)
        assert found == [replace(first, last_used_ms=NOW + 9), second]
        shown = await tx.user_sessions.list_open(world.user.user_id, NOW)
        assert [(each.session_id, each.last_used_ms) for each in shown] == [("a", NOW + 9), ("b", NOW)]


async def test_it_is_deleted_with_its_row_among_the_sessions_and_with_its_maker(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await add_session(world, tx, "short", expires_ms=NOW + 5)
        await add_session(world, tx, "long")
        assert await tx.user_sessions.delete_older_than(NOW + 6, 10) == 1
        assert await ids_of(tx, world) == ["long"]
        await tx.memberships.delete(world.membership.membership_id)
        assert await ids_of(tx, world) == []
        assert await tx.service_sessions.find_by_hash(b"long") is None


def a_request(world: StoredAccount, session_id: str | None, user_id: UserId | None = None) -> Approval:
    person = ("Ada", None, world.membership.membership_id, user_id or world.user.user_id)
    asked = Requester(*person, None if session_id is None else SessionId(session_id))
    return an_approval(world, requested_by=asked, created_ms=NOW, expires_ms=NOW + HOUR_MS)


async def overdue(world: StoredAccount, requests: list[Approval], now_ms: int) -> list[bool]:
    async with world.uow.read() as tx:
        due = {each.approval_id for each in await tx.approvals.list_expired(now_ms, 10)}
        assert await tx.approvals.get(world.account.account_id, requests[0].approval_id) is not None
    return [each.approval_id in due for each in requests]


async def test_what_it_asked_for_is_overdue_once_it_is_revoked(world: StoredAccount) -> None:
    requests = [a_request(world, "a"), a_request(world, "b"), a_request(world, None)]
    async with world.uow.write() as tx:
        for each in requests:
            await tx.approvals.add(each)
        assert await tx.approvals.get(world.account.account_id, requests[0].approval_id) == requests[0]
        await tx.user_sessions.revoke(SessionId("a"), NOW + 1)
    assert await overdue(world, requests, NOW) == [False, False, False]
    assert await overdue(world, requests, NOW + 1) == [True, False, False]


async def test_signing_out_everywhere_else_ends_the_requests_of_service_sessions_only(world: StoredAccount) -> None:
    requests = [a_request(world, "a"), a_request(world, "kept"), a_request(world, None), a_request(world, "c", new_id("usr"))]
    async with world.uow.write() as tx:
        for each in requests:
            await tx.approvals.add(each)
        await tx.user_sessions.revoke_by_user(world.user.user_id, NOW + 1, keep=SessionId("kept"))
    assert await overdue(world, requests, NOW + 1) == [True, False, False, False]


async def test_the_last_revocation_is_that_of_a_session_of_the_person(world: StoredAccount) -> None:
    user_id = world.user.user_id
    async with world.uow.write() as tx:
        await add_session(world, tx, "program")
        for name in ("left", "stolen", "lost"):
            await add_user_session(world, tx, name)
        await tx.user_sessions.sign_out(SessionId("left"), NOW + 1)
        await tx.user_sessions.revoke(SessionId("program"), NOW + 9)
        assert await tx.user_sessions.last_revoked_ms(user_id) is None
        await tx.user_sessions.revoke(SessionId("stolen"), NOW + 2)
        await tx.user_sessions.revoke(SessionId("lost"), NOW + 3)
        assert await tx.user_sessions.last_revoked_ms(user_id) == NOW + 3
        assert await tx.user_sessions.last_revoked_ms(new_id("usr")) is None
