"""Grants and approvals."""

from __future__ import annotations

from dataclasses import replace

from domain.approvals.model import ApprovalStatus, Requester
from domain.grants.model import ApiKeyReadAccess, GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.clock import TimeSpan
from support.storage import NOW, StoredAccount, a_device, a_grant, a_key, an_approval, new_id


async def test_a_grant_comes_back_as_it_went_in(world: StoredAccount) -> None:
    grant = a_grant(world)
    async with world.uow.write() as tx:
        await tx.grants.add(grant)
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) == grant
        assert await tx.grants.get_for_update(new_id("acc"), grant.grant_id) is None
        changed = replace(
            grant, commands=("*",), scope=Scope.FULL, window=WeeklyGrantWindow(), rate_limit_per_minute=None, expires_ms=5
        )
        await tx.grants.save(changed)
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) == changed
        await tx.grants.delete(grant.grant_id)
        assert await tx.grants.get_for_update(world.account.account_id, grant.grant_id) is None


async def test_grants_on_a_device_are_its_own_and_its_projects_oldest_first(world: StoredAccount) -> None:
    key, member = world.key.key_id, GrantSubject(membership_id=world.membership.membership_id)
    other_device = a_device(world.account.account_id, world.project.project_id)
    wide = a_grant(world, device_id=None, project_id=world.project.project_id)
    own = a_grant(world, created_ms=NOW - 9)
    personal = a_grant(world, subject=member)
    async with world.uow.write() as tx:
        other_device = await tx.devices.add(other_device)
        elsewhere = a_grant(world, device_id=other_device.device_id)
        for grant in (wide, own, personal, elsewhere):
            await tx.grants.add(grant)
        assert list(await tx.grants.list_by_device(world.device)) == [wide, own, personal]
        assert list(await tx.grants.list_by_subject_and_device(GrantSubject(key_id=key), world.device)) == [wide, own]
        assert list(await tx.grants.list_by_subject_and_device(member, world.device)) == [personal]
        assert list(await tx.grants.list_by_key(world.account.account_id, key)) == [wide, own, elsewhere]
        assert list(await tx.grants.list_by_subject(world.account.account_id, member)) == [personal]
        assert list(await tx.grants.list_by_key(new_id("acc"), key)) == []


async def test_read_access_is_listed_by_keys_and_by_devices(world: StoredAccount) -> None:
    expired, second = a_key(world.account.account_id), a_key(world.account.account_id)
    async with world.uow.write() as tx:
        await tx.api_keys.add(expired)
        await tx.api_keys.add(second)
        await tx.grants.add(a_grant(world, expires_ms=NOW + 1))
        await tx.grants.add(a_grant(world))
        await tx.grants.add(a_grant(world, subject=GrantSubject(key_id=expired.key_id), expires_ms=NOW))
        await tx.grants.add(
            a_grant(world, subject=GrantSubject(key_id=second.key_id), device_id=None, project_id=world.project.project_id)
        )
        await tx.grants.add(a_grant(world, subject=GrantSubject(membership_id=world.membership.membership_id)))
        here, around = world.device.device_id, world.project.project_id
        mine = [ApiKeyReadAccess(world.key.key_id, here, None, NOW + 1), ApiKeyReadAccess(world.key.key_id, here, None, None)]
        wide = ApiKeyReadAccess(second.key_id, None, around, None)
        assert set(await tx.grants.list_read_access_by_keys([world.key.key_id, second.key_id, new_id("key")])) == {*mine, wide}
        assert set(await tx.grants.list_read_access_by_devices([here, new_id("dev")])) == {
            *mine,
            ApiKeyReadAccess(expired.key_id, here, None, NOW),
            wide,
        }
        assert not await tx.grants.list_read_access_by_keys([])
        assert not await tx.grants.list_read_access_by_devices([new_id("dev")])


