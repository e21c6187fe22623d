"""Sending a command: the checks in their order, approval, and commands without a person."""

from __future__ import annotations

from typing import Any

import pytest

from domain.approvals.model import ApprovalStatus
from domain.commands.definitions import CommandDefinitionInput
from domain.commands.model import DEFAULT_TTL_MS, AutomationCommand, CommandRequest, Execution, ExecutionStatus, TriggeredBy
from domain.commands.submission import MAX_OPEN_EXECUTIONS
from domain.devices.model import Device
from domain.grants.model import GrantSubject, Scope
from domain.kernel.caller import Role, SessionCaller, SystemCaller
from domain.kernel.errors import Conflict, DomainError, PermissionDenied, RateLimited, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId
from support.device_world import ACCOUNT, DeviceWorld

LEVEL: dict[str, Any] = {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]}


async def refusal(world: DeviceWorld, caller: Any, device_id: DeviceId, cmd: str, params: Any = None) -> str:
    with pytest.raises(DomainError) as refused:
        await world.commands.submit(caller, device_id, cmd, params)
    return refused.value.code


async def define(world: DeviceWorld, device: Device, **fields: Any) -> None:
    await world.definitions.create(world.session(), device.device_id, CommandDefinitionInput(**{"label": "x"} | fields))


async def test_a_command_is_queued_and_logged_and_wakes_the_dispatcher(world: DeviceWorld) -> None:
    device = await world.device()
    rung = world.wake_event.rings
    submitted = await world.commands.submit(world.session(), device.device_id, "ON")
    execution = submitted.execution
    assert execution is not None
    assert execution.status is ExecutionStatus.QUEUED
    assert (execution.source, execution.grant_id) == (TriggeredBy.USER, None)
    assert execution.expires_ms == world.clock.now_ms() + 60_000
    (event,) = world.events_of_kind("command_sent")
    assert event.data["executionId"] == execution.execution_id
    assert world.wake_event.rings == rung + 1


async def test_the_checks_run_in_the_order_of_the_contract(world: DeviceWorld) -> None:
    device = await world.device(active=False)
    stranger = await world.key()
    await define(world, device, name="SET", params_schema=LEVEL)
    assert await refusal(world, stranger, DeviceId("dev_nowhere"), "NOPE") == "NOT_FOUND"
    assert await refusal(world, stranger, device.device_id, "NOPE") == "UNKNOWN_COMMAND"
    assert await refusal(world, stranger, device.device_id, "SET", {"level": "x"}) == "INVALID_PARAMS"
    assert await refusal(world, stranger, device.device_id, "SET", {"level": 1}) == "DEVICE_PENDING"
    await world.credentials.generate(world.session(), device.device_id)
    assert await refusal(world, stranger, device.device_id, "SET", {"level": 1}) == "GRANT_MISSING"


async def test_another_accounts_device_does_not_exist(world: DeviceWorld) -> None:
    device = await world.device()
    other = SessionCaller(AccountId("acc_other"), world.session().user_id, world.session().membership_id, Role.OWNER)
    assert await refusal(world, other, device.device_id, "ON") == "NOT_FOUND"


async def test_a_key_commands_what_its_grant_names_and_nothing_else(world: DeviceWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]))
    submitted = await world.commands.submit(key, device.device_id, "ON")
    assert submitted.execution is not None
    assert submitted.execution.source is TriggeredBy.APIKEY
    assert submitted.execution.grant_id is not None
    assert await refusal(world, key, device.device_id, "OFF") == "COMMAND_NOT_GRANTED"


async def test_a_read_grant_covers_queries_only(world: DeviceWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["*"]), scope=Scope.READ)
    assert (await world.commands.submit(key, device.device_id, "STATUS")).execution
    assert await refusal(world, key, device.device_id, "ON") == "SCOPE_TOO_NARROW"


async def test_built_in_commands_take_no_parameters(world: DeviceWorld) -> None:
    device = await world.device()
    assert (await world.commands.submit(world.session(), device.device_id, "ON", {})).execution
    assert await refusal(world, world.session(), device.device_id, "ON", {"level": 1}) == "INVALID_PARAMS"


async def test_oversize_parameters_are_refused(world: DeviceWorld) -> None:
    device = await world.device()
    await define(world, device, name="SET")
    assert await refusal(world, world.session(), device.device_id, "SET", "x" * 20_000) == "INVALID_PARAMS"
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    assert await refusal(world, world.session(), device.device_id, "SET", deep) == "INVALID_PARAMS"
    assert await refusal(world, world.session(), device.device_id, "SET", float("inf")) == "INVALID_PARAMS"


async def test_a_device_has_a_limited_number_of_open_commands(world: DeviceWorld) -> None:
    device = await world.device()
    for _ in range(MAX_OPEN_EXECUTIONS):
        await world.commands.submit(world.session(), device.device_id, "ON")
    with pytest.raises(Conflict) as refused:
        await world.commands.submit(world.session(), device.device_id, "ON")
    assert refused.value.code == "TOO_MANY_QUEUED"


