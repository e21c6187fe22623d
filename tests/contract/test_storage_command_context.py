"""`command_contexts` returns in one read what the single repositories return one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.commands.model import CommandContext, ExecutionStatus
from domain.devices.model import DeviceType
from domain.grants.model import GrantSubject
from support.storage import NOW, StoredAccount, a_definition, a_device, a_grant, add_execution, an_execution, new_id


async def test_the_context_holds_device_definitions_open_count_and_grants(world: StoredAccount) -> None:
    account_id, key = world.account.account_id, GrantSubject(key_id=world.key.key_id)
    kind = DeviceType(new_id("dty"), account_id, "Pump", NOW)
    async with world.uow.write() as tx:
        await tx.device_types.add(kind)
        device = await tx.devices.add(a_device(account_id, world.project.project_id, device_type_id=kind.device_type_id))
        own = a_definition(world, device_id=device.device_id, name="FLUSH")
        of_type = a_definition(world, device_id=None, device_type_id=kind.device_type_id, name="DIM")
        elsewhere = a_definition(world, name="FLY")
        for definition in (own, of_type, elsewhere):
            await tx.definitions.add(definition)
        narrow = a_grant(world, device_id=device.device_id)
        wide = a_grant(world, device_id=None, project_id=world.project.project_id, expires_ms=1)
        personal = a_grant(world, device_id=device.device_id, subject=GrantSubject(membership_id=world.membership.membership_id))
        for grant in (narrow, wide, personal, a_grant(world)):
            await tx.grants.add(grant)
        for status in ExecutionStatus:
            await add_execution(tx, replace(an_execution(world), device_id=device.device_id, status=status))
        await add_execution(tx, an_execution(world))

    async with world.uow.write() as tx:
        context = await tx.command_contexts.get(account_id, device.device_id, key)
        assert context is not None
        assert context.device == device
        assert (context.device_definitions, context.type_definitions) == ({"FLUSH": own}, {"DIM": of_type})
        assert context.open_count == 2
        assert list(context.grants) == [narrow, wide] == list(await tx.grants.list_by_subject_and_device(key, device))
        member = await tx.command_contexts.get(account_id, device.device_id, personal.subject)
        assert member is not None
        assert list(member.grants) == [personal]


async def test_without_a_subject_there_are_no_grants_and_a_foreign_account_gets_nothing(world: StoredAccount) -> None:
    async with world.uow.read() as tx:
        context = await tx.command_contexts.get(world.account.account_id, world.device.device_id, None)
        assert context is not None
        assert context == CommandContext(world.device, {}, {}, open_count=0, grants=[])
        assert await tx.command_contexts.get(new_id("acc"), world.device.device_id, None) is None
        assert (
            await tx.command_contexts.get(world.account.account_id, new_id("dev"), GrantSubject(key_id=world.key.key_id)) is None
        )


async def test_many_contexts_are_those_of_each_device_without_foreign_ones(world: StoredAccount) -> None:
    account_id, subject = world.account.account_id, GrantSubject(key_id=world.key.key_id)
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(account_id, world.project.project_id))
        await tx.definitions.add(a_definition(world, device_id=other.device_id, name="FLUSH"))
        await tx.grants.add(a_grant(world, device_id=other.device_id))
        await add_execution(tx, an_execution(world))
    ids = [other.device_id, new_id("dev"), world.device.device_id]
    async with world.uow.write() as tx:
        for held in (subject, None):
            found = await tx.command_contexts.get_many(account_id, ids, held)
            assert found == {each: await tx.command_contexts.get(account_id, each, held) for each in (ids[0], ids[2])}
        assert not await tx.command_contexts.get_many(new_id("acc"), ids, subject)
        assert not await tx.command_contexts.get_many(account_id, [], subject)


async def test_what_reports_name_is_listed_as_far_as_it_exists(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        execution = await add_execution(tx, an_execution(world))
        await add_execution(tx, an_execution(world))
        named = [execution.execution_id, new_id("exe"), execution.execution_id]
        devices, executions = await tx.command_contexts.list_reported([world.device.device_id, new_id("dev")], named)
        assert (list(devices), list(executions)) == ([world.device], [execution])
        devices, executions = await tx.command_contexts.list_reported([world.device.device_id], [])
        assert (list(devices), list(executions)) == ([world.device], [])


async def test_the_context_includes_what_the_transaction_has_written(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.executions.add_many([an_execution(world) for _ in range(3)])
        context = await tx.command_contexts.get(world.account.account_id, world.device.device_id, None)
        assert context is not None
        assert context.open_count == 3


async def test_a_rolled_back_transaction_leaves_nothing_behind(world: StoredAccount) -> None:
    class Stop(Exception):
        pass

    async def read_and_fail() -> None:
        async with world.uow.write() as tx:
            await tx.executions.add_many([an_execution(world)])
            await tx.command_contexts.get(world.account.account_id, world.device.device_id, None)
            await tx.executions.add_many([an_execution(world)])
            raise Stop

    for _ in range(3):
        with pytest.raises(Stop):
            await read_and_fail()
    async with world.uow.write() as tx:
        context = await tx.command_contexts.get(world.account.account_id, world.device.device_id, None)
        assert context is not None
        assert context.open_count == 0
