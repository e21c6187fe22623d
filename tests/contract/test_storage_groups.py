"""Groups of devices: their members, and the grants on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.devices.model import DeviceGroup
from domain.devices.search import DeviceSearch
from domain.grants.model import ApiKeyReadAccess, AppliesVia, GrantSubject
from domain.kernel.errors import Conflict
from support.storage import NOW, StoredAccount, a_device, a_grant, new_id


def a_group(world: StoredAccount, name: str = "Pumps") -> DeviceGroup:
    return DeviceGroup(new_id("grp"), world.account.account_id, world.project.project_id, name, None, NOW)


async def test_a_group_comes_back_as_it_went_in_and_names_are_unique_in_a_project(world: StoredAccount) -> None:
    group, other = a_group(world), a_group(world, "Fans")
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        await tx.groups.add(group)
        await tx.groups.add(other)
        assert await tx.groups.get_for_update(account_id, group.group_id) == group
        assert await tx.groups.get(new_id("acc"), group.group_id) is None
        assert list(await tx.groups.list(account_id)) == [group, other]
        assert list(await tx.groups.list(account_id, new_id("prj"))) == []
        renamed = replace(group, name="Wells", description="Outside")
        await tx.groups.save(renamed)
        assert await tx.groups.get(account_id, group.group_id) == renamed
    with pytest.raises(Conflict, match="has a group"):
        async with world.uow.write() as tx:
            await tx.groups.save(replace(other, name="Wells"))


async def test_a_device_carries_the_ids_of_its_groups(world: StoredAccount) -> None:
    first, second = a_group(world), a_group(world, "Fans")
    device_id, account_id = world.device.device_id, world.account.account_id
    async with world.uow.write() as tx:
        for group in (first, second):
            await tx.groups.add(group)
            await tx.groups.add_devices(group.group_id, [device_id], "user:a", NOW)
        await tx.groups.add_devices(first.group_id, [device_id], "user:b", NOW)
    both = tuple(sorted([first.group_id, second.group_id]))
    async with world.uow.read() as tx:
        found = await tx.devices.get(account_id, device_id)
        assert found is not None
        assert found.group_ids == both
        assert await tx.groups.list_adders(device_id) == {first.group_id: "user:a", second.group_id: "user:a"}
        assert list(await tx.groups.list_device_ids([first.group_id])) == [(first.group_id, device_id)]
        assert list(await tx.groups.list_device_ids([])) == []
        [match] = await tx.device_search.find(account_id, DeviceSearch(group_id=first.group_id))
        assert match.device_id == device_id
        assert not await tx.device_search.find(account_id, DeviceSearch(group_id=new_id("grp")))
    async with world.uow.write() as tx:
        assert await tx.devices.save(found)
        await tx.groups.remove_devices(first.group_id, [device_id, new_id("dev")])
        left = await tx.devices.get(account_id, device_id)
        assert left is not None
        assert left.group_ids == (second.group_id,)
        await tx.groups.remove_from_all(device_id)
        assert not await tx.groups.list_adders(device_id)


async def test_a_grant_on_a_group_applies_to_its_members_only(world: StoredAccount) -> None:
    group, subject = a_group(world), GrantSubject(key_id=world.key.key_id)
    grant = a_grant(world, subject=subject, device_id=None, project_id=world.project.project_id, group_id=group.group_id)
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        await tx.groups.add(group)
        await tx.groups.add_devices(group.group_id, [world.device.device_id], "user:a", NOW)
        await tx.grants.add(grant)
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) == grant
        assert grant.applies_via is AppliesVia.GROUP
        assert list(await tx.grants.list_by_group(group.group_id)) == [grant]
        assert list(await tx.grants.list_by_device(world.device)) == [grant]
        assert list(await tx.grants.list_by_device(other)) == []
        assert list(await tx.grants.list_by_subject_and_device(subject, other)) == []
        assert list(await tx.grants.list_by_subject_and_devices(subject, [world.device, other])) == [grant]
        context = await tx.command_contexts.get(world.account.account_id, world.device.device_id, subject)
        assert context is not None
        assert list(context.grants) == [grant]
        elsewhere = await tx.command_contexts.get(world.account.account_id, other.device_id, subject)
        assert elsewhere is not None
        assert list(elsewhere.grants) == []
        access = ApiKeyReadAccess(world.key.key_id, None, world.project.project_id, grant.expires_ms, group.group_id)
        assert list(await tx.grants.list_read_access_by_keys([world.key.key_id])) == [access]
        assert list(await tx.grants.list_read_access_by_devices([world.device.device_id])) == [access]
        assert list(await tx.grants.list_read_access_by_devices([other.device_id])) == []
        assert await tx.grants.lock_membership(grant, world.device.device_id)
        await tx.groups.remove_devices(group.group_id, [world.device.device_id])
        assert list(await tx.grants.list_by_subject_and_device(subject, world.device)) == []


async def test_a_group_goes_with_its_grants_and_a_device_leaves_its_groups(world: StoredAccount) -> None:
    group = a_group(world)
    grant = a_grant(world, device_id=None, project_id=world.project.project_id, group_id=group.group_id)
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        await tx.groups.add(group)
        await tx.groups.add_devices(group.group_id, [world.device.device_id, other.device_id], "user:a", NOW)
        await tx.grants.add(grant)
    async with world.uow.write() as tx:
        await tx.devices.delete(other.device_id, NOW)
        assert [each for _, each in await tx.groups.list_device_ids([group.group_id])] == [world.device.device_id]
        await tx.groups.delete(group.group_id)
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) is None
        device = await tx.devices.get(world.account.account_id, world.device.device_id)
        assert device is not None
        assert device.group_ids == ()
