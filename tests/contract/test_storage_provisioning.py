"""Provisioning codes and claims: stored, found, counted, and gone with their code."""

from __future__ import annotations

from dataclasses import replace

from domain.accounts.model import Membership, User
from domain.devices.model import FirmwareProfile
from domain.kernel.caller import Role
from domain.kernel.clock import TimeSpan
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode
from support.storage import NOW, StoredAccount, new_id


async def a_code(world: StoredAccount) -> ProvisioningCode:
    account_id = world.account.account_id
    user = User(new_id("usr"), f"{new_id('usr')}@example.com", "Admin", "hash", True, NOW, NOW)
    membership = Membership(new_id("mbr"), account_id, user.user_id, Role.ADMIN, NOW)
    code_id = new_id("pvc")
    code = ProvisioningCode(
        code_id=code_id,
        account_id=account_id,
        name="Hall",
        prefix="lbp_abcd",
        code_hash=code_id.encode(),
        project_id=world.project.project_id,
        board_type="ESP32",
        app_type="PUMP",
        profile=FirmwareProfile.NATIVE,
        device_type_id=None,
        tags=("a", "b"),
        max_devices=3,
        claimed_count=0,
        requires_approval=True,
        expires_ms=NOW + 1,
        created_by=membership.membership_id,
        created_ms=NOW,
        hardware_ids=("AA:01", "AA:02"),
    )
    async with world.uow.write() as tx:
        await tx.users.add(user)
        await tx.memberships.add(membership)
        await tx.provisioning_codes.add(code)
    return code


def a_claim(code: ProvisioningCode, hardware_id: str, status: ClaimStatus = ClaimStatus.PENDING) -> DeviceProvisioningClaim:
    claim_id = new_id("clm")
    return DeviceProvisioningClaim(
        claim_id, code.code_id, code.account_id, hardware_id, None, "192.0.2.1", status, None, NOW, claim_id.encode()
    )


async def test_a_code_is_found_by_its_hash_and_counts_its_claims(world: StoredAccount) -> None:
    code, other = await a_code(world), await a_code(world)
    async with world.uow.write() as tx:
        assert await tx.provisioning_codes.find_by_hash_for_update(code.code_hash) == code
        assert await tx.provisioning_codes.find_by_hash_for_update(b"?") is None
        assert list(await tx.provisioning_codes.list_by_account(code.account_id)) == [code, other]
        assert await tx.provisioning_codes.get_for_update(new_id("acc"), code.code_id) is None
        await tx.provisioning_codes.set_claimed_count(code.code_id, 2)
        assert await tx.provisioning_codes.get_for_update(code.account_id, code.code_id) == replace(code, claimed_count=2)


async def test_claims_are_listed_newest_first_and_go_with_their_code(world: StoredAccount) -> None:
    code, other = await a_code(world), await a_code(world)
    first, second, third = a_claim(code, "one"), a_claim(code, "two", ClaimStatus.DENIED), a_claim(other, "one")
    account_id = code.account_id
    async with world.uow.write() as tx:
        for each in (first, second, third):
            await tx.device_claims.upsert(each)
        approved = replace(first, status=ClaimStatus.APPROVED, decided_by="user:x", decided_ms=NOW)
        await tx.device_claims.upsert(approved)
        assert await tx.device_claims.find_for_update(code.code_id, "one") == approved
        assert await tx.device_claims.find_for_update(code.code_id, "three") is None
        assert await tx.device_claims.get_for_update(account_id, first.claim_id) == approved
        assert await tx.device_claims.get_for_update(new_id("acc"), first.claim_id) is None
        assert await tx.device_claims.count(code.code_id, ClaimStatus.APPROVED) == 1
        assert list(await tx.device_claims.list_by_account(account_id, None, None, 9)) == [third, second, approved]
        newest = await tx.device_claims.list_by_account(account_id, None, None, 2)
        assert list(await tx.device_claims.list_by_account(account_id, None, (newest[0].created_ms, newest[0].seq), 1)) == [
            second
        ]
        assert list(await tx.device_claims.list_by_account(account_id, ClaimStatus.DENIED, None, 9)) == [second]
        assert list(
            await tx.device_claims.list_by_account(account_id, ClaimStatus.APPROVED, (newest[1].created_ms, newest[1].seq), 9)
        ) == [approved]
        times = [each.created_ms for each in (third, second, approved)]
        for span in (TimeSpan(second.created_ms), TimeSpan(None, second.created_ms), TimeSpan(*sorted(times)[:2])):
            found = await tx.device_claims.list_by_account(account_id, None, None, 9, span)
            assert list(found) == [each for each in (third, second, approved) if span.contains(each.created_ms)]
        await tx.device_claims.delete(second.claim_id)
        assert list(await tx.device_claims.list_by_account(account_id, None, None, 9)) == [third, approved]
        await tx.provisioning_codes.delete(code.code_id)
        assert list(await tx.device_claims.list_by_account(account_id, None, None, 9)) == [third]


async def test_a_claim_outlives_its_device(world: StoredAccount) -> None:
    code = await a_code(world)
    claim = replace(a_claim(code, "one", ClaimStatus.CLAIMED), device_id=world.device.device_id, claimed_ms=NOW)
    async with world.uow.write() as tx:
        await tx.device_claims.upsert(claim)
        await tx.devices.delete(world.device.device_id, NOW)
        assert await tx.device_claims.find_for_update(code.code_id, "one") == replace(claim, device_id=None)