async def test_uses_are_read_newest_first_and_deleted_oldest_first(world: StoredAccount) -> None:
    grant = a_grant(world)
    async with world.uow.write() as tx:
        await tx.grants.add(grant)
        assert list(await tx.grants.list_recent_uses(grant, 0, NOW + 60_000, 9)) == []
        for offset_ms in (10_000, 0, 60_000):
            await tx.grants.add_use(grant.grant_id, NOW + offset_ms)
        assert list(await tx.grants.list_recent_uses(grant, NOW - 1, NOW + 60_000, 9)) == [NOW + 60_000, NOW + 10_000, NOW]
        assert list(await tx.grants.list_recent_uses(grant, NOW, NOW + 60_000, 9)) == [NOW + 60_000, NOW + 10_000]
        assert list(await tx.grants.list_recent_uses(grant, NOW - 1, NOW + 60_000, 1)) == [NOW + 60_000]
        assert list(await tx.grants.list_recent_uses(grant, NOW - 1, NOW + 59_999, 1)) == [NOW + 10_000]
        assert [await tx.grants.delete_uses_older_than(NOW + 20_000, 1) for _ in range(3)] == [1, 1, 0]
        assert list(await tx.grants.list_recent_uses(grant, 0, NOW + 60_000, 9)) == [NOW + 60_000]


async def test_an_approval_comes_back_as_it_went_in(world: StoredAccount) -> None:
    requested = an_approval(world, requested_by=Requester("Ada", None, world.membership.membership_id, world.user.user_id))
    async with world.uow.write() as tx:
        await tx.approvals.add(requested)
        assert await tx.approvals.get(world.account.account_id, requested.approval_id) == requested
        assert await tx.approvals.get(new_id("acc"), requested.approval_id) is None


async def test_approvals_are_listed_newest_first_by_device_and_status(world: StoredAccount) -> None:
    account_id = world.account.account_id
    waiting = [an_approval(world, params=None) for _ in range(3)]
    denied = replace(waiting[1], status=ApprovalStatus.DENIED, decided_by="user:1", decided_ms=NOW)
    async with world.uow.write() as tx:
        for approval in waiting:
            await tx.approvals.add(approval)
        assert await tx.approvals.decide_if_pending(denied)
        assert not await tx.approvals.decide_if_pending(replace(denied, status=ApprovalStatus.APPROVED))
        assert not await tx.approvals.decide_if_pending(an_approval(world))
        assert list(await tx.approvals.list_newest(account_id)) == [waiting[2], denied, waiting[0]]
        assert list(await tx.approvals.list_newest(account_id, limit=1)) == [waiting[2]]
        assert await tx.approvals.count_pending(account_id, world.device.device_id) == 2
        assert await tx.approvals.count_pending(new_id("acc"), world.device.device_id) == 0
        assert await tx.approvals.count_all_pending() == 2
        assert list(await tx.approvals.list_newest(account_id, status=ApprovalStatus.DENIED)) == [denied]
        assert len(await tx.approvals.list_newest(account_id, device_id=world.device.device_id)) == 3
        assert list(await tx.approvals.list_newest(account_id, device_id=new_id("dev"), status=ApprovalStatus.DENIED)) == []


async def test_a_page_of_approvals_begins_after_the_last_one_of_the_page_before(world: StoredAccount) -> None:
    account_id = world.account.account_id
    approvals = [an_approval(world, created_ms=NOW + number) for number in range(5)]
    async with world.uow.write() as tx:
        for approval in approvals:
            await tx.approvals.add(approval)
    async with world.uow.read() as tx:
        newest = list(await tx.approvals.list_newest(account_id, limit=2))
        older = list(await tx.approvals.list_newest(account_id, limit=2, before=(newest[-1].created_ms, newest[-1].seq)))
        of_device = await tx.approvals.list_newest(
            account_id,
            device_id=world.device.device_id,
            status=ApprovalStatus.PENDING,
            before=(older[-1].created_ms, older[-1].seq),
        )
        of_time = [
            list(await tx.approvals.list_newest(account_id, created=span))
            for span in (TimeSpan(NOW + 2), TimeSpan(None, NOW + 2), TimeSpan(NOW + 2, NOW + 3))
        ]
    assert of_time == [approvals[:1:-1], approvals[1::-1], approvals[2:3]]
    assert [*newest, *older, *of_device] == approvals[::-1]


