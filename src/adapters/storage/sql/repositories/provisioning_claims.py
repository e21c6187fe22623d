"""The devices that claimed their credentials with a provisioning code."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select

from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlRepository
from adapters.storage.sql.row_mapper import RowMapper, enum_converter
from adapters.storage.sql.statement_builders import for_update, without_none
from adapters.storage.sql.tables import device_claims
from domain.kernel.ids import AccountId, ClaimId, ProvisioningCodeId
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim

CLAIM = RowMapper(device_claims, DeviceProvisioningClaim, {"status": enum_converter(ClaimStatus)})
c = device_claims.c
_OF_CODE = c.code_id == bindparam("at_code")
CLAIMS = AccountEntityStatements(CLAIM, "claim_id")
SAVE_CLAIM = CLAIMS.save.returning(c.seq)
FIND_CLAIM = for_update(CLAIM.select().where(_OF_CODE, c.hardware_id == bindparam("at_hardware")))
COUNT_CLAIMS = select(func.count()).select_from(device_claims).where(_OF_CODE, c.status == bindparam("at_status"))
_BEFORE = select(c.seq).where(c.claim_id == bindparam("at_before")).scalar_subquery()
_LIST = CLAIM.select().where(c.account_id == bindparam("at_account")).order_by(c.seq.desc()).limit(bindparam("at_limit"))
_WITH_STATUS = _LIST.where(c.status == bindparam("at_status"))
LIST_CLAIMS = {
    (False, False): _LIST,
    (False, True): _LIST.where(c.seq < _BEFORE),
    (True, False): _WITH_STATUS,
    (True, True): _WITH_STATUS.where(c.seq < _BEFORE),
}
"""By whether a status, and whether a claim to begin after, is given."""


class SqlDeviceProvisioningClaimRepository(SqlRepository):
    async def upsert(self, claim: DeviceProvisioningClaim) -> None:
        if not await self._session.write(SAVE_CLAIM, at_id=claim.claim_id, **CLAIM.values(claim, "claim_id")):
            await self._session.write(CLAIMS.add, **CLAIM.values(claim))

    async def get_for_update(self, account_id: AccountId, claim_id: ClaimId) -> DeviceProvisioningClaim | None:
        statement = CLAIMS.get[self._session.writable]
        return await self._first(CLAIM, statement, at_id=claim_id, at_account=account_id)

    async def find_for_update(self, code_id: ProvisioningCodeId, hardware_id: str) -> DeviceProvisioningClaim | None:
        statement = FIND_CLAIM[self._session.writable]
        return await self._first(CLAIM, statement, at_code=code_id, at_hardware=hardware_id)

    async def count(self, code_id: ProvisioningCodeId, status: ClaimStatus) -> int:
        return await self._number(COUNT_CLAIMS, at_code=code_id, at_status=status.value)

    async def list_by_account(
        self, account_id: AccountId, status: ClaimStatus | None, before: ClaimId | None, limit: int
    ) -> Sequence[DeviceProvisioningClaim]:
        filters = without_none(at_status=status and status.value, at_before=before)
        statement = LIST_CLAIMS[status is not None, before is not None]
        return await self._list(CLAIM, statement, at_account=account_id, at_limit=limit, **filters)
