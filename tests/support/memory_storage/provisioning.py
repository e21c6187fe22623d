"""Provisioning codes and claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, ClaimId, ProvisioningCodeId
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode
from support.memory_storage.tables import Database, Table, newest_first

CODES: Table[ProvisioningCodeId, ProvisioningCode] = Table("provisioning_codes")
CLAIMS: Table[ClaimId, DeviceProvisioningClaim] = Table("device_claims")


class MemoryProvisioningCodeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, code: ProvisioningCode) -> None:
        self._database.writable_rows(CODES)[code.code_id] = code

    async def get_for_update(self, account_id: AccountId, code_id: ProvisioningCodeId) -> ProvisioningCode | None:
        code = self._database.rows(CODES).get(code_id)
        return code if code is not None and code.account_id == account_id else None

    async def find_by_hash_for_update(self, code_hash: bytes) -> ProvisioningCode | None:
        return next((code for code in self._database.rows(CODES).values() if code.code_hash == code_hash), None)

    async def list_by_account(self, account_id: AccountId) -> Sequence[ProvisioningCode]:
        return [code for code in self._database.rows(CODES).values() if code.account_id == account_id]

    async def set_claimed_count(self, code_id: ProvisioningCodeId, count: int) -> None:
        rows = self._database.writable_rows(CODES)
        rows[code_id] = replace(rows[code_id], claimed_count=count)

    async def delete(self, code_id: ProvisioningCodeId) -> None:
        self._database.delete(CLAIMS, [key for key, each in self._database.rows(CLAIMS).items() if each.code_id == code_id])
        self._database.delete(CODES, [code_id])


class MemoryProvisioningClaimRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def upsert(self, claim: DeviceProvisioningClaim) -> None:
        rows = self._database.writable_rows(CLAIMS)
        seq = rows[claim.claim_id].seq if claim.claim_id in rows else self._database.next_value("claim_seq")
        rows[claim.claim_id] = replace(claim, seq=seq)

    async def get_for_update(self, account_id: AccountId, claim_id: ClaimId) -> DeviceProvisioningClaim | None:
        claim = self._database.rows(CLAIMS).get(claim_id)
        return claim if claim is not None and claim.account_id == account_id else None

    async def find_for_update(self, code_id: ProvisioningCodeId, hardware_id: str) -> DeviceProvisioningClaim | None:
        every = self._database.rows(CLAIMS).values()
        return next((each for each in every if (each.code_id, each.hardware_id) == (code_id, hardware_id)), None)

    async def count(self, code_id: ProvisioningCodeId, status: ClaimStatus) -> int:
        return sum((each.code_id, each.status) == (code_id, status) for each in self._database.rows(CLAIMS).values())

    async def delete(self, claim_id: ClaimId) -> None:
        self._database.delete(CLAIMS, [claim_id])

    async def list_by_account(
        self, account_id: AccountId, status: ClaimStatus | None, before: Position | None, limit: int, created: TimeSpan = ANY_TIME
    ) -> Sequence[DeviceProvisioningClaim]:
        every = self._database.rows(CLAIMS).values()
        chosen = [each for each in every if each.account_id == account_id and status in (None, each.status)]
        return newest_first(chosen, limit, before, created)
