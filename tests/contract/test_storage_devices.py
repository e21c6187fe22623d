"""Devices, credentials, device types and command definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.accounts.model import Project
from domain.devices.lookup import save_device
from domain.devices.model import DeviceCredentials, DeviceMetadata, DeviceStatus, DeviceType
from domain.kernel.errors import Conflict
from domain.schedules.model import DecidedScheduleEdge, EdgeOutcome, SwitchEdge
from support.storage import (
    NOW,
    StoredAccount,
    a_definition,
    a_delivery,
    a_device,
    a_grant,
    a_rule,
    a_schedule,
    a_webhook,
    add_execution,
    an_approval,
    an_event,
    an_execution,
    new_id,
)


async def test_a_device_comes_back_as_it_went_in(world: StoredAccount) -> None:
    async with world.uow.read() as tx:
        assert await tx.devices.get(world.account.account_id, world.device.device_id) == world.device
        assert await tx.devices.find(world.device.device_id) == world.device
        assert await tx.devices.get(new_id("acc"), world.device.device_id) is None


async def test_an_external_id_is_unique_in_its_account_and_free_again_when_given_up(world: StoredAccount) -> None:
    account_id, project_id = world.account.account_id, world.project.project_id
    async with world.uow.write() as tx:
        first = await tx.devices.add(a_device(account_id, project_id, external_id="SN 1"))
        await tx.devices.add(a_device(account_id, project_id, external_id="SN 2"))
        assert [d.device_id for d in await tx.devices.list_by_external_ids(account_id, ["SN 1", "SN 9"])] == [first.device_id]
        assert list(await tx.devices.list_by_external_ids(account_id, [])) == []
        assert list(await tx.devices.list_by_external_ids(new_id("acc"), ["SN 1"])) == []
    for clash in (
        lambda tx: tx.devices.add(a_device(account_id, project_id, external_id="SN 1")),
        lambda tx: tx.devices.save(replace(first, external_id="SN 2")),
    ):
        with pytest.raises(Conflict) as refused:
            async with world.uow.write() as tx:
                await clash(tx)
        assert refused.value.code == "EXTERNAL_ID_TAKEN"
    async with world.uow.write() as tx:
        await tx.devices.save(replace(first, external_id=None))
        await tx.devices.add(a_device(account_id, project_id, external_id="SN 1"))


async def test_many_devices_are_added_in_order_and_saved_in_the_transaction_that_has_them(world: StoredAccount) -> None:
    account_id, project_id = world.account.account_id, world.project.project_id
    new = [a_device(account_id, project_id, name=name, external_id=name) for name in ("one", "two")]
    async with world.uow.write() as tx:
        assert list(await tx.devices.add_many([])) == []
        added = await tx.devices.add_many(new)
        assert [replace(each, device_no=0) for each in added] == [replace(each, device_no=0) for each in new]
        assert 0 < added[0].device_no < added[1].device_no
        assert await tx.devices.save_deferred(replace(added[0], name="renamed"))
        renamed = await tx.devices.get(account_id, added[0].device_id)
        assert renamed == replace(added[0], name="renamed", version=added[0].version + 1)
    with pytest.raises(Conflict, match="just changed"):
        async with world.uow.write() as tx:
            await save_device(tx, replace(renamed, name="newer"))
            await save_device(tx, replace(renamed, name="of an older version"), deferred=True)
    async with world.uow.read() as tx:
        assert await tx.devices.get(account_id, renamed.device_id) == renamed
    with pytest.raises(Conflict) as refused:
        async with world.uow.write() as tx:
            await tx.devices.add_many([a_device(account_id, project_id, external_id="one")])
    assert refused.value.code == "EXTERNAL_ID_TAKEN"


async def test_a_hardware_id_is_found_in_any_case_and_in_its_account_alone(world: StoredAccount) -> None:
    account_id, project_id = world.account.account_id, world.project.project_id
    async with world.uow.write() as tx:
        for external_id in ("ab:Cd:i1", "AB:CD:I1", "AB:CD:\u01311", "AB:CD:I2", None):
            await tx.devices.add(a_device(account_id, project_id, external_id=external_id))
        found = await tx.devices.list_by_hardware_id(account_id, "AB:CD:I1")
        assert sorted(str(device.external_id) for device in found) == ["AB:CD:I1", "ab:Cd:i1"]
        assert list(await tx.devices.list_by_hardware_id(account_id, "AB:CD:I3")) == []
        assert list(await tx.devices.list_by_hardware_id(new_id("acc"), "AB:CD:I1")) == []


async def test_device_numbers_are_never_used_twice(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        second = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        await tx.devices.delete(second.device_id, NOW)
    async with world.uow.write() as tx:
        third = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
    assert world.device.device_no < second.device_no < third.device_no


async def test_devices_are_listed_by_account_and_project_oldest_first(world: StoredAccount) -> None:
    project = Project(new_id("prj"), world.account.account_id, "Field", False, NOW)
    async with world.uow.write() as tx:
        await tx.projects.add(project)
        second = await tx.devices.add(a_device(world.account.account_id, project.project_id, created_ms=NOW - 9))
        assert list(await tx.devices.list(world.account.account_id)) == [world.device, second]
        assert list(await tx.devices.list(world.account.account_id, project.project_id)) == [second]
        assert list(await tx.devices.list(new_id("acc"))) == []
        assert await tx.devices.count(world.account.account_id) == 2


async def test_saving_counts_the_version_and_leaves_the_devices_own_word_alone(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await tx.devices.set_relay_many({world.device.device_id: True}, 5)
        changed = replace(
            world.device, name="Valve", status=DeviceStatus.DISABLED, about=DeviceMetadata(tags=("x",)), relay=False, sched_rev=9
        )
        assert await tx.devices.save(changed)
        stored = await tx.devices.find(world.device.device_id)
        assert stored == replace(changed, version=2, relay=True, relay_ms=5, sched_rev=0)
        assert not await tx.devices.save(changed)
        assert not await tx.devices.save(replace(changed, device_id=new_id("dev")))


async def test_relay_is_stored_and_presence_returns_whether_it_changed(world: StoredAccount) -> None:
    device_id = world.device.device_id
    async with world.uow.write() as tx:
        for relay in (False, True):
            await tx.devices.set_relay_many({device_id: relay, new_id("dev"): True}, 5)
            assert (await tx.devices.find(device_id)).relay is relay
        assert [await tx.devices.set_online(device_id, online) for online in (False, True, True, False)] == [
            False,
            True,
            False,
            True,
        ]
        await tx.devices.set_online(device_id, True)
        assert [device.device_id for device in await tx.devices.list_online()] == [device_id]


async def test_devices_are_found_by_their_numbers(world: StoredAccount) -> None:
    number = world.device.device_no
    async with world.uow.write() as tx:
        assert [device.device_id for device in await tx.devices.list_by_numbers({number, number + 999})] == [
            world.device.device_id
        ]
        assert list(await tx.devices.list_by_numbers([])) == []


async def test_of_many_devices_those_come_that_were_not_there(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        others = [await tx.devices.add(a_device(world.account.account_id, world.project.project_id)) for _ in range(3)]
        ids = [device.device_id for device in (world.device, *others)]
        await tx.devices.set_online(ids[1], True)
        assert set(await tx.devices.set_online_many([*ids[:3], new_id("dev")], True)) == {ids[0], ids[2]}
        assert {device.device_id for device in await tx.devices.list_online()} == set(ids[:3])
        assert set(await tx.devices.set_online_many(ids[2:], False)) == {ids[2]}
        assert not await tx.devices.set_online_many([], True)


async def test_last_seen_never_goes_back(world: StoredAccount) -> None:
    number = world.device.device_no
    async with world.uow.write() as tx:
        await tx.devices.update_last_seen({number: NOW, 999_999: NOW})
        await tx.devices.update_last_seen({number: NOW - 5})
        assert (await tx.devices.find(world.device.device_id)).last_seen_ms == NOW
        await tx.devices.update_last_seen({number: NOW + 5})
        assert (await tx.devices.find(world.device.device_id)).last_seen_ms == NOW + 5


async def test_the_plans_revision_counts_up(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        for _ in range(2):
            await tx.devices.increment_plan_revisions({world.device.device_id, new_id("dev")})
        await tx.devices.set_device_plan_revisions({world.device.device_id: 2, new_id("dev"): 3})
        stored = await tx.devices.find(world.device.device_id)
        assert (stored.sched_rev, stored.sched_rev_device, stored.version) == (2, 2, 1)


async def test_a_deleted_device_takes_all_that_was_its_own_and_leaves_the_log(world: StoredAccount) -> None:
    device, account_id = world.device, world.account.account_id
    webhook, schedule, grant = a_webhook(world), a_schedule(world), a_grant(world)
    approval, definition, rule = an_approval(world), a_definition(world), a_rule(world)
    async with world.uow.write() as tx:
        await tx.grants.add(grant)
        await tx.grants.add_use(grant.grant_id, NOW)
        await tx.approvals.add(approval)
        await tx.definitions.add(definition)
        execution = await add_execution(tx, an_execution(world))
        await tx.schedules.add(schedule)
        await tx.schedules.save_decisions(
            [], [DecidedScheduleEdge(schedule.schedule_id, 1, SwitchEdge.ON, 5, NOW, EdgeOutcome.FIRED)]
        )
        await tx.rules.add(rule)
        await tx.credentials.upsert(DeviceCredentials(device.device_id, b"s", NOW))
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook, device_id=device.device_id), a_delivery(webhook)])
        await tx.readings.assign_metric_numbers(["t"])
        await tx.readings.upsert_device_metrics([(device.device_no, 1, None)])
        await tx.readings.upsert_checkpoints([(device.device_no, NOW, b"l")])
        await tx.events.append_many([an_event(world)])
        await tx.devices.delete(device.device_id, NOW)
    async with world.uow.read() as tx:
        assert await tx.devices.find(device.device_id) is None
        assert await tx.grants.get_for_update(account_id, grant.grant_id) is None
        assert await tx.approvals.get(account_id, approval.approval_id) is None
        assert await tx.definitions.get_for_update(account_id, definition.command_id) is None
        assert await tx.executions.find(execution.execution_id) is None
        assert list(await tx.schedules.list_active(device.device_id)) == []
        assert list(await tx.rules.list_by_device(device.device_id)) == []
        assert await tx.credentials.get_for_update(device.device_id) is None
        assert list(await tx.readings.list_device_metrics(device.device_no)) == []
        assert list(await tx.readings.list_checkpoints()) == []
        assert await tx.events.count(account_id) == 1
        assert list(await tx.devices.list_tombstones()) == [(device.device_no, NOW)]
    async with world.uow.write() as tx:
        await tx.devices.delete_tombstone(device.device_no)
        assert list(await tx.devices.list_tombstones()) == []
        pending = await tx.deliveries.claim(NOW, NOW + 1, 10)
        assert [delivery.device_id for delivery in pending] == [None]


async def test_what_a_device_may_have_many_of_goes_in_steps(world: StoredAccount) -> None:
    webhook, gone = a_webhook(world), world.device.device_id
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook, device_id=gone) for _ in range(3)] + [a_delivery(webhook)])
        for _ in range(5):
            await add_execution(tx, an_execution(world))
        assert [await tx.devices.delete_batch(gone, 2) for _ in range(4)] == [4, 3, 1, 0]
        assert [delivery.device_id for delivery in await tx.deliveries.claim(NOW, NOW + 1, 10)] == [None]


async def test_credentials_are_replaced_and_only_active_devices_are_admitted(world: StoredAccount) -> None:
    other = a_device(world.account.account_id, world.project.project_id, status=DeviceStatus.REVOKED)
    async with world.uow.write() as tx:
        other = await tx.devices.add(other)
        await tx.credentials.upsert(DeviceCredentials(other.device_id, b"o", NOW))
        await tx.credentials.upsert(DeviceCredentials(world.device.device_id, b"one", NOW))
        second = DeviceCredentials(world.device.device_id, b"two", NOW + 1)
        await tx.credentials.upsert(second)
        assert await tx.credentials.get_for_update(world.device.device_id) == second
        assert list(await tx.credentials.list_of_active_devices()) == [(world.device, second)]
        pages = [await tx.credentials.page(None, 1), await tx.credentials.page(world.device.device_id, 5)]
        assert [[one.device_id for one in page] for page in pages] == [[world.device.device_id], [other.device_id]]
        await tx.credentials.delete(world.device.device_id)
        assert await tx.credentials.get_for_update(world.device.device_id) is None


async def test_a_type_goes_with_its_definitions_and_leaves_its_devices(world: StoredAccount) -> None:
    account_id = world.account.account_id
    kind = DeviceType(new_id("dty"), account_id, "Pump", NOW)
    definition = a_definition(world, device_id=None, device_type_id=kind.device_type_id)
    async with world.uow.write() as tx:
        await tx.device_types.add(kind)
        await tx.definitions.add(definition)
        await tx.devices.save(replace(world.device, device_type_id=kind.device_type_id))
        assert await tx.device_types.count_devices(kind.device_type_id) == 1
        await tx.device_types.save(replace(kind, name="Valve"))
        assert list(await tx.device_types.list(account_id)) == [replace(kind, name="Valve")]
        assert await tx.device_types.get(new_id("acc"), kind.device_type_id) is None
        await tx.device_types.delete(kind.device_type_id)
        assert await tx.device_types.get(account_id, kind.device_type_id) is None
        assert list(await tx.definitions.list_by_device_type(kind.device_type_id)) == []
        assert (await tx.devices.find(world.device.device_id)).device_type_id is None


async def test_a_command_name_is_free_once_a_device(world: StoredAccount) -> None:
    first, second = a_definition(world), a_definition(world, name="BLINK", params_schema=None)
    async with world.uow.write() as tx:
        await tx.definitions.add(first)
        await tx.definitions.add(second)
        assert list(await tx.definitions.list_by_device(world.device.device_id)) == [first, second]
    for refused in ("add", "save"):
        with pytest.raises(Conflict) as caught:
            async with world.uow.write() as tx:
                await getattr(tx.definitions, refused)(a_definition(world) if refused == "add" else replace(second, name="DIM"))
        assert caught.value.code == "COMMAND_EXISTS"
    async with world.uow.write() as tx:
        await tx.definitions.save(replace(second, label="Blink!", requires_approval=False))
        assert (await tx.definitions.get_for_update(world.account.account_id, second.command_id)).label == "Blink!"
        await tx.definitions.delete(first.command_id)
        assert await tx.definitions.get_for_update(world.account.account_id, first.command_id) is None


async def test_many_devices_are_found_switched_and_revised_together(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        others = [await tx.devices.add(a_device(world.account.account_id, world.project.project_id)) for _ in range(3)]
        ids = [device.device_id for device in others]
        found = await tx.devices.list_by_ids([*ids[:2], ids[0], new_id("dev")])
        assert sorted(found, key=lambda device: device.device_no) == others[:2]
        assert list(await tx.devices.list_by_ids([])) == []
        await tx.devices.set_relay_many({ids[0]: True, ids[1]: False, new_id("dev"): True}, 5)
        await tx.devices.increment_plan_revisions([ids[1], ids[2], new_id("dev")])
        await tx.devices.increment_plan_revisions([])
    async with world.uow.read() as tx:
        stored = sorted(await tx.devices.list_by_ids(ids), key=lambda device: device.device_no)
        assert [(device.relay, device.sched_rev) for device in stored] == [(True, 0), (False, 1), (None, 1)]
