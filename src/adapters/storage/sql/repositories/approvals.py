"""Approvals. `decide_if_pending` is a compare-and-set on the row's status."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, select

from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlAccountEntityRepository
from adapters.storage.sql.row_mapper import JSON, EmbeddedDataclassColumns, RowMapper, enum_converter
from adapters.storage.sql.statement_builders import without_none
from adapters.storage.sql.tables import approvals
from adapters.storage.sql.tables.grants_and_approvals import PENDING_APPROVAL
from domain.approvals.model import Approval, ApprovalStatus, Requester
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, KeyId, MembershipId

APPROVAL = RowMapper(
    approvals,
    Approval,
    {"params": JSON, "status": enum_converter(ApprovalStatus)},
    always=("params",),
    nested={"requested_by": EmbeddedDataclassColumns(Requester, "requester_")},
)
APPROVALS = AccountEntityStatements(APPROVAL, "approval_id")

a = approvals.c
_SELECT = APPROVAL.select()
DECIDE = APPROVALS.save.where(PENDING_APPROVAL).returning(a.seq)
_PENDING_IN_ACCOUNT = (APPROVALS.in_account, PENDING_APPROVAL)
COUNT_PENDING_BY_DEVICE = select(func.count()).where(*_PENDING_IN_ACCOUNT, a.device_id == bindparam("at_device"))
COUNT_ALL_PENDING = select(func.count()).select_from(approvals).where(PENDING_APPROVAL)
LIST_EXPIRED = (
    _SELECT.where(PENDING_APPROVAL, a.expires_ms <= bindparam("at_now"))
    .order_by(a.expires_ms, a.seq)
    .limit(bindparam("at_limit"))
)
_OLDEST_BATCH_END = select(func.min(a.seq)).scalar_subquery() + bindparam("at_limit", type_=a.seq.type)
DELETE_OLDER_THAN = (
    delete(approvals)
    .where(a.seq < _OLDEST_BATCH_END, a.created_ms < bindparam("at_before"), a.status != ApprovalStatus.PENDING.value)
    .returning(a.seq)
)
"""Deletes in insertion order, so it needs no index of its own; a pending approval expires within a day."""
NEXT_EXPIRY = select(func.min(a.expires_ms)).where(PENDING_APPROVAL)
LIST_PENDING_BY_KEY, LIST_PENDING_BY_MEMBERSHIP = (
    _SELECT.where(*_PENDING_IN_ACCOUNT, requester == bindparam("at_requester")).order_by(a.seq)
    for requester in (a.requester_key_id, a.requester_membership_id)
)
LIST_PENDING_DEVICES = select(a.device_id).where(*_PENDING_IN_ACCOUNT, a.requester_key_id == bindparam("at_requester"))
LIST_PENDING_COMMANDS = select(a.device_id, a.cmd).where(*_PENDING_IN_ACCOUNT)
_older = approvals.alias("older")
_BEFORE = select(_older.c.seq).where(_older.c.approval_id == bindparam("at_before")).scalar_subquery()


@cache
def list_statement(device: bool, status: bool, before: bool = False) -> Select[Any]:
    statement = _SELECT.where(APPROVALS.in_account)
    if device:
        statement = statement.where(a.device_id == bindparam("at_device"))
    if status:
        statement = statement.where(a.status == bindparam("at_status"))
    if before:
        statement = statement.where(a.seq < _BEFORE)
    return statement.order_by(a.seq.desc()).limit(bindparam("at_limit"))


class SqlApprovalRepository(SqlAccountEntityRepository[Approval]):
    statements = APPROVALS

    async def list_newest(
        self,
        account_id: AccountId,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 200,
        before: ApprovalId | None = None,
    ) -> Sequence[Approval]:
        filters = without_none(at_device=device_id, at_status=status and status.value, at_before=before)
        statement = list_statement(device_id is not None, status is not None, before is not None)
        return await self._list(APPROVAL, statement, at_account=account_id, at_limit=limit, **filters)

    async def list_pending_by_requester(
        self, account_id: AccountId, *, key_id: KeyId | None, membership_id: MembershipId | None
    ) -> Sequence[Approval]:
        statement = LIST_PENDING_BY_MEMBERSHIP if key_id is None else LIST_PENDING_BY_KEY
        return await self._list(APPROVAL, statement, at_account=account_id, at_requester=key_id or membership_id)

    async def list_pending_devices(self, account_id: AccountId, key_id: KeyId) -> Sequence[DeviceId]:
        rows = await self._session.read(LIST_PENDING_DEVICES, at_account=account_id, at_requester=key_id)
        return [row[0] for row in rows]

    async def list_pending_commands(self, account_id: AccountId) -> Sequence[tuple[DeviceId, str]]:
        return [(row[0], row[1]) for row in await self._session.read(LIST_PENDING_COMMANDS, at_account=account_id)]

    async def decide_if_pending(self, approval: Approval) -> bool:
        values = APPROVAL.values(approval)
        decision = {name: values[name] for name in ("status", "decided_by", "decided_ms", "execution_id", "note")}
        return bool(await self._session.write(DECIDE, at_id=approval.approval_id, **decision))

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int:
        return await self._number(COUNT_PENDING_BY_DEVICE, at_account=account_id, at_device=device_id)

    async def count_all_pending(self) -> int:
        return await self._number(COUNT_ALL_PENDING)

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Approval]:
        return await self._list(APPROVAL, LIST_EXPIRED, at_now=now_ms, at_limit=limit)

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLDER_THAN, at_before=created_ms, at_limit=limit)

    async def next_expiry_ms(self) -> int | None:
        return await self._number_or_none(NEXT_EXPIRY)
