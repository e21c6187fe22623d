"""Accounts, users, projects, sessions and keys."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

import pytest

from domain.accounts.model import Invitation, Membership, MembershipWithUser, Project
from domain.grants.model import GrantSubject
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.idempotency import COMMITTED, StoredResponse
from domain.kernel.ids import SessionId
from domain.keys.model import KeyUse
from domain.oidc.ports import ExternalIdentity
from domain.sign_in.model import LoginFailures, PasswordChangeCode, RefreshToken, UserSession
from support.storage import NOW, StoredAccount, a_delivery, a_device, a_grant, a_key, a_user, a_webhook, an_account, new_id


async def test_an_email_belongs_to_one_user(world: StoredAccount) -> None:
    other = a_user()
    with pytest.raises(Conflict) as caught:
        async with world.uow.write() as tx:
            await tx.users.add(a_user(world.user.email))
    assert caught.value.code == "EMAIL_TAKEN"
    async with world.uow.write() as tx:
        await tx.users.add(other)
    with pytest.raises(Conflict):
        async with world.uow.write() as tx:
            await tx.users.save(replace(other, email=world.user.email))
    async with world.uow.read() as tx:
        assert await tx.users.find_by_email(world.user.email) == world.user
        assert await tx.users.find_by_email("nobody@example.org") is None


async def test_of_several_who_add_the_first_account_at_once_one_does(storage: Any) -> None:
    async def add_first() -> bool:
        async with storage.write() as tx:
            await tx.accounts.lock_creation()
            if await tx.accounts.has_any():
                return False
            await tx.accounts.add(an_account())
            return True

    assert sorted(await asyncio.gather(*(add_first() for _ in range(4)))) == [False, False, False, True]


async def test_deleting_a_user_deletes_memberships_and_codes(world: StoredAccount) -> None:
    changed = world.user.with_password("other", NOW + 5)
    code = PasswordChangeCode(world.user.user_id, b"c", NOW, NOW + 9, 0, False)
    async with world.uow.write() as tx:
        await tx.users.save(changed)
        await tx.one_time_codes.upsert(code)
        await tx.one_time_codes.upsert(replace(code, tries=2, used=True))
        assert await tx.users.get(world.user.user_id) == changed
        assert await tx.one_time_codes.get_for_update(world.user.user_id) == replace(code, tries=2, used=True)
        await tx.users.delete(world.user.user_id)
        assert await tx.users.get(world.user.user_id) is None
        assert await tx.one_time_codes.get_for_update(world.user.user_id) is None
        assert await tx.memberships.get(world.membership.membership_id) is None


async def test_members_are_listed_oldest_first_with_their_user(world: StoredAccount) -> None:
    user = a_user()
    added = Membership(new_id("mbr"), world.account.account_id, user.user_id, Role.VIEWER, NOW - 99)
    async with world.uow.write() as tx:
        await tx.users.add(user)
        await tx.memberships.add(added)
        members = await tx.memberships.list_members(world.account.account_id)
        assert list(members) == [MembershipWithUser(world.membership, world.user), MembershipWithUser(added, user)]
        assert list(await tx.memberships.list_by_user(user.user_id)) == [added]
        assert await tx.memberships.count_owners(world.account.account_id) == 1
        await tx.memberships.save(replace(added, role=Role.OWNER))
        assert await tx.memberships.count_owners(world.account.account_id) == 2
    with pytest.raises(Conflict):
        async with world.uow.write() as tx:
            await tx.memberships.add(replace(added, membership_id=new_id("mbr")))


async def test_deleting_a_membership_deletes_its_grants_and_tokens(world: StoredAccount) -> None:
    membership = world.membership
    grant = a_grant(world, subject=GrantSubject(membership_id=membership.membership_id))
    async with world.uow.write() as tx:
        await tx.grants.add(grant)
        await tx.refresh_tokens.add(_token(world, b"t"))
        await tx.memberships.delete(membership.membership_id)
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) is None
        assert await tx.refresh_tokens.get(b"t") is None
        assert await tx.users.get(world.user.user_id) == world.user


async def test_an_invitation_is_found_by_its_token_and_used_once(world: StoredAccount) -> None:
    invited = Invitation(
        invitation_id=new_id("inv"),
        account_id=world.account.account_id,
        email="grace@example.org",
        name="Grace",
        role=Role.MEMBER,
        invited_by=world.membership.membership_id,
        token_hash=b"t",
        created_ms=NOW,
        expires_ms=NOW + 9,
        mailed=False,
    )
    later = replace(invited, invitation_id=new_id("inv"), email="joan@example.org", token_hash=b"u", expires_ms=NOW + 99)
    async with world.uow.write() as tx:
        await tx.invitations.add(invited)
        await tx.invitations.add(later)
        assert await tx.invitations.find_by_token(b"t") == invited
        assert await tx.invitations.find_by_email(invited.account_id, invited.email) == invited
        assert await tx.invitations.find_by_email(new_id("acc"), invited.email) is None
        assert await tx.invitations.get_for_update(new_id("acc"), invited.invitation_id) is None
        again = replace(invited, token_hash=b"v", mailed=True, role=Role.VIEWER)
        await tx.invitations.save(again)
        assert await tx.invitations.find_by_token(b"t") is None
        assert list(await tx.invitations.list_by_account(invited.account_id)) == [again, later]
        assert await tx.invitations.delete_older_than(NOW + 10, 5) == 1
        await tx.invitations.delete(later.invitation_id)
        assert not await tx.invitations.list_by_account(invited.account_id)
        await tx.invitations.add(invited)
    with pytest.raises(Conflict) as caught:
        async with world.uow.write() as tx:
            await tx.invitations.add(replace(invited, invitation_id=new_id("inv"), token_hash=b"w"))
    assert caught.value.code == "INVITATION_EXISTS"


async def test_a_user_has_one_identity_of_a_provider(world: StoredAccount) -> None:
    identity = ExternalIdentity("https://sso.example.org", "sub-1", world.user.user_id, NOW, NOW)
    async with world.uow.write() as tx:
        await tx.external_identities.upsert(identity)
        await tx.external_identities.upsert(replace(identity, last_used_ms=NOW + 5))
        assert await tx.external_identities.get(identity.issuer, "sub-1") == replace(identity, last_used_ms=NOW + 5)
        assert await tx.external_identities.get("https://other.example.org", "sub-1") is None
        assert await tx.external_identities.find_by_user(world.user.user_id, identity.issuer) is not None
    with pytest.raises(Conflict) as caught:
        async with world.uow.write() as tx:
            await tx.external_identities.upsert(replace(identity, subject="sub-2"))
    assert caught.value.code == "IDENTITY_TAKEN"
    async with world.uow.write() as tx:
        await tx.users.delete(world.user.user_id)
        assert await tx.external_identities.get(identity.issuer, "sub-1") is None


async def test_a_state_of_a_sign_in_is_used_once(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert await tx.external_identities.mark_state_used(b"s", NOW)
        assert not await tx.external_identities.mark_state_used(b"s", NOW)
        assert await tx.external_identities.delete_states_older_than(NOW, 5) == 0
        assert await tx.external_identities.delete_states_older_than(NOW + 1, 5) == 1
        assert await tx.external_identities.mark_state_used(b"s", NOW)


async def test_projects_are_listed_with_their_device_count(world: StoredAccount) -> None:
    project = Project(new_id("prj"), world.account.account_id, "Field", False, NOW)
    async with world.uow.write() as tx:
        await tx.projects.add(project)
        assert list(await tx.projects.list_with_device_counts(world.account.account_id)) == [(world.project, 1), (project, 0)]
        assert await tx.projects.get_default(world.account.account_id) == world.project
        await tx.projects.save(replace(project, name="Meadow"))
        assert (await tx.projects.get(world.account.account_id, project.project_id)).name == "Meadow"
        assert await tx.projects.get(new_id("acc"), project.project_id) is None
        with pytest.raises(NotFound):
            await tx.projects.get_default(new_id("acc"))


async def test_a_project_with_devices_cannot_be_deleted(world: StoredAccount) -> None:
    project = Project(new_id("prj"), world.account.account_id, "Field", False, NOW)
    async with world.uow.write() as tx:
        await tx.projects.add(project)
        await tx.devices.add(a_device(world.account.account_id, project.project_id))
    with pytest.raises(Conflict) as caught:
        async with world.uow.write() as tx:
            await tx.projects.delete(project.project_id)
    assert caught.value.code == "PROJECT_NOT_EMPTY"


async def test_deleting_an_empty_project_deletes_its_grants(world: StoredAccount) -> None:
    project = Project(new_id("prj"), world.account.account_id, "Field", False, NOW)
    grant = a_grant(world, device_id=None, project_id=project.project_id)
    async with world.uow.write() as tx:
        await tx.projects.add(project)
        await tx.grants.add(grant)
        await tx.projects.delete(project.project_id)
        assert await tx.projects.get(world.account.account_id, project.project_id) is None
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) is None


def _token(world: StoredAccount, token_hash: bytes, family: str = "fam", expires_ms: int = NOW + 9) -> RefreshToken:
    return RefreshToken(token_hash, family, world.user.user_id, world.membership.membership_id, NOW, expires_ms)


async def test_a_revoked_token_cannot_be_spent(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        for name in (b"a", b"b", b"c"):
            await tx.refresh_tokens.add(_token(world, name, family=name.decode()))
        await tx.refresh_tokens.revoke_family("a", NOW + 1)
        assert not await tx.refresh_tokens.mark_spent(b"a", NOW + 2)
        assert await tx.refresh_tokens.mark_spent(b"b", NOW + 2)
        assert not await tx.refresh_tokens.mark_spent(b"b", NOW + 3)
        assert not await tx.refresh_tokens.mark_spent(b"unknown", NOW)
        await tx.refresh_tokens.revoke_by_user(world.user.user_id, NOW + 4)
        tokens = [await tx.refresh_tokens.get(name) for name in (b"a", b"b", b"c")]
        assert [token.revoked_ms for token in tokens] == [NOW + 1, NOW + 4, NOW + 4]
        assert tokens[1].spent_ms == NOW + 2


def _session(world: StoredAccount, name: str, **changes: Any) -> UserSession:
    fields: dict[str, Any] = {"created_ms": NOW, "last_used_ms": NOW, "expires_ms": NOW + 9, "address": "", "user_agent": "x"}
    return UserSession(SessionId(name), world.user.user_id, world.membership.membership_id, **(fields | changes))


async def test_open_sessions_are_listed_by_last_use_and_end_alone_or_all_but_one(world: StoredAccount) -> None:
    user_id = world.user.user_id
    async with world.uow.write() as tx:
        for name in "abcd":
            await tx.user_sessions.add(_session(world, name, last_used_ms=NOW - ord(name)))
        await tx.user_sessions.record_use(SessionId("b"), NOW + 1, NOW + 10, "192.0.2.1", "y")
        assert [one.session_id for one in await tx.user_sessions.list_open(user_id, NOW)] == ["b", "a", "c", "d"]
        assert [one.session_id for one in await tx.user_sessions.list_open(user_id, NOW + 9)] == ["b"]
        await tx.user_sessions.sign_out(SessionId("a"), NOW + 2)
        await tx.user_sessions.revoke(SessionId("c"), NOW + 2)
        assert [one.session_id for one in await tx.user_sessions.list_open(user_id, NOW)] == ["b", "d"]
        await tx.user_sessions.revoke_by_user(user_id, NOW + 3, keep=SessionId("b"))
        kept = [await tx.user_sessions.get(SessionId(name)) for name in "abcd"]
        assert [(one.signed_out_ms, one.revoked_ms) for one in kept] == [
            (NOW + 2, NOW + 3),
            (None, None),
            (None, NOW + 2),
            (None, NOW + 3),
        ]
        assert (kept[1].address, kept[1].user_agent, kept[1].last_used_ms) == ("192.0.2.1", "y", NOW + 1)


async def test_a_session_is_found_with_its_membership_and_ends_with_it(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.user_sessions.add(_session(world, "a"))
        assert await tx.user_sessions.find_with_membership(SessionId("a")) == (_session(world, "a"), world.membership)
        await tx.memberships.delete(world.membership.membership_id)
        assert await tx.user_sessions.find_with_membership(SessionId("a")) is None
        assert await tx.user_sessions.get(SessionId("a")) is None


async def test_expired_rows_are_deleted_in_batches(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        for number in range(5):
            await tx.refresh_tokens.add(_token(world, bytes([number]), expires_ms=NOW + number))
            await tx.user_sessions.add(_session(world, str(number), expires_ms=NOW + number))
            await tx.login_failures.upsert(LoginFailures(f"email:{number}", 1, NOW, NOW + number))
            await tx.stored_responses.claim(StoredResponse("user:1", str(number), b"h", None, b"", NOW + number))
        for forget in (
            tx.refresh_tokens.delete_older_than,
            tx.user_sessions.delete_older_than,
            tx.login_failures.delete_older_than,
            tx.stored_responses.delete_older_than,
        ):
            assert [await forget(NOW + 3, 2), await forget(NOW + 3, 2), await forget(NOW + 3, 2)] == [2, 1, 0]
        assert await tx.refresh_tokens.get(bytes([3])) is not None
        assert await tx.login_failures.get_for_update("email:3") is not None
        assert await tx.stored_responses.get("user:1", "3") is not None


async def test_known_login_locations_outlive_failure_counts(world: StoredAccount) -> None:
    place, count = "known:ada@example.org|203.0.113.1", "pair:ada@example.org|203.0.113.1"
    async with world.uow.write() as tx:
        for subject in (place, count):
            await tx.login_failures.upsert(LoginFailures(subject, 1, NOW, NOW))
        assert await tx.login_failures.delete_known_logins_older_than(NOW, 9) == 0
        assert await tx.login_failures.delete_older_than(NOW + 1, 9) == 1
        assert await tx.login_failures.get_for_update(count) is None
        assert await tx.login_failures.get_for_update(place) is not None
        assert await tx.login_failures.delete_known_logins_older_than(NOW + 1, 9) == 1
        assert await tx.login_failures.get_for_update(place) is None


async def test_failed_logins_are_replaced_and_cleared(world: StoredAccount) -> None:
    failures = LoginFailures("address:::1", 3, NOW, NOW)
    async with world.uow.write() as tx:
        await tx.login_failures.upsert(replace(failures, count=1))
        await tx.login_failures.upsert(failures)
        assert await tx.login_failures.get_for_update("address:::1") == failures
        await tx.login_failures.delete("address:::1")
        assert await tx.login_failures.get_for_update("address:::1") is None


async def test_an_idempotency_key_is_claimed_once_and_its_response_kept(world: StoredAccount) -> None:
    answer = StoredResponse("user:1", "k", b"hash", None, b"", NOW)
    async with world.uow.write() as tx:
        assert await tx.stored_responses.claim(answer)
        assert not await tx.stored_responses.claim(answer)
        assert await tx.stored_responses.claim(replace(answer, caller="user:2"))
        await tx.stored_responses.release(replace(answer, caller="user:2"))
        assert await tx.stored_responses.get("user:2", "k") is None
        done = replace(answer, status=201, body=b"{}")
        await tx.stored_responses.complete(done)
        await tx.stored_responses.release(done)
        assert await tx.stored_responses.get("user:1", "k") == done
        await tx.stored_responses.discard(replace(done, at_ms=NOW + 1))
        assert await tx.stored_responses.get("user:1", "k") == done
        await tx.stored_responses.discard(done)
        assert await tx.stored_responses.get("user:1", "k") is None


@pytest.mark.parametrize("fails", [False, True])
async def test_a_transaction_marks_the_claim_of_its_caller_only_if_it_commits(world: StoredAccount, fails: bool) -> None:
    claim = StoredResponse("user:1", "k", b"hash", None, b"", NOW)
    caller = replace(world.membership.to_session(""), claim=claim)
    async with world.uow.write(caller=None) as tx:
        await tx.stored_responses.claim(claim)
    with contextlib.suppress(Conflict):
        async with world.uow.write(caller, Role.OWNER) as tx:
            await tx.login_failures.delete("nobody")
            if fails:
                raise Conflict("rolled back")
    async with world.uow.read() as tx:
        assert (await tx.stored_responses.get("user:1", "k")).status == (None if fails else COMMITTED)


async def test_an_abandoned_claim_is_deleted_by_one_caller_and_a_newer_one_is_not(world: StoredAccount) -> None:
    old = StoredResponse("user:1", "k", b"hash", 201, b"{}", NOW)
    async with world.uow.write() as tx:
        await tx.stored_responses.claim(old)
        assert not await tx.stored_responses.delete_if_unchanged(replace(old, at_ms=NOW - 1))
        assert await tx.stored_responses.delete_if_unchanged(old)
        assert not await tx.stored_responses.delete_if_unchanged(old)
        newer = replace(old, status=None, at_ms=NOW + 1)
        assert await tx.stored_responses.claim(newer)
        assert not await tx.stored_responses.delete_if_unchanged(old)
        await tx.stored_responses.mark_committed(newer)
        assert not await tx.stored_responses.delete_if_unchanged(newer), "it has been committed meanwhile"


async def test_a_transaction_whose_claim_was_taken_over_does_not_commit(world: StoredAccount) -> None:
    lost = StoredResponse("user:1", "k", b"hash", None, b"first process", NOW)
    taken = replace(lost, body=b"second process", at_ms=NOW + 1)
    caller = replace(world.membership.to_session(""), claim=lost)
    async with world.uow.write() as tx:
        await tx.stored_responses.claim(taken)
    with pytest.raises(Conflict) as refused:
        async with world.uow.write(caller, Role.OWNER) as tx:
            await tx.login_failures.delete("nobody")
    assert refused.value.code == "IDEMPOTENCY_IN_PROGRESS"
    async with world.uow.write() as tx:
        await tx.stored_responses.complete(replace(lost, status=200, body=b"{}"))
        await tx.stored_responses.release(lost)
        assert await tx.stored_responses.get("user:1", "k") == taken
        assert not await tx.stored_responses.is_process_alive(b"a process of yesterday")


async def test_a_key_is_found_by_its_hash_and_its_account(world: StoredAccount) -> None:
    second = a_key(world.account.account_id, enabled=False)
    async with world.uow.write() as tx:
        await tx.api_keys.add(second)
        assert await tx.api_keys.find_by_hash(world.key.secret_hash) == world.key
        assert await tx.api_keys.find_by_hash(b"none") is None
        assert await tx.api_keys.get(new_id("acc"), world.key.key_id) is None
        assert list(await tx.api_keys.list_by_account(world.account.account_id)) == [world.key, second]
        await tx.api_keys.save(replace(second, name="renamed", enabled=True))
        assert (await tx.api_keys.get(world.account.account_id, second.key_id)).name == "renamed"


async def test_last_use_of_a_key_never_goes_back(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.api_keys.update_last_used({world.key.key_id: KeyUse(NOW + 5, "sk_live_ab"), new_id("key"): KeyUse(NOW, "x")})
        await tx.api_keys.update_last_used({world.key.key_id: KeyUse(NOW + 1, "sk_live_cd")})
        await tx.api_keys.update_last_used({})
        stored = await tx.api_keys.get(world.account.account_id, world.key.key_id)
        assert (stored.last_used_ms, stored.last_used_prefix) == (NOW + 5, "sk_live_ab")


async def test_a_key_is_found_by_its_previous_secret_too_and_keeps_its_limits(world: StoredAccount) -> None:
    old = world.key
    rotated = replace(
        old,
        secret_hash=b"new",
        prefix="sk_live_new",
        previous_hash=old.secret_hash,
        previous_prefix=old.prefix,
        previous_expires_ms=NOW + 1,
        expires_ms=NOW + 2,
        allowed_networks=("10.0.0.0/8", "2001:db8::/32"),
    )
    async with world.uow.write() as tx:
        await tx.api_keys.save(rotated)
    async with world.uow.read() as tx:
        assert await tx.api_keys.find_by_hash(b"new") == rotated
        assert await tx.api_keys.find_by_hash(old.secret_hash) is None
        assert await tx.api_keys.find_by_previous_hash(old.secret_hash) == rotated
        assert await tx.api_keys.find_by_previous_hash(b"new") is None
    async with world.uow.write() as tx:
        await tx.api_keys.save(replace(rotated, secret_hash=b"newest", previous_hash=b"new"))
        assert await tx.api_keys.find_by_previous_hash(old.secret_hash) is None


async def test_deleting_a_key_deletes_grants_and_webhooks_and_leaves_deliveries(world: StoredAccount) -> None:
    webhook, grant = a_webhook(world), a_grant(world)
    async with world.uow.write() as tx:
        await tx.grants.add(grant)
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        await tx.api_keys.delete(world.key.key_id)
        assert await tx.api_keys.get(world.account.account_id, world.key.key_id) is None
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) is None
        assert await tx.webhooks.find(webhook.webhook_id) is None
        assert await tx.deliveries.find_orphaned_webhook_id() == webhook.webhook_id
