"""Giving, changing and taking back grants, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.grants.model import AppliesVia, Scope
from domain.grants.service import GrantInput, NewGrantInput
from domain.kernel.caller import Role
from domain.kernel.clock import DAY_MS
from domain.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from domain.kernel.ids import DeviceId, GrantId, KeyId, MembershipId
from support.device_world import ACCOUNT
from support.manual_clock import START_MS
from support.schedule_world import ScheduleWorld


def draft(
    key_id: KeyId | None, *commands: str, membership_id: MembershipId | None = None, via: str = "device", **terms: Any
) -> NewGrantInput:
    return NewGrantInput(GrantInput(commands, **terms), key_id, membership_id, AppliesVia(via))


async def faults(world: ScheduleWorld, device_id: DeviceId, wanted: NewGrantInput) -> list[str]:
    with pytest.raises(ValidationFailed) as refused:
        await world.granting.create(world.session(), device_id, wanted)
    return [fault.field for fault in refused.value.details]


async def test_a_grant_is_listed_with_its_subjects_name(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    member = world.session(Role.MEMBER).membership_id
    await world.granting.create(world.session(), device.device_id, draft(key.key_id, "ON", "ON", "OFF"))
    await world.granting.create(world.session(), device.device_id, draft(None, "*", membership_id=member, via="project"))
    (first, robot), (second, member_name) = await world.granting.list(world.session(), device.device_id)
    assert (robot, first.commands, first.device_id) == ("Robot", ("ON", "OFF"), device.device_id)
    assert (member_name, second.device_id, second.project_id) == ("Member", None, device.project_id)


async def test_a_keys_grants_are_listed_with_the_name_of_what_they_are_on(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    assert await world.granting.list_of_key(world.session(), key.key_id) == []
    await world.granting.create(world.session(), device.device_id, draft(key.key_id, "ON"))
    await world.granting.create(world.session(), device.device_id, draft(key.key_id, "*", via="project"))
    (on_device, device_name), (on_project, project_name) = await world.granting.list_of_key(world.session(), key.key_id)
    assert (on_device.place, device_name) == (device.device_id, device.name)
    assert (on_project.place, bool(project_name)) == (device.project_id, True)
    with pytest.raises(NotFound):
        await world.granting.list_of_key(world.session(), "key_nowhere")


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"expires_ms": START_MS}, "expiresAt"),
        ({"active_from_minute": 60}, "activeToMinute"),
        ({"active_to_minute": 60}, "activeFromMinute"),
        ({"active_from_minute": 60, "active_to_minute": 1440}, "activeToMinute"),
        ({"active_days": (7,)}, "activeDays"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"rate_limit_per_minute": 0}, "rateLimitPerMinute"),
        ({"rate_limit_per_minute": 1001}, "rateLimitPerMinute"),
    ],
)
async def test_each_invalid_field_is_named(world: ScheduleWorld, terms: dict[str, Any], field: str) -> None:
    device, key = await world.device(), await world.key()
    assert await faults(world, device.device_id, draft(key.key_id, "ON", **terms)) == [field]


async def test_commands_are_required_and_their_names_are_checked(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    assert await faults(world, device.device_id, draft(key.key_id)) == ["commands"]
    assert await faults(world, device.device_id, draft(key.key_id, "ON", "on!", "")) == ["commands.1", "commands.2"]


async def test_a_grant_has_one_subject_of_this_account(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    member = world.session(Role.MEMBER).membership_id
    both = ["apiKeyId", "membershipId"]
    assert await faults(world, device.device_id, draft(None, "ON")) == both
    assert await faults(world, device.device_id, draft(key.key_id, "ON", membership_id=member)) == both
    assert await faults(world, device.device_id, draft(KeyId("key_nowhere"), "ON")) == ["apiKeyId"]
    stranger = MembershipId("mbr_nowhere")
    assert await faults(world, device.device_id, draft(None, "ON", membership_id=stranger)) == ["membershipId"]


async def test_an_unknown_command_is_allowed_with_a_warning(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    granted = await world.granting.create(world.session(), device.device_id, draft(key.key_id, "ON", "FLY"))
    assert [fault.field for fault in granted.warnings] == ["commands.1"]
    narrow = await world.granting.create(world.session(), device.device_id, draft(key.key_id, "STATUS", "ON", scope=Scope.READ))
    assert [fault.field for fault in narrow.warnings] == ["commands.1"]


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_granting_needs_an_admin(world: ScheduleWorld, role: Role) -> None:
    device, key = await world.device(), await world.key()
    caller = world.session(role)
    with pytest.raises(PermissionDenied):
        await world.granting.create(caller, device.device_id, draft(key.key_id, "ON"))
    with pytest.raises(PermissionDenied):
        await world.granting.list(caller, device.device_id)
    with pytest.raises(PermissionDenied):
        await world.granting.delete(caller, device.device_id, GrantId("grt_x"))


async def test_an_update_keeps_the_fields_it_does_not_name(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    made = await world.granting.create(
        world.session(), device.device_id, draft(key.key_id, "ON", expires_ms=START_MS + DAY_MS, active_days=(1, 2))
    )
    world.clock.forward(2 * DAY_MS)
    changes = {"scope": Scope.FULL, "active_from_minute": 5, "active_to_minute": 9}
    edited = await world.granting.update(world.session(), device.device_id, made.grant.grant_id, changes)
    window = replace(made.grant.window, from_minute=5, to_minute=9)
    assert edited.grant == replace(made.grant, scope=Scope.FULL, window=window)
    with pytest.raises(ValidationFailed, match="past"):
        await world.granting.update(world.session(), device.device_id, made.grant.grant_id, {"expires_ms": START_MS})


async def test_a_grant_is_found_only_on_a_device_it_covers(world: ScheduleWorld) -> None:
    device, other, key = await world.device(), await world.device(), await world.key()
    made = await world.granting.create(world.session(), device.device_id, draft(key.key_id, "ON"))
    wide = await world.granting.create(world.session(), device.device_id, draft(key.key_id, "ON", via="project"))
    with pytest.raises(NotFound):
        await world.granting.delete(world.session(), other.device_id, made.grant.grant_id)
    await world.granting.delete(world.session(), other.device_id, wide.grant.grant_id)


async def test_each_change_is_logged_and_announced(world: ScheduleWorld) -> None:
    device, key = await world.device(), await world.key()
    made = await world.granting.create(world.session(), device.device_id, draft(key.key_id, "ON"))
    await world.granting.update(world.session(), device.device_id, made.grant.grant_id, {"commands": ("OFF",)})
    await world.granting.delete(world.session(), device.device_id, made.grant.grant_id)
    kinds = [event.kind for event in world.uow.emitted_events if event.data.get("grantId") == made.grant.grant_id]
    assert kinds == ["grant_created", "grant_updated", "grant_revoked"]
    assert world.grants_changed == [ACCOUNT] * 3
    assert world.events_of_kind("grant_created")[0].address == world.session().address
