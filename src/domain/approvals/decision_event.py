"""The event of an approval's end, however it came about."""

from __future__ import annotations

from domain.approvals.model import Approval
from domain.kernel.caller import Caller, SessionCaller
from domain.kernel.domain_event import DomainEvent, Json


def decided_event(approval: Approval, caller: Caller, reason: str = "") -> DomainEvent:
    """`reason`: why it ended, where nobody decided it."""
    requester = approval.requested_by.name or approval.requested_by.label
    ending = f", because {reason}" if reason else f" ({approval.note})" if approval.note else ""
    by_link: dict[str, Json] = (
        {"via": "link"} if isinstance(caller, SessionCaller) and caller.has_shown_factor is not None else {}
    )
    return DomainEvent.from_caller(
        caller,
        "approval_decided",
        f"{approval.cmd} requested by {requester}: {approval.status}{ending}",
        approval.decided_ms or 0,
        device_id=approval.device_id,
        data={
            "approvalId": approval.approval_id,
            "cmd": approval.cmd,
            "status": approval.status.value,
            "requestedBy": approval.requested_by.label,
            "executionId": approval.execution_id,
            "decidedBy": approval.decided_by,
            "note": approval.note,
            **by_link,
        },
    )
