"""A command that waits: who decides, that one decision wins, and that nothing runs unchecked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from domain.approvals.model import APPROVAL_TTL_MS, Approval, ApprovalStatus
from domain.devices.model import Device
from domain.grants.model import GrantSubject
from domain.kernel.caller import Caller, Role
from domain.kernel.errors import Conflict, NotFound, PermissionDenied, ValidationFailed
from domain.kernel.ids import ApprovalId
from support.schedule_world import ScheduleWorld


async def flagged(world: ScheduleWorld) -> Device:
    device = await world.device(online=True)
    await world.define(device, "FLUSH", requires_approval=True)
    return device


async def request_approval(world: ScheduleWorld, caller: Any, device: Device) -> ApprovalId:
    submitted = await world.commands.submit(caller, device.device_id, "FLUSH")
    assert submitted.approval is not None
    return submitted.approval.approval_id


async def stored(world: ScheduleWorld, approval_id: ApprovalId) -> Approval:
    (found,) = [one for one in await world.approvals.list(world.session()) if one.approval_id == approval_id]
    return found


async def test_an_approved_command_runs_once_with_its_decision(world: ScheduleWorld) -> None:
    device = await flagged(world)
    key = await world.key((device.device_id, ["FLUSH"]))
    approval_id = await request_approval(world, key, device)
    execution_id = await world.approvals.approve(world.session(), device.device_id, approval_id)
    approval = await stored(world, approval_id)
    assert (approval.status, approval.execution_id) == (ApprovalStatus.APPROVED, execution_id)
    assert (approval.decided_by, approval.decided_ms) == (world.session().label, world.clock.now_ms())
    assert await world.sent(device) == ["FLUSH"]
    (event,) = world.events_of_kind("approval_decided")
    assert event.data["status"] == "APPROVED"


async def test_a_denied_command_never_runs(world: ScheduleWorld) -> None:
    device = await flagged(world)
    approval_id = await request_approval(world, world.session(Role.ADMIN), device)
    await world.approvals.deny(world.session(), device.device_id, approval_id)
    with pytest.raises(Conflict) as late:
        await world.approvals.approve(world.session(), device.device_id, approval_id)
    assert late.value.code == "ALREADY_DECIDED"
    assert await world.sent(device) == []


async def test_nobody_approves_their_own_request(world: ScheduleWorld) -> None:
    device = await flagged(world)
    admin = world.session(Role.ADMIN)
    approval_id = await request_approval(world, admin, device)
    with pytest.raises(PermissionDenied) as own:
        await world.approvals.approve(admin, device.device_id, approval_id)
    assert own.value.code == "OWN_REQUEST"
    assert [event.data["code"] for event in world.events_of_kind("approval_refused")] == ["OWN_REQUEST"]
    await world.approvals.deny(admin, device.device_id, approval_id)


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_deciding_needs_an_admin(world: ScheduleWorld, role: Role) -> None:
    device = await flagged(world)
    approval_id = await request_approval(world, world.session(Role.ADMIN), device)
    for decide in (world.approvals.approve, world.approvals.deny):
        with pytest.raises(PermissionDenied) as refused:
            await decide(world.session(role), device.device_id, approval_id)
        assert refused.value.code == "ROLE_REQUIRED"


async def test_of_a_hundred_concurrent_decisions_one_takes_effect(world: ScheduleWorld) -> None:
    device = await flagged(world)
    approval_id = await request_approval(world, await world.key((device.device_id, ["FLUSH"])), device)
    tries = [world.approvals.approve(world.session(), device.device_id, approval_id) for _ in range(50)]
    denials = [world.approvals.deny(world.session(), device.device_id, approval_id) for _ in range(50)]
    results = await asyncio.gather(*tries, *denials, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 99
    assert await world.sent(device) == ["FLUSH"]
    assert len(world.events_of_kind("approval_decided")) == 1


async def test_a_decision_after_that_of_another_instance_rolls_back_the_command(world: ScheduleWorld) -> None:
    device = await flagged(world)
    approval_id = await request_approval(world, await world.key((device.device_id, ["FLUSH"])), device)
    submit_approved = world.commands.submit_approved

    class SubmitterWithConcurrentDecision:
        async def submit_approved(self, tx: Any, approval: Approval, *rest: Any) -> Any:
            execution_id = await submit_approved(tx, approval, *rest)
            from domain.approvals.model import apply_decision

            await tx.approvals.decide_if_pending(
                apply_decision(approval, ApprovalStatus.DENIED, by="user:other", now_ms=world.clock.now_ms())
            )
            return execution_id

    world.approvals.submitter = SubmitterWithConcurrentDecision()
    with pytest.raises(Conflict):
        await world.approvals.approve(world.session(), device.device_id, approval_id)
    assert await world.sent(device) == []


async def revoke_grant(world: ScheduleWorld, device: Device) -> None:
    for grant, _ in await world.granting.list(world.session(), device.device_id):
        await world.granting.delete(world.session(), device.device_id, grant.grant_id)


async def disable_device(world: ScheduleWorld, device: Device) -> None:
    await world.devices.toggle_enabled(world.session(), device.device_id)


async def drop_definition(world: ScheduleWorld, device: Device) -> None:
    async with world.uow.write() as tx:
        for definition in await tx.definitions.list_by_device(device.device_id):
            await tx.definitions.delete(definition.command_id)


@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [(revoke_grant, "GRANT_MISSING"), (disable_device, "DEVICE_DISABLED"), (drop_definition, "UNKNOWN_COMMAND")],
)
async def test_a_command_that_is_no_longer_allowed_is_denied_and_stays_pending(
    world: ScheduleWorld, meanwhile: Any, code: str
) -> None:
    device = await flagged(world)
    approval_id = await request_approval(world, await world.key((device.device_id, ["FLUSH"])), device)
    await meanwhile(world, device)
    with pytest.raises((PermissionDenied, ValidationFailed)) as refused:
        await world.approvals.approve(world.session(), device.device_id, approval_id)
    assert refused.value.code == code
    assert (await stored(world, approval_id)).status is ApprovalStatus.PENDING
    assert await world.sent(device) == []
    assert [event.data["code"] for event in world.events_of_kind("approval_refused")] == [code]


async def test_a_request_counts_once_against_the_limit(world: ScheduleWorld) -> None:
    device = await flagged(world)
    key = await world.key((device.device_id, ["FLUSH"]), rate_limit_per_minute=1)
    approval_id = await request_approval(world, key, device)
    await world.approvals.approve(world.session(), device.device_id, approval_id)
    assert await world.sent(device) == ["FLUSH"]


async def test_after_a_day_a_request_expires_once(world: ScheduleWorld) -> None:
    device = await flagged(world)
    approval_id = await request_approval(world, world.session(Role.ADMIN), device)
    assert await world.approvals.next_expiry_ms() == world.clock.now_ms() + APPROVAL_TTL_MS
    world.clock.forward(APPROVAL_TTL_MS - 1)
    assert await world.approvals.expire_due() == 0
    world.clock.forward(1)
    with pytest.raises(Conflict, match="expired"):
        await world.approvals.approve(world.session(), device.device_id, approval_id)
    await asyncio.gather(*(world.approvals.expire_due() for _ in range(10)))
    assert [event.data["status"] for event in world.events_of_kind("approval_decided")] == ["EXPIRED"]
    assert await world.approvals.next_expiry_ms() is None


async def test_approvals_are_listed_by_device_and_status(world: ScheduleWorld) -> None:
    one, other = await flagged(world), await flagged(world)
    first = await request_approval(world, world.session(Role.ADMIN), one)
    second = await request_approval(world, world.session(Role.ADMIN), other)
    await world.approvals.deny(world.session(), one.device_id, first)
    caller = world.session(Role.VIEWER)

    async def ids(**named: Any) -> list[ApprovalId]:
        return [approval.approval_id for approval in await world.approvals.list(caller, **named)]

    assert await ids() == [second, first]
    assert await ids(device_id=one.device_id) == [first]
    assert await ids(status=ApprovalStatus.PENDING) == [second]


async def test_an_approval_is_found_only_on_its_device(world: ScheduleWorld) -> None:
    one, other = await flagged(world), await flagged(world)
    approval_id = await request_approval(world, world.session(Role.ADMIN), one)
    with pytest.raises(NotFound):
        await world.approvals.approve(world.session(), other.device_id, approval_id)


async def test_a_request_of_a_removed_member_cannot_be_approved(world: ScheduleWorld) -> None:
    device = await flagged(world)
    member = world.session(Role.MEMBER)
    await world.grant(GrantSubject(membership_id=member.membership_id), device.device_id, ["FLUSH"])
    caller: Caller = member
    approval_id = await request_approval(world, caller, device)
    async with world.uow.write() as tx:
        await tx.memberships.delete(member.membership_id)
    with pytest.raises(PermissionDenied, match="no longer has access"):
        await world.approvals.approve(world.session(), device.device_id, approval_id)
