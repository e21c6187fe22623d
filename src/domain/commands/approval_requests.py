"""Store a command that needs approval, with its requester: their permission is checked again when it is approved."""

from __future__ import annotations

from domain.approvals.model import MAX_PENDING_PER_DEVICE, Approval, ApprovalStatus
from domain.commands.approval_requester_identity import ApprovalRequesterIdentityTx, requester_from_caller
from domain.commands.model import CommandRequest
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import Conflict
from domain.kernel.ids import ApprovalId, GrantId


async def create_approval(
    tx: ApprovalRequesterIdentityTx,
    approval_id: ApprovalId,
    caller: SessionCaller | ApiKeyCaller,
    request: CommandRequest,
    grant_id: GrantId | None,
    now_ms: int,
) -> Approval:
    """Store a pending approval. Raises Conflict `TOO_MANY_QUEUED`: a person must be able to review the list."""
    device = request.device
    if await tx.approvals.count_pending(device.account_id, device.device_id) >= MAX_PENDING_PER_DEVICE:
        raise Conflict(
            f"{MAX_PENDING_PER_DEVICE} requests of this device are waiting for approval. Have some of them decided first.",
            code="TOO_MANY_QUEUED",
        )
    requester, expires_ms = await requester_from_caller(tx, caller, now_ms)
    approval = Approval(
        approval_id=approval_id,
        account_id=request.device.account_id,
        device_id=request.device.device_id,
        cmd=request.cmd,
        params=request.params,
        ttl_ms=request.ttl_ms,
        status=ApprovalStatus.PENDING,
        requested_by=requester,
        grant_id=grant_id,
        created_ms=now_ms,
        expires_ms=expires_ms,
        reason=request.reason,
    )
    await tx.approvals.add(approval)
    return approval
