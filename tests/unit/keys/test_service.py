"""Making, seeing and changing API keys."""

from __future__ import annotations

import pytest

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import NotFound, PermissionDenied
from domain.keys.model import display_prefix
from support.http import HttpWorld


async def test_a_key_is_shown_once_and_only_its_hash_is_kept(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, " CI ")
    [kept] = await world.keys.list(owner)
    assert (kept.name, kept.prefix) == ("CI", display_prefix(made.secret))
    assert made.secret not in repr(kept)
    assert kept.secret_hash == world.digest.sha256(made.secret)
    assert made.secret not in repr(world.uow.emitted_events)


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_members_see_keys_but_cannot_change_them(world: HttpWorld, owner: SessionCaller, role: Role) -> None:
    made = await world.keys.create(owner, "CI")
    caller = await world.join(owner, role, "grace@example.com")
    assert len(await world.keys.list(caller)) == 1
    for action in (
        world.keys.create(caller, "x"),
        world.keys.update(caller, made.key.key_id, name="x"),
        world.keys.delete(caller, made.key.key_id),
    ):
        with pytest.raises(PermissionDenied):
            await action


async def test_keys_of_another_account_are_not_found(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    other = (await world.account("eve@example.com", "Other")).owner.membership
    eve = SessionCaller(other.account_id, other.user_id, other.membership_id, Role.OWNER)
    assert list(await world.keys.list(eve)) == []
    for action in (world.keys.update(eve, made.key.key_id, name="x"), world.keys.delete(eve, made.key.key_id)):
        with pytest.raises(NotFound):
            await action


async def test_each_change_of_a_key_is_logged(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    await world.keys.update(owner, made.key.key_id, enabled=False)
    await world.keys.update(owner, made.key.key_id, enabled=False)
    await world.keys.delete(owner, made.key.key_id)
    reported = [event.kind for event in world.uow.emitted_events if event.kind.startswith("key_")]
    assert reported == ["key_created", "key_changed", "key_deleted"]