async def test_pending_approvals_are_found_by_their_requester(world: StoredAccount) -> None:
    account_id, key_id = world.account.account_id, new_id("key")
    member = Requester("Ada", None, world.membership.membership_id, world.user.user_id)
    by_key, decided = (an_approval(world, requested_by=Requester("Robot", key_id)) for _ in range(2))
    by_member, other = an_approval(world, requested_by=member), an_approval(world, requested_by=Requester("X", new_id("key")))
    async with world.uow.write() as tx:
        for approval in (by_key, decided, by_member, other):
            await tx.approvals.add(approval)
        assert await tx.approvals.decide_if_pending(replace(decided, status=ApprovalStatus.DENIED))
        found = tx.approvals.list_pending_by_requester
        assert list(await found(account_id, key_id=key_id, membership_id=None)) == [by_key]
        assert list(await found(account_id, key_id=None, membership_id=world.membership.membership_id)) == [by_member]
        assert list(await found(new_id("acc"), key_id=key_id, membership_id=None)) == []


async def test_expired_approvals_are_listed_oldest_first(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert await tx.approvals.next_expiry_ms() is None
        late, later, fine = (an_approval(world, expires_ms=NOW + offset) for offset in (-5, 0, 5))
        for approval in (later, fine, late):
            await tx.approvals.add(approval)
        assert list(await tx.approvals.list_expired(NOW, 9)) == [late, later]
        assert list(await tx.approvals.list_expired(NOW, 1)) == [late]
        assert await tx.approvals.next_expiry_ms() == NOW - 5
        await tx.approvals.decide_if_pending(replace(late, status=ApprovalStatus.EXPIRED, decided_ms=NOW))
        assert await tx.approvals.next_expiry_ms() == NOW


async def test_a_subjects_grants_on_many_devices_come_together_oldest_first(world: StoredAccount) -> None:
    member = GrantSubject(membership_id=world.membership.membership_id)
    async with world.uow.write() as tx:
        other = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        third = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        mine = a_grant(world, subject=member)
        wide = a_grant(world, subject=member, device_id=None, project_id=world.project.project_id)
        theirs = a_grant(world, subject=member, device_id=other.device_id)
        for grant in (mine, wide, theirs, a_grant(world), a_grant(world, subject=member, device_id=third.device_id)):
            await tx.grants.add(grant)
        assert list(await tx.grants.list_by_subject_and_devices(member, [world.device, other])) == [mine, wide, theirs]
        assert list(await tx.grants.list_by_subject_and_devices(GrantSubject(key_id=new_id("key")), [world.device])) == []


async def test_decided_approvals_are_deleted_oldest_first_and_pending_ones_stay(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        assert await tx.approvals.delete_older_than(NOW, 5) == 0
        made = [an_approval(world, created_ms=NOW + number, expires_ms=NOW + 10**9) for number in range(4)]
        for approval in made:
            await tx.approvals.add(approval)
        for approval in (made[0], made[2], made[3]):
            await tx.approvals.decide_if_pending(replace(approval, status=ApprovalStatus.DENIED, decided_ms=NOW))
        assert await tx.approvals.delete_older_than(NOW + 3, 1) == 1
        assert await tx.approvals.delete_older_than(NOW + 3, 5) == 1
        assert await tx.approvals.delete_older_than(NOW + 3, 5) == 0
        left = await tx.approvals.list_newest(world.account.account_id)
    assert [approval.approval_id for approval in left] == [made[3].approval_id, made[1].approval_id]
