"""Store a command that needs approval, with its requester: their permission is checked again when it is approved."""

from __future__ import annotations

from typing import Protocol

from domain.accounts.ports import HasMemberships, HasUsers
from domain.approvals.model import APPROVAL_TTL_MS, MAX_PENDING_PER_DEVICE, Approval, ApprovalStatus, Requester
from domain.approvals.ports import HasApprovals
from domain.commands.model import CommandRequest
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.errors import Conflict, PermissionDenied
from domain.kernel.ids import ApprovalId, GrantId
from domain.keys.ports import HasApiKeys


class ApprovalRequestTx(HasApiKeys, HasApprovals, HasMemberships, HasUsers, Protocol): ...


async def create_approval(
    tx: ApprovalRequestTx,
    approval_id: ApprovalId,
    caller: Session | ApiKeyCaller,
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
    approval = Approval(
        approval_id=approval_id,
        account_id=request.device.account_id,
        device_id=request.device.device_id,
        cmd=request.cmd,
        params=request.params,
        ttl_ms=request.ttl_ms,
        status=ApprovalStatus.PENDING,
        requested_by=await _requester_from_caller(tx, caller),
        grant_id=grant_id,
        created_ms=now_ms,
        expires_ms=now_ms + APPROVAL_TTL_MS,
        reason=request.reason,
    )
    await tx.approvals.add(approval)
    return approval


async def _requester_from_caller(tx: HasUsers, caller: Session | ApiKeyCaller) -> Requester:
    if isinstance(caller, ApiKeyCaller):
        return Requester(caller.name, key_id=caller.key_id)
    user = await tx.users.get(caller.user_id)
    return Requester(user.name if user else "", membership_id=caller.membership_id, user_id=caller.user_id)


async def resolve_requester(tx: ApprovalRequestTx, approval: Approval) -> Session | ApiKeyCaller:
    """The requester with their current role, which stays so until the transaction ends.

    Raises PermissionDenied `GRANT_MISSING` if they have lost access."""
    requester = approval.requested_by
    if requester.key_id is not None:
        key = await tx.api_keys.get_for_share(approval.account_id, requester.key_id)
        if key is not None and key.enabled:
            return ApiKeyCaller(approval.account_id, key.key_id, key.name)
    elif requester.membership_id is not None:
        member = await tx.memberships.get_for_share(requester.membership_id)
        if member is not None and member.account_id == approval.account_id:
            return Session(approval.account_id, member.user_id, member.membership_id, member.role)
    raise PermissionDenied(f"{requester.name or 'The requester'} no longer has access. Deny the request.", code="GRANT_MISSING")
