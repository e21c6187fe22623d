"""Approvals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.approvals.model import Approval, ApprovalStatus
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, KeyId, MembershipId
from support.memory_storage.tables import Database, Table, newest_first

APPROVALS: Table[ApprovalId, Approval] = Table("approvals")


class MemoryApprovalRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, approval: Approval) -> None:
        placed = replace(approval, seq=self._database.next_value("approval_seq"))
        self._database.writable_rows(APPROVALS)[approval.approval_id] = placed

    async def get(self, account_id: AccountId, approval_id: ApprovalId) -> Approval | None:
        approval = self._database.rows(APPROVALS).get(approval_id)
        return approval if approval is not None and approval.account_id == account_id else None

    async def list_newest(
        self,
        account_id: AccountId,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 200,
        before: Position | None = None,
        created: TimeSpan = ANY_TIME,
    ) -> Sequence[Approval]:
        chosen = [
            approval
            for approval in self._database.rows(APPROVALS).values()
            if approval.account_id == account_id and device_id in (None, approval.device_id) and status in (None, approval.status)
        ]
        return newest_first(chosen, limit, before, created)

    async def list_pending_by_requester(
        self, account_id: AccountId, *, key_id: KeyId | None, membership_id: MembershipId | None
    ) -> Sequence[Approval]:
        wanted = (account_id, key_id, membership_id)
        return [a for a in self._pending() if (a.account_id, a.requested_by.key_id, a.requested_by.membership_id) == wanted]

    async def list_pending_devices(self, account_id: AccountId, key_id: KeyId) -> Sequence[DeviceId]:
        wanted = (account_id, key_id)
        return list({a.device_id for a in self._pending() if (a.account_id, a.requested_by.key_id) == wanted})

    async def list_pending_commands(self, account_id: AccountId) -> Sequence[tuple[DeviceId, str, int]]:
        return list({(a.device_id, a.cmd, a.channel) for a in self._pending() if a.account_id == account_id})

    async def decide_if_pending(self, approval: Approval) -> bool:
        rows = self._database.writable_rows(APPROVALS)
        stored = rows.get(approval.approval_id)
        if stored is None or stored.status is not ApprovalStatus.PENDING:
            return False
        rows[approval.approval_id] = replace(
            stored,
            status=approval.status,
            decided_by=approval.decided_by,
            decided_ms=approval.decided_ms,
            execution_id=approval.execution_id,
            note=approval.note,
        )
        return True

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int:
        return sum((a.account_id, a.device_id) == (account_id, device_id) for a in self._pending())

    async def count_all_pending(self) -> int:
        return len(list(self._pending()))

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Approval]:
        due = [approval for approval in self._pending() if approval.expires_ms <= now_ms]
        return sorted(due, key=lambda approval: approval.expires_ms)[:limit]

    async def next_expiry_ms(self) -> int | None:
        return min((approval.expires_ms for approval in self._pending()), default=None)

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        oldest = list(self._database.rows(APPROVALS).values())[:limit]
        old = [a for a in oldest if a.status is not ApprovalStatus.PENDING and a.created_ms < created_ms]
        return self._database.delete(APPROVALS, [approval.approval_id for approval in old])

    def _pending(self) -> Sequence[Approval]:
        return [a for a in self._database.rows(APPROVALS).values() if a.status is ApprovalStatus.PENDING]
