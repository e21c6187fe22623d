"""Provisioning codes. Deleting a code deletes its claims by foreign key."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlAccountEntityRepository
from adapters.storage.sql.row_mapper import JSON_TUPLE, RowMapper, enum_converter
from adapters.storage.sql.statement_builders import for_update
from adapters.storage.sql.tables import device_types, memberships, projects, provisioning_codes
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import ProvisioningCodeId
from domain.provisioning.model import ProvisioningCode

CODE = RowMapper(provisioning_codes, ProvisioningCode, {"profile": enum_converter(FirmwareProfile), "tags": JSON_TUPLE})

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
