"""Provisioning codes. Deleting a code deletes its claims by foreign key.

The devices that claimed their credentials with a provisioning code.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select

from adapters.storage.sql.mapping import (
    JSON_TUPLE,
    AccountEntityStatements,
    RowMapper,
    SqlAccountEntityRepository,
    SqlRepository,
    enum_converter,
)
from adapters.storage.sql.statements import behind, during, for_update, page_start, position_parameters, without_none
from adapters.storage.sql.tables import device_claims, device_types, memberships, projects, provisioning_codes
from domain.devices.model import FirmwareProfile
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, ClaimId, ProvisioningCodeId
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode

CODE = RowMapper(
    provisioning_codes,
    ProvisioningCode,
    {"profile": enum_converter(FirmwareProfile), "tags": JSON_TUPLE, "hardware_ids": JSON_TUPLE},
)

p = provisioning_codes.c

_OWN = p.code_hash == bindparam("at_hash")
_PROJECT = projects.c.project_id == select(p.project_id).where(_OWN).scalar_subquery()
_DEVICE_TYPE = device_types.c.device_type_id == select(p.device_type_id).where(_OWN).scalar_subquery()
_MAKER = memberships.c.membership_id == select(p.created_by).where(_OWN).scalar_subquery()
_LOCKS_OF_PARENTS = (
    select(projects.c.project_id).where(_PROJECT).with_for_update(read=True, key_share=True),
    select(device_types.c.device_type_id).where(_DEVICE_TYPE).with_for_update(read=True, key_share=True),
    select(memberships.c.membership_id).where(_MAKER).with_for_update(read=True),
)
"""On PostgreSQL, what a code is deleted or changed with is locked before the code: who deletes it locks in that order, too."""

CODES = AccountEntityStatements(CODE, "code_id")
FIND_CODE = for_update(CODE.select().where(p.code_hash == bindparam("at_hash")))
SET_CLAIMED = CODES.save.values(claimed_count=bindparam("at_count", type_=p.claimed_count.type))


class SqlProvisioningCodeRepository(SqlAccountEntityRepository[ProvisioningCode]):
    statements = CODES

    async def find_by_hash_for_update(self, code_hash: bytes) -> ProvisioningCode | None:
        if self._takes_locks:
            for lock in _LOCKS_OF_PARENTS:
                await self._session.read(lock, at_hash=code_hash)
        return await self._first(CODE, FIND_CODE[self._session.writable], at_hash=code_hash)

    async def set_claimed_count(self, code_id: ProvisioningCodeId, count: int) -> None:
        await self._session.write(SET_CLAIMED, at_id=code_id, at_count=count)


CLAIM = RowMapper(
    device_claims, DeviceProvisioningClaim, {"status": enum_converter(ClaimStatus)}, computed={"seq": device_claims.c.seq}
)
c = device_claims.c
_OF_CODE = c.code_id == bindparam("at_code")
CLAIMS = AccountEntityStatements(CLAIM, "claim_id")
SAVE_CLAIM = CLAIMS.save.returning(c.seq)
FIND_CLAIM = for_update(CLAIM.select().where(_OF_CODE, c.hardware_id == bindparam("at_hardware")))
COUNT_CLAIMS = select(func.count()).select_from(device_claims).where(_OF_CODE, c.status == bindparam("at_status"))
_BEHIND = behind(c.created_ms, c.seq, descending=True)
_LIST = (
    CLAIM.select()
    .where(c.account_id == bindparam("at_account"))
    .order_by(c.created_ms.desc(), c.seq.desc())
    .limit(bindparam("at_limit"))
)
_WITH_STATUS = _LIST.where(c.status == bindparam("at_status"))
LIST_CLAIMS = {
    (False, False): _LIST,
    (False, True): _LIST.where(_BEHIND),
    (True, False): _WITH_STATUS,
    (True, True): _WITH_STATUS.where(_BEHIND),
}
"""By whether a status, and whether a position to begin behind, is given."""


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

    async def delete(self, claim_id: ClaimId) -> None:
        await self._session.write(CLAIMS.delete, at_id=claim_id)

    async def list_by_account(
        self, account_id: AccountId, status: ClaimStatus | None, before: Position | None, limit: int, created: TimeSpan = ANY_TIME
    ) -> Sequence[DeviceProvisioningClaim]:
        start, rest = page_start(before, created)
        filters = without_none(at_status=status and status.value) | position_parameters(start or ())
        statement, span = during(LIST_CLAIMS[status is not None, start is not None], c.created_ms, rest)
        return await self._list(CLAIM, statement, at_account=account_id, at_limit=limit, **filters, **span)