async def test_a_denied_command_does_not_count_as_a_use_of_the_grant(world: DeviceWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=1)
    assert await refusal(world, key, device.device_id, "OFF") == "COMMAND_NOT_GRANTED"
    await world.commands.submit(key, device.device_id, "ON")
    with pytest.raises(RateLimited):
        await world.commands.submit(key, device.device_id, "ON")
    assert len(world.events_of_kind("command_sent")) == 1


class TestApproval:
    @pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN, Role.MEMBER])
    async def test_everyone_except_an_owner_needs_approval(self, world: DeviceWorld, role: Role) -> None:
        device = await world.device()
        await define(world, device, name="ON", requires_approval=True)
        caller = world.session(role)
        await world.grant(GrantSubject(membership_id=caller.membership_id), device.device_id, ["ON"])
        submitted = await world.commands.submit(caller, device.device_id, "ON")
        assert (submitted.approval is None) is (role is Role.OWNER)
        assert (submitted.execution is None) is (role is not Role.OWNER)

    async def test_a_keys_command_is_sent_only_after_approval(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        await define(world, device, name="ON", requires_approval=True)
        key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=1)
        approval = (await world.commands.submit(key, device.device_id, "ON", ttl_ms=5_000)).approval
        assert approval is not None
        assert approval.status is ApprovalStatus.PENDING
        assert approval.requested_by.label == key.label
        await world.dispatch_all()
        assert world.link.sent == []
        world.clock.forward(1_000)
        async with world.uow.write() as tx:
            execution_id = await world.commands.submit_approved(tx, approval, device, world.clock.now_ms())
            execution = await tx.executions.find(execution_id)
        assert execution is not None
        assert execution.source is TriggeredBy.APIKEY
        assert execution.expires_ms == world.clock.now_ms() + 5_000

    async def test_a_removed_grant_prevents_approval(self, world: DeviceWorld) -> None:
        device = await world.device()
        await define(world, device, name="ON", requires_approval=True)
        key = await world.key((device.device_id, ["ON"]))
        approval = (await world.commands.submit(key, device.device_id, "ON")).approval
        assert approval is not None
        async with world.uow.write() as tx:
            for grant in await tx.grants.list_by_key(ACCOUNT, key.key_id):
                await tx.grants.delete(grant.grant_id)
        async with world.uow.write() as tx:
            with pytest.raises(PermissionDenied):
                await world.commands.submit_approved(tx, approval, device, world.clock.now_ms())

    async def test_a_deleted_key_or_disabled_device_prevents_approval(self, world: DeviceWorld) -> None:
        device = await world.device()
        await define(world, device, name="ON", requires_approval=True)
        key = await world.key((device.device_id, ["ON"]))
        approval = (await world.commands.submit(key, device.device_id, "ON")).approval
        assert approval is not None
        disabled = await world.devices.toggle_enabled(world.session(), device.device_id)
        async with world.uow.write() as tx:
            with pytest.raises(PermissionDenied) as refused:
                await world.commands.submit_approved(tx, approval, disabled, world.clock.now_ms())
            assert refused.value.code == "DEVICE_DISABLED"
            await tx.api_keys.delete(key.key_id)
            with pytest.raises(PermissionDenied):
                await world.commands.submit_approved(tx, approval, device, world.clock.now_ms())


class TestUnattended:
    async def test_a_command_that_needs_approval_is_refused_even_to_an_owner(self, world: DeviceWorld) -> None:
        device = await world.device()
        await define(world, device, name="ON", requires_approval=True)
        async with world.uow.read() as tx:
            with pytest.raises(ValidationFailed) as refused:
                await world.commands.check_unattended(tx, world.session(), device, "ON", None, 1, world.clock.now_ms())
        assert refused.value.code == "COMMAND_NEEDS_APPROVAL"

    async def test_a_member_needs_a_grant_but_its_window_is_checked_when_the_command_runs(self, world: DeviceWorld) -> None:
        device = await world.device()
        member = world.session(Role.MEMBER)
        async with world.uow.read() as tx:
            with pytest.raises(PermissionDenied):
                await world.commands.check_unattended(tx, member, device, "ON", None, 1, world.clock.now_ms())
        await world.grant(GrantSubject(membership_id=member.membership_id), device.device_id, ["ON"])
        world.windows.open = False
        async with world.uow.read() as tx:
            definition = await world.commands.check_unattended(tx, member, device, "ON", None, 1, world.clock.now_ms())
        assert definition.name == "ON"

    async def test_it_is_checked_again_when_it_fires(self, world: DeviceWorld) -> None:
        device = await world.device()
        request = CommandRequest(device, "ON", None, DEFAULT_TTL_MS)
        command = AutomationCommand(SystemCaller(ACCOUNT, "schedule", "sched_1"), request, TriggeredBy.SCHEDULE)
        async with world.uow.write() as tx:
            [execution] = await world.commands.run_unattended(tx, [command], world.clock.now_ms())
        assert isinstance(execution, Execution)
        assert (execution.source, execution.requested_by) == (TriggeredBy.SCHEDULE, "schedule:sched_1")
        await define(world, device, name="ON", requires_approval=True)
        async with world.uow.write() as tx:
            [error] = await world.commands.run_unattended(tx, [command], world.clock.now_ms())
        assert isinstance(error, ValidationFailed)
