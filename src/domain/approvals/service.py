"""Use cases of approvals: list, approve, deny, withdraw and expire.

The decision, the approved command and their events are one transaction, and the decision is stored only if the approval is still
PENDING: of several concurrent decisions one takes effect and the others raise Conflict. When the command is no longer allowed
(the grant was deleted, the device disabled), approving raises that error and the request stays PENDING: it can be approved later,
denied, or left to expire. A command never runs without all its checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Generic, TypeVar

from domain.approvals.model import (
    ALREADY_DECIDED,
    Approval,
    ApprovalStatus,
    apply_decision,
    can_see,
    check_can_decide,
    check_can_withdraw,
)
from domain.approvals.ports import ApprovalsTx, ApprovalWaiter, ApprovedCommandSubmitterPort
from domain.devices.channels import on_channel
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.events.model import Event, EventSearch
from domain.grants.model import AppliesVia, GrantSubject
from domain.kernel.caller import ApiKeyCaller, Caller, Role, SessionCaller, SystemCaller, require_role
from domain.kernel.clock import ANY_TIME, HOUR_MS, Clock, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, Json, event_of
from domain.kernel.errors import Conflict, DomainError, NotFound, Unavailable
from domain.kernel.ids import ApprovalId, DeviceId, ExecutionId, KeyId, MembershipId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.policy import APPROVAL_STEP_UP_TTL_MS
from domain.sign_in.presence import require_factor_of_link, require_second_factor_if_enabled

EXPIRY_BATCH_SIZE = 100
"""Approvals expired in one transaction; a small batch keeps the single writer free for others."""
LIST_LIMIT = 200
PLACED_BEFORE_MS = HOUR_MS
"""Who moved a device within this time before a request counts as its asker."""
TxT = TypeVar("TxT", bound=ApprovalsTx)
"""The service is generic because what submits the approved command lies above this part, and needs its transaction."""


@service
class ApprovalService(Generic[TxT]):
    uow: UnitOfWork[TxT]
    clock: Clock
    submitter: ApprovedCommandSubmitterPort[TxT]
    waiter: ApprovalWaiter
    pending: int = field(default=0, init=False)
    """How many waited, in all accounts, when last looked at."""

    async def list(
        self,
        caller: SessionCaller,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = LIST_LIMIT,
        before: Position | None = None,
        created: TimeSpan = ANY_TIME,
    ) -> Sequence[Approval]:
        """Newest first, for one device or the whole account; `before`: only what is older than this (`created_ms`, `seq`).
        Raises NotFound."""
        async with self.uow.read() as tx:
            if device_id is not None:
                await get_device(tx, caller.account_id, device_id)
            return await tx.approvals.list_newest(
                caller.account_id, device_id=device_id, status=status, limit=limit, before=before, created=created
            )

    async def get(self, caller: SessionCaller | ApiKeyCaller, device_id: DeviceId, approval_id: ApprovalId) -> Approval:
        """Members of every role see every approval, a key the ones it requested. Raises NotFound."""
        async with self.uow.read() as tx:
            approval = await _get_approval(tx, caller, device_id, approval_id)
        if not can_see(caller, approval):
            raise NotFound.for_resource("approval of this device", approval_id)
        return approval

    async def approve(
        self, caller: SessionCaller, device_id: DeviceId, approval_id: ApprovalId, *, note: str | None = None
    ) -> ExecutionId:
        """`note`: a line for the requester.

        Raises PermissionDenied `ROLE_REQUIRED`, `OWN_REQUEST`; NotFound; Conflict `ALREADY_DECIDED`; and the
        errors of submitting the command now."""
        require_role(caller, Role.ADMIN)
        now_ms = self.clock.now_ms()
        try:
            return await self._approve(caller, device_id, approval_id, note, now_ms)
        except (Conflict, NotFound, Unavailable):
            raise
        except DomainError as error:
            await self._log_failed_approval(caller, device_id, approval_id, error, now_ms)
            error.already_logged = True
            raise

    async def deny(self, caller: SessionCaller, device_id: DeviceId, approval_id: ApprovalId, *, note: str | None = None) -> None:
        """Raises PermissionDenied `ROLE_REQUIRED`, NotFound, Conflict `ALREADY_DECIDED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            approval = await _get_approval(tx, caller, device_id, approval_id)
            check_can_decide(caller, approval, ApprovalStatus.DENIED)
            await require_factor_of_link(tx, caller)
            denied = apply_decision(approval, ApprovalStatus.DENIED, by=caller.label, now_ms=now_ms, note=note)
            await self._save_decision(tx, denied, caller)

    async def withdraw(
        self, caller: SessionCaller | ApiKeyCaller, device_id: DeviceId, approval_id: ApprovalId, *, note: str | None = None
    ) -> None:
        """By who asked, who does not want it any more. Raises PermissionDenied `NOT_OWN_REQUEST`, NotFound, Conflict
        `ALREADY_DECIDED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER) as tx:
            approval = await _get_approval(tx, caller, device_id, approval_id)
            if not can_see(caller, approval):
                raise NotFound.for_resource("approval of this device", approval_id)
            check_can_withdraw(caller, approval)
            withdrawn = apply_decision(approval, ApprovalStatus.WITHDRAWN, by=caller.label, now_ms=now_ms, note=note)
            await self._save_decision(tx, withdrawn, caller)

    async def expire_due(self) -> int:
        """Expire a batch of overdue approvals; returns the size of the batch. Each expires once, also with several instances."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            overdue = await tx.approvals.list_expired(now_ms, EXPIRY_BATCH_SIZE)
            for approval in overdue:
                expired = apply_decision(approval, ApprovalStatus.EXPIRED, by=None, now_ms=now_ms)
                if await tx.approvals.decide_if_pending(expired):
                    tx.emit(_decided_event(expired, SystemCaller(approval.account_id, "service", "approvals")))
        return len(overdue)

    async def next_expiry_ms(self) -> int | None:
        async with self.uow.read() as tx:
            self.pending = await tx.approvals.count_all_pending()
            return await tx.approvals.next_expiry_ms()

    async def _approve(
        self, caller: SessionCaller, device_id: DeviceId, approval_id: ApprovalId, note: str | None, now_ms: int
    ) -> ExecutionId:
        async with self.uow.write(caller, Role.ADMIN) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            approval = await _get_approval(tx, caller, device_id, approval_id)
            check_can_decide(caller, approval, ApprovalStatus.APPROVED, await _list_sponsors(tx, approval, device))
            await require_second_factor_if_enabled(tx, caller, now_ms, APPROVAL_STEP_UP_TTL_MS)
            approved = apply_decision(approval, ApprovalStatus.APPROVED, by=caller.label, now_ms=now_ms, note=note)
            execution_id = await self.submitter.submit_approved(tx, approval, device, now_ms)
            await self._save_decision(tx, replace(approved, execution_id=execution_id), caller)
        return execution_id

    async def _log_failed_approval(
        self, caller: SessionCaller, device_id: DeviceId, approval_id: ApprovalId, error: DomainError, now_ms: int
    ) -> None:
        """Log an approval that was attempted and failed; the request stays PENDING."""
        async with self.uow.write(caller=None) as tx:
            text = f"Approval failed: {error.message}"
            tx.emit(event_of(caller, "approval_refused", text, now_ms, device_id, approvalId=approval_id, code=error.code))

    async def _save_decision(self, tx: TxT, approval: Approval, caller: SessionCaller | ApiKeyCaller) -> None:
        """Raises Conflict when another decision was first; the transaction is rolled back with the queued command."""
        if not await tx.approvals.decide_if_pending(approval):
            raise Conflict("Another decision was made at the same moment. Only one takes effect.", code=ALREADY_DECIDED)
        tx.emit(_decided_event(approval, caller))
        tx.after_commit(lambda: self.waiter.notify(approval))


@service
class PendingApprovalCloser:
    """Ends the pending requests of an API key or a membership that is deleted: nobody could approve them any more. They become
    DENIED by the person who deletes the requester, in the same transaction; an overdue request becomes EXPIRED. Who waits for the
    decision is told at once. Implements `PendingApprovalCloserPort` of the accounts part."""

    waiter: ApprovalWaiter

    async def close_requests(
        self,
        tx: ApprovalsTx,
        caller: SessionCaller,
        now_ms: int,
        *,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
    ) -> None:
        pending = await tx.approvals.list_pending_by_requester(caller.account_id, key_id=key_id, membership_id=membership_id)
        reason = "the member was removed" if key_id is None else "the API key was deleted"
        for approval in pending:
            decided = await close_request(tx, self.waiter, approval, caller, now_ms, reason)
            if decided is not None:
                tx.emit(decided)


async def close_request(
    tx: ApprovalsTx, waiter: ApprovalWaiter, approval: Approval, caller: Caller, now_ms: int, reason: str
) -> DomainEvent | None:
    """End a pending request that nobody could approve any more: DENIED, or EXPIRED if overdue. Who waits for the decision is told
    after the commit. The event is to be emitted; None when it was decided meanwhile."""
    overdue = now_ms >= approval.expires_ms
    status = ApprovalStatus.EXPIRED if overdue else ApprovalStatus.DENIED
    ended = apply_decision(approval, status, by=None if overdue else caller.label, now_ms=now_ms)
    if not await tx.approvals.decide_if_pending(ended):
        return None
    tx.after_commit(partial(waiter.notify, ended))
    return _decided_event(ended, caller, reason)


def _decided_event(approval: Approval, caller: Caller, reason: str = "") -> DomainEvent:
    """`reason`: why it ended, where nobody decided it."""
    requester = approval.requested_by.name or approval.requested_by.label
    ending = f", because {reason}" if reason else f" ({approval.note})" if approval.note else ""
    by_link: dict[str, Json] = (
        {"via": "link"} if isinstance(caller, SessionCaller) and caller.has_shown_factor is not None else {}
    )
    return event_of(
        caller,
        "approval_decided",
        f"{on_channel(approval.cmd, approval.channel)} requested by {requester}: {approval.status}{ending}",
        approval.decided_ms or 0,
        approval.device_id,
        approvalId=approval.approval_id,
        cmd=approval.cmd,
        channel=approval.channel,
        status=approval.status.value,
        requestedBy=approval.requested_by.label,
        executionId=approval.execution_id,
        decidedBy=approval.decided_by,
        note=approval.note,
        **by_link,
    )


async def _get_approval(
    tx: ApprovalsTx, caller: SessionCaller | ApiKeyCaller, device_id: DeviceId, approval_id: ApprovalId
) -> Approval:
    await get_device(tx, caller.account_id, device_id)
    approval = await tx.approvals.get(caller.account_id, approval_id)
    if approval is None or approval.device_id != device_id:
        raise NotFound.for_resource("approval of this device", approval_id)
    return approval


async def _list_sponsors(tx: ApprovalsTx, approval: Approval, device: Device) -> set[str]:
    """The labels of those who made the requesting key, or made or changed a grant of it on the device, or put the device where
    such a grant reaches it. Empty for a member's request."""
    key_id = approval.requested_by.key_id
    if key_id is None:
        return set()
    key = await tx.api_keys.get(approval.account_id, key_id)
    grants = await tx.grants.list_by_subject_and_device(GrantSubject(key_id=key_id), device)
    sponsors = {label for grant in grants for label in (grant.created_by, *grant.changed_by)}
    through = {grant.group_id for grant in grants}
    sponsors |= {label for group, label in (await tx.groups.list_adders(device.device_id)).items() if group in through}
    sponsors |= await _list_movers(tx, approval, any(grant.applies_via is AppliesVia.PROJECT for grant in grants))
    return sponsors if key is None else sponsors | {key.created_by}


async def _list_movers(tx: ApprovalsTx, approval: Approval, reached_by_project: bool) -> set[str]:
    """The labels of those who gave the device another type, or another project if a grant reaches it there, while the request
    waited or within an hour before it."""
    placing = {"deviceTypeId", "projectId"} if reached_by_project else {"deviceTypeId"}
    search = EventSearch(since_ms=approval.created_ms - PLACED_BEFORE_MS)
    movers: set[str] = set()
    for kind in ("device_updated", "device_registered") if reached_by_project else ("device_updated",):
        before: int | None = None
        while page := await tx.events.page(
            approval.account_id, limit=LIST_LIMIT, before=before, kind=kind, device_id=approval.device_id, search=search
        ):
            movers |= {event.source for event in page if kind != "device_updated" or placing & _changed_fields(event)}
            before = page[-1].position
    return movers


def _changed_fields(event: Event) -> set[str]:
    fields = event.payload.get("fields")
    return {each for each in fields if isinstance(each, str)} if isinstance(fields, list) else set()
