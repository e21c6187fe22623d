"""Provisioning codes and claims. Deleting a code deletes its claims by foreign key."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update

from adapters.storage.sql.db_session import POSTGRES, DbSession
from adapters.storage.sql.row_mapper import Converter, RowMapper, enum_converter, for_update, from_json, to_json
from adapters.storage.sql.tables import device_claims, device_types, memberships, projects, provisioning_codes
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import AccountId, ClaimId, ProvisioningCodeId
from domain.provisioning.model import ClaimStatus, DeviceClaim, ProvisioningCode

_TAGS: Converter = (to_json, lambda text: tuple(from_json(text)))
CODE = RowMapper(provisioning_codes, ProvisioningCode, {"profile": enum_converter(FirmwareProfile), "tags": _TAGS})
CLAIM = RowMapper(device_claims, DeviceClaim, {"status": enum_converter(ClaimStatus)})

p, c = provisioning_codes.c, device_claims.c
_CODE_ID = p.code_id == bindparam("at_id")
_OF_CODE = c.code_id == bindparam("at_code")

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

ADD_CODE = insert(provisioning_codes)
GET_CODE = for_update(CODE.select().where(_CODE_ID, p.account_id == bindparam("at_account")))
FIND_CODE = for_update(CODE.select().where(p.code_hash == bindparam("at_hash")))
LIST_CODES = CODE.select().where(p.account_id == bindparam("at_account")).order_by(p.seq)
SET_CLAIMED = update(provisioning_codes).where(_CODE_ID).values(claimed_count=bindparam("at_count", type_=p.claimed_count.type))
DELETE_CODE = delete(provisioning_codes).where(_CODE_ID)

ADD_CLAIM = insert(device_claims)
SAVE_CLAIM = update(device_claims).where(c.claim_id == bindparam("at_id")).returning(c.seq)
GET_CLAIM = for_update(CLAIM.select().where(c.claim_id == bindparam("at_id"), c.account_id == bindparam("at_account")))
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


class SqlProvisioningCodeRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, code: ProvisioningCode) -> None:
        await self._session.write(ADD_CODE, **CODE.values(code))

    async def get_for_update(self, account_id: AccountId, code_id: ProvisioningCodeId) -> ProvisioningCode | None:
        statement = GET_CODE[self._session.writable]
        return CODE.first_or_none(await self._session.read(statement, at_id=code_id, at_account=account_id))

    async def find_by_hash_for_update(self, code_hash: bytes) -> ProvisioningCode | None:
        if self._session.writable and self._session.dialect == POSTGRES:
            for lock in _LOCKS_OF_PARENTS:
                await self._session.read(lock, at_hash=code_hash)
        return CODE.first_or_none(await self._session.read(FIND_CODE[self._session.writable], at_hash=code_hash))

    async def list_by_account(self, account_id: AccountId) -> Sequence[ProvisioningCode]:
        return [CODE.from_row(row) for row in await self._session.read(LIST_CODES, at_account=account_id)]

    async def set_claimed_count(self, code_id: ProvisioningCodeId, count: int) -> None:
        await self._session.write(SET_CLAIMED, at_id=code_id, at_count=count)

    async def delete(self, code_id: ProvisioningCodeId) -> None:
        await self._session.write(DELETE_CODE, at_id=code_id)


class SqlDeviceClaimRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def upsert(self, claim: DeviceClaim) -> None:
        if not await self._session.write(SAVE_CLAIM, at_id=claim.claim_id, **CLAIM.values(claim, "claim_id")):
            await self._session.write(ADD_CLAIM, **CLAIM.values(claim))

    async def get_for_update(self, account_id: AccountId, claim_id: ClaimId) -> DeviceClaim | None:
        statement = GET_CLAIM[self._session.writable]
        return CLAIM.first_or_none(await self._session.read(statement, at_id=claim_id, at_account=account_id))

    async def find_for_update(self, code_id: ProvisioningCodeId, hardware_id: str) -> DeviceClaim | None:
        statement = FIND_CLAIM[self._session.writable]
        return CLAIM.first_or_none(await self._session.read(statement, at_code=code_id, at_hardware=hardware_id))

    async def count(self, code_id: ProvisioningCodeId, status: ClaimStatus) -> int:
        return int((await self._session.read(COUNT_CLAIMS, at_code=code_id, at_status=status.value))[0][0])

    async def list_by_account(
        self, account_id: AccountId, status: ClaimStatus | None, before: ClaimId | None, limit: int
    ) -> Sequence[DeviceClaim]:
        given = {"at_status": None if status is None else status.value, "at_before": before}
        filters = {name: value for name, value in given.items() if value is not None}
        statement = LIST_CLAIMS[status is not None, before is not None]
        rows = await self._session.read(statement, at_account=account_id, at_limit=limit, **filters)
        return [CLAIM.from_row(row) for row in rows]
