"""Who may change whom."""

from __future__ import annotations

import asyncio

import pytest

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import Conflict, DomainError, ValidationFailed
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD, HttpWorld


async def outcome(action: object) -> str:
    try:
        await action  # type: ignore[misc]
    except DomainError as error:
        return error.code
    return "ok"


ROLES = list(Role)


@pytest.mark.parametrize("caller_role", ROLES)
@pytest.mark.parametrize("target_role", ROLES)
async def test_admins_manage_members_and_only_owners_manage_owners(
    world: HttpWorld, owner: SessionCaller, caller_role: Role, target_role: Role
) -> None:
    caller = await world.join(owner, caller_role, "grace@example.com")
    target = await world.join(owner, target_role, "joan@example.com")
    allowed = caller_role is Role.OWNER or (caller_role is Role.ADMIN and target_role is not Role.OWNER)
    expected = "ok" if allowed else "ROLE_REQUIRED"
    added = world.team.add_member(caller, email="mary@example.com", name="Mary", role=target_role, password=PASSWORD)
    assert await outcome(added) == expected
    assert await outcome(world.team.update_member(caller, target.membership_id, name="Joan")) == expected
    assert await outcome(world.team.update_member(caller, target.membership_id, role=Role.VIEWER)) == expected
    if target_role is not Role.OWNER or allowed:
        removed = world.team.remove_member(caller, target.membership_id)
        assert await outcome(removed) == ("ok" if caller_role.is_at_least(Role.ADMIN) else "ROLE_REQUIRED")


async def test_an_admin_cannot_assign_the_role_owner_to_anybody(world: HttpWorld, owner: SessionCaller) -> None:
    admin = await world.join(owner, Role.ADMIN, "grace@example.com")
    assert await outcome(world.team.update_member(admin, admin.membership_id, role=Role.OWNER)) == "ROLE_REQUIRED"


async def test_the_last_owner_cannot_be_removed(world: HttpWorld, owner: SessionCaller) -> None:
    assert await outcome(world.team.remove_member(owner, owner.membership_id)) == "LAST_OWNER"
    assert await outcome(world.team.update_member(owner, owner.membership_id, role=Role.ADMIN)) == "LAST_OWNER"
    second = await world.join(owner, Role.OWNER, "grace@example.com")
    assert await outcome(world.team.update_member(owner, owner.membership_id, role=Role.ADMIN)) == "ok"
    assert await outcome(world.team.remove_member(second, second.membership_id)) == "LAST_OWNER"


async def test_two_owners_who_remove_each_other_at_once_leave_one(world: HttpWorld, owner: SessionCaller) -> None:
    second = await world.join(owner, Role.OWNER, "grace@example.com")
    outcomes = await asyncio.gather(
        outcome(world.team.remove_member(owner, second.membership_id)),
        outcome(world.team.remove_member(second, owner.membership_id)),
    )
    assert sorted(outcomes) == ["UNAUTHENTICATED", "ok"]  # the second is no member any more


async def test_a_removed_member_loses_access_at_once_and_can_be_added_again(world: HttpWorld, owner: SessionCaller) -> None:
    await world.join(owner, Role.MEMBER, "grace@example.com")
    signed_in = await world.logins.login("grace@example.com", PASSWORD, client=ClientInfo(""))
    membership_id = signed_in.member.membership.membership_id
    await world.callers.authenticate_token(signed_in.tokens.access_token, "")
    await world.team.remove_member(owner, membership_id)
    assert await outcome(world.callers.authenticate_token(signed_in.tokens.access_token, "")) == "UNAUTHENTICATED"
    assert await outcome(world.sessions.refresh(signed_in.tokens.refresh_token, client=ClientInfo(""))) == "UNAUTHENTICATED"
    await world.join(owner, Role.MEMBER, "grace@example.com")


async def test_a_demotion_applies_to_tokens_already_issued(world: HttpWorld, owner: SessionCaller) -> None:
    await world.join(owner, Role.ADMIN, "grace@example.com")
    signed_in = await world.logins.login("grace@example.com", PASSWORD, client=ClientInfo(""))
    await world.team.update_member(owner, signed_in.member.membership.membership_id, role=Role.VIEWER)
    session, _ = await world.callers.authenticate_token(signed_in.tokens.access_token, "")
    assert session.role is Role.VIEWER


async def test_members_of_another_account_are_not_found(world: HttpWorld, owner: SessionCaller) -> None:
    other = await world.account("eve@example.com", "Other")
    theirs = other.owner.membership.membership_id
    for action in (world.team.remove_member(owner, theirs), world.team.update_member(owner, theirs, name="x")):
        assert await outcome(action) == "NOT_FOUND"
    assert [member.user.email for member in await world.team.list_members(owner)] == ["ada@example.com"]


async def test_an_email_has_one_user(world: HttpWorld, owner: SessionCaller) -> None:
    with pytest.raises(Conflict) as caught:
        await world.team.add_member(owner, email="ADA@example.com", name="Ada", role=Role.MEMBER, password=PASSWORD)
    assert caught.value.code == "EMAIL_TAKEN"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", "no at sign"),
        ("email", "a@b c"),
        ("email", "a\n@b.de"),
        ("name", " "),
        ("name", "x" * 65),
        ("password", "short"),
    ],
)
async def test_an_invalid_field_is_named(world: HttpWorld, owner: SessionCaller, field: str, value: str) -> None:
    given = {"email": "grace@example.com", "name": "Grace", "password": PASSWORD, field: value}
    with pytest.raises(ValidationFailed) as caught:
        await world.team.add_member(owner, role=Role.MEMBER, **given)
    assert caught.value.details[0].field == field


async def test_each_change_of_the_team_is_logged(world: HttpWorld, owner: SessionCaller) -> None:
    member = await world.team.add_member(owner, email="grace@example.com", name="Grace", role=Role.MEMBER, password=PASSWORD)
    await world.team.update_member(owner, member.membership.membership_id, role=Role.ADMIN, name="Grace H")
    await world.team.remove_member(owner, member.membership.membership_id)
    reported = [event for event in world.uow.emitted_events if event.kind == "member_changed" and event.source == owner.label]
    assert [event.description for event in reported] == [
        "Grace was added as Member",
        "Grace is now Admin",
        "Grace is now called Grace H",
        "Grace H was removed",
    ]
    assert {event.address for event in reported} == {"192.0.2.1"}
