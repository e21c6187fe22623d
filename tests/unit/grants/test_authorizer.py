"""Who passes the gate, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.devices.model import Device
from domain.grants.authorizer import AccessPermit, Authorizer
from domain.grants.checks import GrantCheckInput
from domain.grants.model import GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.caller import Caller, Role, SystemCaller
from domain.kernel.clock import DAY_MS, HOUR_MS, to_iso
from domain.kernel.errors import PermissionDenied, RateLimited
from domain.kernel.ids import MembershipId, ProjectId
from support.device_world import ACCOUNT
from support.manual_clock import START_MS
from support.schedule_world import ScheduleWorld

NOON_ONLY = WeeklyGrantWindow(from_minute=12 * 60, to_minute=13 * 60)


async def permit(world: ScheduleWorld, caller: Caller, device: Device, command: str | None = "ON", **named: Any) -> AccessPermit:
    gate = Authorizer(evaluator=world.real_windows)
    async with world.uow.write() as tx:
        return await gate.authorize(
            tx, caller, device, GrantCheckInput(command, named.pop("is_query", False)), world.clock.now_ms(), **named
        )


async def code_of(world: ScheduleWorld, caller: Caller, device: Device, command: str | None = "ON", **named: Any) -> str:
    with pytest.raises((PermissionDenied, RateLimited)) as refused:
        await permit(world, caller, device, command, **named)
    return refused.value.code


@pytest.mark.parametrize(("role", "waits"), [(Role.OWNER, False), (Role.ADMIN, True)])
async def test_owners_and_admins_pass_without_a_grant(world: ScheduleWorld, role: Role, waits: bool) -> None:
    assert await permit(world, world.session(role), await world.device()) == AccessPermit(None, waits)


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_members_and_viewers_read_freely_and_need_a_grant_for_commands(world: ScheduleWorld, role: Role) -> None:
    device = await world.device()
    assert (await permit(world, world.session(role), device, None)).grant is None
    assert await code_of(world, world.session(role), device, "STATUS", is_query=True) == "GRANT_MISSING"
    subject = GrantSubject(membership_id=world.session(role).membership_id)
    grant = await world.grant(subject, device.device_id, ["STATUS"])
    assert (await permit(world, world.session(role), device, "STATUS", is_query=True)).grant == grant


async def test_a_viewer_sends_only_queries_whatever_is_granted(world: ScheduleWorld) -> None:
    device = await world.device()
    viewer = world.session(Role.VIEWER)
    await world.grant(GrantSubject(membership_id=viewer.membership_id), device.device_id, ["*"], scope=Scope.FULL)
    assert await code_of(world, viewer, device) == "ROLE_REQUIRED"


async def test_a_key_can_do_nothing_without_a_grant(world: ScheduleWorld) -> None:
    device, other = await world.device(), await world.device()
    key = await world.key((other.device_id, ["*"]))
    assert await code_of(world, key, device) == "GRANT_MISSING"
    assert await code_of(world, key, device, None) == "GRANT_MISSING"


async def test_a_project_grant_covers_each_of_its_devices(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key()
    grant = await world.grant(GrantSubject(key_id=key.key_id), device.device_id, ["ON"])
    async with world.uow.write() as tx:
        await tx.grants.save(replace(grant, device_id=None, project_id=device.project_id))
    assert (await permit(world, key, device)).grant is not None
    moved = replace(device, project_id=ProjectId("prj_elsewhere00000000000"))
    async with world.uow.write() as tx:
        await tx.devices.save(moved)
    assert await code_of(world, key, moved) == "GRANT_MISSING"


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"commands": ["OFF"]}, "COMMAND_NOT_GRANTED"),
        ({"scope": Scope.READ}, "SCOPE_TOO_NARROW"),
        ({"expires_ms": START_MS}, "GRANT_EXPIRED"),
        ({"window": NOON_ONLY}, "OUTSIDE_GRANT_WINDOW"),
    ],
)
async def test_each_check_denies_with_its_own_code(world: ScheduleWorld, terms: dict[str, Any], code: str) -> None:
    device = await world.device()
    key = await world.key()
    await world.grant(GrantSubject(key_id=key.key_id), device.device_id, terms.pop("commands", ["ON"]), **terms)
    assert await code_of(world, key, device) == code


async def test_read_scope_covers_queries(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["*"]), scope=Scope.READ)
    assert (await permit(world, key, device, "STATUS", is_query=True)).grant is not None


async def test_reads_check_only_the_expiry(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), window=NOON_ONLY, rate_limit_per_minute=1)
    for _ in range(3):
        assert (await permit(world, key, device, None)).grant is not None
    expired = await world.key((device.device_id, ["ON"]), expires_ms=START_MS)
    assert await code_of(world, expired, device, None) == "GRANT_EXPIRED"


async def test_any_grant_that_passes_is_enough(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["OFF"]), (device.device_id, ["ON"]))
    assert (await permit(world, key, device)).grant is not None


async def test_the_error_names_the_closest_denial(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["OFF"]))
    subject = GrantSubject(key_id=key.key_id)
    await world.grant(subject, device.device_id, ["ON"], expires_ms=START_MS - DAY_MS)
    nearest = await world.grant(subject, device.device_id, ["ON"], window=NOON_ONLY)
    await world.grant(subject, device.device_id, ["*"], scope=Scope.READ)
    with pytest.raises(PermissionDenied) as refused:
        await permit(world, key, device)
    assert refused.value.code == "OUTSIDE_GRANT_WINDOW"
    assert nearest.grant_id in refused.value.message
    opens_ms = world.real_windows.next_open_ms(NOON_ONLY, START_MS)
    assert opens_ms is not None
    assert to_iso(opens_ms) in refused.value.message


async def test_a_window_that_opens_after_the_expiry_is_not_suggested(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), window=NOON_ONLY, expires_ms=START_MS + HOUR_MS)
    with pytest.raises(PermissionDenied, match="does not open again before it expires"):
        await permit(world, key, device)


async def test_the_limit_is_a_rolling_minute(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=2)
    await permit(world, key, device)
    world.clock.forward(20_000)
    await permit(world, key, device)
    world.clock.forward(10_000)
    with pytest.raises(RateLimited) as throttled:
        await permit(world, key, device)
    assert (throttled.value.retry_after, throttled.value.limit, throttled.value.window_s) == (30, 2, 60)
    world.clock.forward(30_000)
    await permit(world, key, device)
    assert await code_of(world, key, device) == "RATE_LIMITED"


async def test_a_denied_call_uses_nothing_up(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=1)
    assert await code_of(world, key, device, "OFF") == "COMMAND_NOT_GRANTED"
    await permit(world, key, device, spend=False)
    await permit(world, key, device)


async def test_a_used_up_grant_does_not_block_another(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), (device.device_id, ["ON"]), rate_limit_per_minute=1)
    first = (await permit(world, key, device)).grant
    second = (await permit(world, key, device)).grant
    assert first is not None
    assert second is not None
    assert first.grant_id != second.grant_id
    assert await code_of(world, key, device) == "RATE_LIMITED"


async def test_an_automation_has_the_current_permissions_of_its_creator(world: ScheduleWorld) -> None:
    device = await world.device()
    member = world.session(Role.MEMBER).membership_id
    automation = SystemCaller(ACCOUNT, "schedule", "sched_x", on_behalf_of=member)
    assert await code_of(world, automation, device) == "GRANT_MISSING"
    await world.grant(GrantSubject(membership_id=member), device.device_id, ["ON"])
    assert (await permit(world, automation, device)).grant is not None
    gone = SystemCaller(ACCOUNT, "schedule", "sched_x", on_behalf_of=MembershipId("mbr_gone0000000000000000"))
    assert await code_of(world, gone, device) == "GRANT_MISSING"
    admins = SystemCaller(ACCOUNT, "rule", "rul_x", on_behalf_of=world.session(Role.ADMIN).membership_id)
    assert (await permit(world, admins, device)).grant is None


async def test_a_key_sees_the_devices_of_grants_that_have_not_expired(world: ScheduleWorld) -> None:
    seen, expired, other = await world.device(), await world.device(), await world.device()
    key = await world.key((seen.device_id, ["ON"]), window=NOON_ONLY)
    await world.grant(GrantSubject(key_id=key.key_id), expired.device_id, ["ON"], expires_ms=START_MS)
    async with world.uow.read() as tx:
        visible = await world.gate.filter_readable(tx, key, [seen, expired, other], START_MS)
        assert visible == [seen]
        assert await world.gate.filter_readable(tx, world.session(Role.VIEWER), [seen, other], START_MS) == [seen, other]
