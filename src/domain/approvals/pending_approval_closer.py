"""Ends the pending requests of an API key or a membership that is deleted: nobody could approve them any more.

They become DENIED by the person who deletes the requester, in the same transaction; an overdue request becomes EXPIRED.
"""

from __future__ import annotations

from functools import partial

from domain.approvals.approval_decision_rules import apply_decision
from domain.approvals.decision_event import decided_event
from domain.approvals.model import ApprovalStatus
from domain.approvals.ports import ApprovalWaiter, PendingApprovalCloserTx
from domain.kernel.caller import SessionCaller
from domain.kernel.ids import KeyId, MembershipId


class PendingApprovalCloser:
    """Implements `PendingApprovalCloserPort` of the accounts part. Who waits for the decision is told at once."""

    def __init__(self, waiter: ApprovalWaiter) -> None:
        self._waiter = waiter

    async def close_requests(
        self,
        tx: PendingApprovalCloserTx,
        caller: SessionCaller,
        now_ms: int,
        *,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
    ) -> None:
        pending = await tx.approvals.list_pending_by_requester(caller.account_id, key_id=key_id, membership_id=membership_id)
        reason = "the member was removed" if key_id is None else "the API key was deleted"
        for approval in pending:
            overdue = now_ms >= approval.expires_ms
            status = ApprovalStatus.EXPIRED if overdue else ApprovalStatus.DENIED
            ended = apply_decision(approval, status, by=None if overdue else caller.label, now_ms=now_ms)
            if await tx.approvals.decide_if_pending(ended):
                await tx.emit(decided_event(ended, caller, reason))
                tx.after_commit(partial(self._waiter.notify, ended))
