"""What is queued lives under the authority that asked for it.

Authority ends in many places: a device is revoked, a key is deleted or disabled, a member is removed or has a lower role, a
grant is deleted or narrowed, a device leaves a group. Each of them emits an event, so this part follows the events of each
transaction (`FollowUpPort`): in the same transaction, what may no longer run becomes CANCELLED, and who waits for it is told
after the commit. What has waited is checked again just before it is sent, because a grant may have expired meanwhile, or its
window closed.

What was sent cannot be called back. When its device is cut off, nobody will answer, so it ends as TIMED_OUT; it is not sent
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from domain.accounts.model import Membership
from domain.approvals.model import ApprovalStatus
from domain.approvals.ports import ApprovalWaiter
from domain.approvals.service import close_request
from domain.commands.contexts import load_contexts, permission_request
from domain.commands.model import CommandContext, Execution, ExecutionStatus, TriggeredBy, find_definition
from domain.commands.ports import CommandsTx, ExecutionTransition, ExecutionWaiter
from domain.commands.reports import build_result, command_result_event
from domain.devices.model import Device, DeviceStatus
from domain.grants.authorizer import Principal, required_grant_subject, session_principal
from domain.grants.checks import DENIAL_CODES, GRANT_MISSING, GrantCheckStep, closest_denial, filter_applicable
from domain.grants.model import Grant, GrantEvaluator, GrantSubject
from domain.kernel.caller import Role, SystemCaller
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind
from domain.kernel.errors import PermissionDenied
from domain.kernel.ids import AccountId, DeviceId, ExecutionId, KeyId, MembershipId, SessionId

PAGE_SIZE = 500
OUTSIDE_WINDOW = DENIAL_CODES[GrantCheckStep.WINDOW]
"""Decided when the command would be sent: until then the window may open again."""
KEY_EXPIRED = "KEY_EXPIRED"
CALLED_OFF = "CALLED_OFF"
"""Result code of a command that a caller has called off. The others name what has ended."""
_DEVICE_ENDS: Mapping[EventKind, tuple[str, str]] = {
    "credentials_revoked": ("DEVICE_REVOKED", "the device was revoked"),
    "device_disabled": ("DEVICE_DISABLED", ""),
    "device_deleted": ("DEVICE_DELETED", "the device was deleted"),
}
"""The code of what ends at once, and why requests for approval end; a disabled device may be enabled before the decision."""
REVIEWED: frozenset[EventKind] = frozenset(
    {
        *("key_changed", "key_deleted", "member_changed", "session_revoked", "password_changed"),
        *("grant_updated", "grant_revoked", "group_members_changed", "group_deleted", "device_updated"),
        *("command_defined", "command_updated", "command_removed", "device_type_updated", "device_type_deleted"),
    }
)
"""After these, what is queued in the account is checked again."""


@dataclass(frozen=True, slots=True)
class _Requester:
    """On whose authority executions wait, as of now. `code`: why there is none any more. `ends_ms`: when it ends by itself."""

    principal: Principal | None = None
    code: str | None = None
    ends_ms: int | None = None


RequesterKey = tuple[KeyId | None, MembershipId | None, SessionId | None, bool]
"""The last: whether a person or their program asked, and not an automation."""


@service
class QueuedCommandAuthority:
    """Implements `FollowUpPort`. `forget`: called after the commit with what the dispatcher need not send any more."""

    evaluator: GrantEvaluator
    execution_waiter: ExecutionWaiter
    approval_waiter: ApprovalWaiter
    forget: Callable[[ExecutionId], None]

    async def follow(self, tx: CommandsTx, events: Sequence[DomainEvent]) -> Sequence[DomainEvent]:
        """End what these events take the authority from. Returns the events of that."""
        ended: list[DomainEvent] = []
        for event in events:
            if event.kind in _DEVICE_ENDS and event.device_id is not None:
                ended += await self._end_device(tx, event, event.device_id)
        reviewed = {event.account_id: event for event in events if event.kind in REVIEWED}
        for event in reviewed.values():
            ended += await self._review_account(tx, event)
        return ended

    async def cancel(
        self, tx: CommandsTx, codes: Mapping[ExecutionId, str], executions: Iterable[Execution], source: str, now_ms: int
    ) -> Sequence[DomainEvent]:
        """End those of the executions that have a code; the others stay. The events are to be emitted."""
        moves = [end_without_sending(each, codes[each.execution_id], now_ms) for each in executions if each.execution_id in codes]
        stored = await tx.executions.transition_many(moves)
        events = []
        for after, _ in moves:
            if after.execution_id in stored:
                events.append(command_result_event(after, source, now_ms))
                tx.after_commit(partial(self._announce, after))
        return events

    async def find_unauthorized(
        self, tx: CommandsTx, executions: Sequence[Execution], now_ms: int, *, run_ms: Mapping[ExecutionId, int] | None = None
    ) -> Mapping[ExecutionId, str]:
        """Which of these open executions may not run any more, each with the code of what it lacks. `run_ms`: when they would
        run, Unix ms, for those that do not run now: a grant may expire before, or its window be closed then."""
        run_ms = run_ms or {}
        devices = {one.device_id: one for one in await tx.devices.list_by_ids({each.device_id for each in executions})}
        contexts = await load_contexts(tx, list(devices.values())) if devices else {}
        requesters = await self._load_requesters(tx, executions, now_ms)
        grants = await _load_grants(tx, executions, devices, requesters)
        found: dict[ExecutionId, str] = {}
        for each in executions:
            context = contexts.get(each.device_id)
            code = (
                "DEVICE_DELETED"
                if context is None
                else self._lacks(each, context, requesters[_key(each)], grants, run_ms.get(each.execution_id, now_ms))
            )
            if code is not None:
                found[each.execution_id] = code
        return found

    async def _end_device(self, tx: CommandsTx, event: DomainEvent, device_id: DeviceId) -> list[DomainEvent]:
        code, reason = _DEVICE_ENDS[event.kind]
        open_ = await tx.executions.list_open_by_device(device_id)
        codes = {each.execution_id: code for each in open_}
        ended = [*await self.cancel(tx, codes, open_, event.source, event.at_ms)]
        if reason:
            pending = await tx.approvals.list_newest(
                event.account_id, device_id=device_id, status=ApprovalStatus.PENDING, limit=PAGE_SIZE
            )
            by = SystemCaller(event.account_id, event.source, address=event.address)
            for approval in pending:
                decided = await close_request(tx, self.approval_waiter, approval, by, event.at_ms, reason)
                ended += [] if decided is None else [decided]
        return ended

    async def _review_account(self, tx: CommandsTx, event: DomainEvent) -> list[DomainEvent]:
        ended: list[DomainEvent] = []
        after_seq: int | None = 0
        while after_seq is not None:
            page = await tx.executions.list_queued_by_account(event.account_id, PAGE_SIZE, after_seq)
            found = await self.find_unauthorized(tx, page, event.at_ms) if page else {}
            codes = {key: code for key, code in found.items() if code != OUTSIDE_WINDOW}
            ended += await self.cancel(tx, codes, page, event.source, event.at_ms) if codes else ()
            after_seq = page[-1].seq if len(page) == PAGE_SIZE else None
        return ended

    async def _load_requesters(
        self, tx: CommandsTx, executions: Sequence[Execution], now_ms: int
    ) -> Mapping[RequesterKey, _Requester]:
        found: dict[RequesterKey, _Requester] = {}
        for each in executions:
            if _key(each) not in found:
                found[_key(each)] = await _load_requester(tx, each, now_ms)
        return found

    def _lacks(
        self,
        execution: Execution,
        context: CommandContext,
        requester: _Requester,
        grants: Mapping[GrantSubject, Sequence[Grant]],
        at_ms: int,
    ) -> str | None:
        """The code of what the execution lacks to run; None when it may."""
        if context.device.status is DeviceStatus.DELETING:
            return "DEVICE_DELETED"
        if requester.code is not None or requester.principal is None:
            return requester.code
        if requester.ends_ms is not None and at_ms >= requester.ends_ms:
            return KEY_EXPIRED
        definition = find_definition(context, execution.cmd, execution.channel)
        if definition is None:
            return "UNKNOWN_COMMAND"
        principal = requester.principal
        if definition.requires_approval and principal.subject_to_approval and execution.approval_id is None:
            return "COMMAND_NEEDS_APPROVAL"
        request = permission_request(context.device, definition, execution.channel)
        try:
            subject = required_grant_subject(principal, request)
        except PermissionDenied as error:
            return error.code
        if subject is None:
            return None
        applying = [grant for grant in grants.get(subject, ()) if grant.applies_to(context.device)]
        if not applying:
            return GRANT_MISSING
        passing, denials = filter_applicable(applying, request, at_ms, self.evaluator)
        return None if passing else closest_denial(denials).code

    def _announce(self, execution: Execution) -> None:
        self.forget(execution.execution_id)
        self.execution_waiter.notify(execution)


def end_without_sending(execution: Execution, code: str, now_ms: int) -> ExecutionTransition:
    """CANCELLED if it was surely never sent. What was sent, or may have been, ends as TIMED_OUT: it may have run."""
    never_sent = execution.status is ExecutionStatus.QUEUED and execution.sent_ms is None
    status = ExecutionStatus.CANCELLED if never_sent else ExecutionStatus.TIMED_OUT
    return replace(execution, status=status, finished_ms=now_ms, result=build_result(code)), execution.status


def _key(execution: Execution) -> RequesterKey:
    is_person = execution.source is TriggeredBy.USER
    return execution.key_id, execution.membership_id, execution.session_id, is_person


async def _load_requester(tx: CommandsTx, execution: Execution, now_ms: int) -> _Requester:
    if execution.key_id is not None:
        key = await tx.api_keys.get(execution.account_id, execution.key_id)
        if key is None:
            return _Requester(code="KEY_DELETED")
        subject = GrantSubject(key_id=key.key_id)
        if not key.enabled:
            return _Requester(code="KEY_DISABLED")
        return _Requester(Principal("This API key", None, subject), ends_ms=key.expires_ms)
    if execution.membership_id is None:
        return _Requester()  # the service itself
    member = await tx.memberships.get(execution.membership_id)
    if member is None or member.account_id != execution.account_id:
        return _Requester(code="MEMBER_REMOVED")
    role = await _role_of_session(tx, execution.account_id, execution.session_id, member, now_ms)
    if role is None:
        return _Requester(code="SESSION_ENDED")
    principal = session_principal(member.membership_id, role, "This member")
    return _Requester(replace(principal, is_session=execution.source is TriggeredBy.USER))


async def _role_of_session(
    tx: CommandsTx, account_id: AccountId, session_id: SessionId | None, member: Membership, now_ms: int
) -> Role | None:
    """The member's role, or that of the service session; None when it has ended."""
    if session_id is None:
        return member.role
    open_ones = await tx.service_sessions.list_open(account_id, now_ms)
    found = next((each for each in open_ones if each.session_id == session_id), None)
    acting = None if found is None else found.act_for(member.to_session(""))
    return None if acting is None else acting.role


async def _load_grants(
    tx: CommandsTx,
    executions: Sequence[Execution],
    devices: Mapping[DeviceId, Device],
    requesters: Mapping[RequesterKey, _Requester],
) -> Mapping[GrantSubject, Sequence[Grant]]:
    """What the requesters that need grants hold on these devices."""
    wanted: dict[GrantSubject, dict[DeviceId, Device]] = {}
    for each in executions:
        principal = requesters[_key(each)].principal
        if principal is not None and principal.subject is not None and each.device_id in devices:
            wanted.setdefault(principal.subject, {})[each.device_id] = devices[each.device_id]
    return {
        subject: await tx.grants.list_by_subject_and_devices(subject, list(many.values())) for subject, many in wanted.items()
    }
