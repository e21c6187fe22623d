"""Approvals. `decide_if_pending` is a compare-and-set on the row's status."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, insert, select, update

from adapters.storage.sql.db_session import DbSession, Row
from adapters.storage.sql.row_mapper import from_json, to_json
from adapters.storage.sql.tables import approvals
from adapters.storage.sql.tables.permissions import PENDING_APPROVAL
from domain.approvals.model import Approval, ApprovalStatus, Requester
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, KeyId, MembershipId

a = approvals.c

_SELECT = select(
    a.approval_id,
    a.account_id,
    a.device_id,
    a.cmd,
    a.params,
    a.ttl_ms,
    a.status,
    a.requester_name,
    a.requester_key_id,
    a.requester_membership_id,
    a.requester_user_id,
    a.requester_session_id,
    a.grant_id,
    a.created_ms,
    a.expires_ms,
    a.decided_by,
    a.decided_ms,
    a.execution_id,
    a.reason,
    a.note,
)

ADD = insert(approvals)
GET = _SELECT.where(a.approval_id == bindparam("at_id"), a.account_id == bindparam("at_account"))
DECIDE = update(approvals).where(a.approval_id == bindparam("at_id"), PENDING_APPROVAL).returning(a.seq)
COUNT_PENDING_BY_DEVICE = (
    select(func.count())
    .select_from(approvals)
    .where(a.account_id == bindparam("at_account"), PENDING_APPROVAL, a.device_id == bindparam("at_device"))
)
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
    _SELECT.where(a.account_id == bindparam("at_account"), PENDING_APPROVAL, requester == bindparam("at_requester")).order_by(
        a.seq
    )
    for requester in (a.requester_key_id, a.requester_membership_id)
)
LIST_PENDING_DEVICES = select(a.device_id).where(
    a.account_id == bindparam("at_account"), PENDING_APPROVAL, a.requester_key_id == bindparam("at_requester")
)
LIST_PENDING_COMMANDS = select(a.device_id, a.cmd).where(a.account_id == bindparam("at_account"), PENDING_APPROVAL)
_older = approvals.alias("older")
_BEFORE = select(_older.c.seq).where(_older.c.approval_id == bindparam("at_before")).scalar_subquery()


@cache
def list_statement(device: bool, status: bool, before: bool = False) -> Select[Any]:
    statement = _SELECT.where(a.account_id == bindparam("at_account"))
    if device:
        statement = statement.where(a.device_id == bindparam("at_device"))
    if status:
        statement = statement.where(a.status == bindparam("at_status"))
    if before:
        statement = statement.where(a.seq < _BEFORE)
    return statement.order_by(a.seq.desc()).limit(bindparam("at_limit"))


def approval_from_row(row: Row) -> Approval:
    requester = Requester(*row[7:12])
    approval_id, account_id, device_id, cmd, params, ttl_ms, status = row[:7]
    return Approval(
        approval_id,
        account_id,
        device_id,
        cmd,
        from_json(params),
        ttl_ms,
        ApprovalStatus(status),
        requester,
        *row[12:],
    )


def approval_values(approval: Approval) -> dict[str, Any]:
    return {
        "approval_id": approval.approval_id,
        "account_id": approval.account_id,
        "device_id": approval.device_id,
        "cmd": approval.cmd,
        "params": to_json(approval.params),
        "ttl_ms": approval.ttl_ms,
        "status": approval.status.value,
        "requester_name": approval.requested_by.name,
        "requester_key_id": approval.requested_by.key_id,
        "requester_membership_id": approval.requested_by.membership_id,
        "requester_user_id": approval.requested_by.user_id,
        "requester_session_id": approval.requested_by.session_id,
        "grant_id": approval.grant_id,
        "created_ms": approval.created_ms,
        "expires_ms": approval.expires_ms,
        "decided_by": approval.decided_by,
        "decided_ms": approval.decided_ms,
        "execution_id": approval.execution_id,
        "reason": approval.reason,
        "note": approval.note,
    }


class SqlApprovalRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, approval: Approval) -> None:
        await self._session.write(ADD, **approval_values(approval))

    async def get(self, account_id: AccountId, approval_id: ApprovalId) -> Approval | None:
        rows = await self._session.read(GET, at_id=approval_id, at_account=account_id)
        return approval_from_row(rows[0]) if rows else None

    async def list_newest(
        self,
        account_id: AccountId,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 200,
        before: ApprovalId | None = None,
    ) -> Sequence[Approval]:
        params: dict[str, object] = {"at_account": account_id, "at_limit": limit}
        if device_id is not None:
            params["at_device"] = device_id
        if status is not None:
            params["at_status"] = status.value
        if before is not None:
            params["at_before"] = before
        statement = list_statement(device_id is not None, status is not None, before is not None)
        return [approval_from_row(row) for row in await self._session.read(statement, **params)]

    async def list_pending_by_requester(
        self, account_id: AccountId, *, key_id: KeyId | None, membership_id: MembershipId | None
    ) -> Sequence[Approval]:
        statement = LIST_PENDING_BY_MEMBERSHIP if key_id is None else LIST_PENDING_BY_KEY
        rows = await self._session.read(statement, at_account=account_id, at_requester=key_id or membership_id)
        return [approval_from_row(row) for row in rows]

    async def list_pending_devices(self, account_id: AccountId, key_id: KeyId) -> Sequence[DeviceId]:
        rows = await self._session.read(LIST_PENDING_DEVICES, at_account=account_id, at_requester=key_id)
        return [row[0] for row in rows]

    async def list_pending_commands(self, account_id: AccountId) -> Sequence[tuple[DeviceId, str]]:
        return [(row[0], row[1]) for row in await self._session.read(LIST_PENDING_COMMANDS, at_account=account_id)]

    async def decide_if_pending(self, approval: Approval) -> bool:
        rows = await self._session.write(
            DECIDE,
            at_id=approval.approval_id,
            status=approval.status.value,
            decided_by=approval.decided_by,
            decided_ms=approval.decided_ms,
            execution_id=approval.execution_id,
            note=approval.note,
        )
        return bool(rows)

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int:
        return int((await self._session.read(COUNT_PENDING_BY_DEVICE, at_account=account_id, at_device=device_id))[0][0])

    async def count_all_pending(self) -> int:
        return int((await self._session.read(COUNT_ALL_PENDING))[0][0])

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Approval]:
        return [approval_from_row(row) for row in await self._session.read(LIST_EXPIRED, at_now=now_ms, at_limit=limit)]

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        return len(await self._session.write(DELETE_OLDER_THAN, at_before=created_ms, at_limit=limit))

    async def next_expiry_ms(self) -> int | None:
        found: int | None = (await self._session.read(NEXT_EXPIRY))[0][0]
        return found
