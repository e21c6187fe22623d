"""A command that needs approval is stored with who asked for it: what they may do is checked again when it is approved."""

from __future__ import annotations

from dataclasses import replace

from domain.approvals.model import (
    APPROVAL_TTL_MS,
    MAX_PENDING_PER_DEVICE,
    MAX_PENDING_PER_PROGRAM,
    WITHDRAWN_COUNTS_MS,
    Approval,
    ApprovalStatus,
    Requester,
)
from domain.commands.model import CommandRequest
from domain.commands.ports import CommandsTx
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import Conflict, PermissionDenied, RateLimited, Unauthenticated
from domain.kernel.ids import ApprovalId, GrantId

RETRY_AFTER_S = 60
"""People decide in minutes."""
LOOKED_AT = 200


async def create_approval(
    tx: CommandsTx,
    approval_id: ApprovalId,
    caller: SessionCaller | ApiKeyCaller,
    request: CommandRequest,
    grant_id: GrantId | None,
    now_ms: int,
) -> Approval:
    """Store a pending approval. Raises Conflict `TOO_MANY_QUEUED`: a person must be able to review the list; RateLimited
    `TOO_MANY_REQUESTS_WAIT` for a program that asks for more than is decided."""
    device = request.device
    if await tx.approvals.count_pending(device.account_id, device.device_id) >= MAX_PENDING_PER_DEVICE:
        raise Conflict(
            f"{MAX_PENDING_PER_DEVICE} requests of this device are waiting for approval. Have some of them decided first.",
            code="TOO_MANY_QUEUED",
        )
    requester, expires_ms = await _requester_of(tx, caller, now_ms)
    await _check_room(tx, caller, requester, now_ms)
    approval = Approval(
        approval_id=approval_id,
        account_id=device.account_id,
        device_id=device.device_id,
        cmd=request.cmd,
        params=request.params,
        ttl_ms=request.ttl_ms,
        status=ApprovalStatus.PENDING,
        requested_by=requester,
        grant_id=grant_id,
        created_ms=now_ms,
        expires_ms=expires_ms,
        reason=request.reason,
        channel=request.channel,
    )
    await tx.approvals.add(approval)
    return approval


async def _check_room(tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, requester: Requester, now_ms: int) -> None:
    """A member who is present asks by hand, and is bounded by the devices alone."""
    if requester.key_id is None and requester.session_id is None:
        return
    key_id, membership_id = requester.key_id, requester.membership_id
    pending = await tx.approvals.list_pending_by_requester(caller.account_id, key_id=key_id, membership_id=membership_id)
    newest = await tx.approvals.list_newest(caller.account_id, limit=LOOKED_AT)
    withdrawn = [each for each in newest if each.status is ApprovalStatus.WITHDRAWN]
    counted = [*pending, *(each for each in withdrawn if each.created_ms > now_ms - WITHDRAWN_COUNTS_MS)]
    if sum(each.requested_by.actor == requester.actor for each in counted) >= MAX_PENDING_PER_PROGRAM:
        raise RateLimited(
            f"{MAX_PENDING_PER_PROGRAM} requests of {requester.name} wait for approval or were withdrawn within the hour, which "
            "is the most. Do not ask again before an Owner or Admin has decided some of them; each ends after 24 hours.",
            retry_after=RETRY_AFTER_S,
            code="TOO_MANY_REQUESTS_WAIT",
        )


async def _requester_of(tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, now_ms: int) -> tuple[Requester, int]:
    """With the time when the request ends: that of a service session or a key, with it at the latest."""
    expires_ms = now_ms + APPROVAL_TTL_MS
    if isinstance(caller, ApiKeyCaller):
        key_ends_ms = expires_ms if caller.expires_ms is None else caller.expires_ms
        return Requester(caller.name, key_id=caller.key_id), min(expires_ms, key_ends_ms)
    user = await tx.users.get(caller.user_id)
    person = Requester(user.name if user else "", membership_id=caller.membership_id, user_id=caller.user_id)
    if caller.operations is None or caller.session_id is None:
        return person, expires_ms
    service = await tx.service_sessions.find_open_for_share(caller.session_id, now_ms)
    if service is None:
        raise Unauthenticated("This service session has expired. Create a new one.", code="TOKEN_EXPIRED")
    name = f"{person.name} (service session {service.name})"
    return replace(person, name=name, session_id=service.session_id), min(expires_ms, service.expires_ms)


async def resolve_requester(tx: CommandsTx, approval: Approval, now_ms: int) -> SessionCaller | ApiKeyCaller:
    """The requester with their current role, which stays so until the transaction ends.

    Raises PermissionDenied `GRANT_MISSING` if they have lost access."""
    requester = approval.requested_by
    if requester.key_id is not None:
        key = await tx.api_keys.get_for_share(approval.account_id, requester.key_id)
        if key is not None and key.enabled and not key.is_expired(now_ms):
            return ApiKeyCaller(approval.account_id, key.key_id, key.name)
    elif requester.membership_id is not None:
        member = await tx.memberships.get_for_share(requester.membership_id)
        caller = None if member is None else member.to_session("")
        if caller is not None and requester.session_id is not None:
            service = await tx.service_sessions.find_open_for_share(requester.session_id, now_ms)
            caller = None if service is None else service.act_for(caller)
        if caller is not None and caller.account_id == approval.account_id:
            return caller
    raise PermissionDenied(f"{requester.name or 'The requester'} no longer has access. Deny the request.", code="GRANT_MISSING")
