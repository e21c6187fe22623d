"""Authorisation: every request, schedule, rule and approval that touches a device is authorised by `Authorizer`.

Owners and Admins need no grant. Members and Viewers read freely; for commands they need a grant to their membership, and a Viewer
may send QUERY commands only. An API key needs a grant for everything. A schedule or rule has the current permissions of the
membership that created it.

A use of a rate-limited grant is counted in the caller's write transaction, after every other check has passed: a denied call uses
nothing up, and two concurrent calls never share the last use. When one grant is used up, another may still allow the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from domain.accounts.model import Membership
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.grants import checks
from domain.grants.checks import READ_REQUEST, FailedGrantCheck, GrantCheckInput, GrantCheckStep
from domain.grants.model import Grant, GrantEvaluator, GrantSubject, RemainingRateLimit, rate_window
from domain.grants.ports import GrantsTx
from domain.kernel.caller import ApiKeyCaller, Caller, Role, SessionCaller, SystemCaller
from domain.kernel.dataclasses import service
from domain.kernel.errors import PermissionDenied, RateLimited, Unavailable
from domain.kernel.ids import DeviceId, GrantId, MembershipId

MAX_ATTEMPTS = 5
"""A grant that changed before its use was counted is read again, now under a row lock: two attempts nearly always suffice."""


@dataclass(frozen=True, slots=True)
class AccessPermit:
    """The call may proceed. `grant` is the grant that allows it; None when the role alone is enough. `subject_to_approval`: a
    command with `requiresApproval` waits for a decision (`Principal.subject_to_approval`). `quota` is what is left of the
    grant's rate limit; None when the grant has none or this call was not counted."""

    grant: Grant | None
    subject_to_approval: bool
    quota: RemainingRateLimit | None = None

    @property
    def grant_id(self) -> GrantId | None:
        return self.grant.grant_id if self.grant is not None else None


@dataclass(frozen=True, slots=True)
class Principal:
    """The permission view of a caller. `role` is None for an API key; `subject` is None when the role needs no grant."""

    display_name: str
    role: Role | None
    subject: GrantSubject | None
    is_session: bool = False

    @property
    def subject_to_approval(self) -> bool:
        """Every caller waits for approval except an Owner's session; an automation waits even when it acts for an Owner."""
        return not (self.is_session and self.role is Role.OWNER)


@dataclass(frozen=True, slots=True)
class AutomationGrantCheckInput:
    """One command that a schedule or rule wants to run now."""

    caller: SystemCaller
    device: Device
    request: GrantCheckInput


@service
class Authorizer:
    evaluator: GrantEvaluator

    async def authorize(
        self,
        tx: GrantsTx,
        caller: Caller,
        device: Device,
        request: GrantCheckInput,
        now_ms: int,
        *,
        spend: bool = True,
        known: Sequence[Grant] | None = None,
    ) -> AccessPermit:
        """Return a permit or raise. `spend=False` neither checks nor counts the rate limit, for a command whose use was counted
        when it was requested; nor is it counted for one that will run later. `known`: the grants of `grant_subject_of(caller)` on
        the device, if this transaction has loaded them already.

        Raises PermissionDenied `GRANT_MISSING`, `COMMAND_NOT_GRANTED`, `SCOPE_TOO_NARROW`, `GRANT_EXPIRED`,
        `OUTSIDE_GRANT_WINDOW` or `ROLE_REQUIRED`, and RateLimited `RATE_LIMITED`.
        """
        principal = await resolve_principal(tx, caller, device)
        subject = required_grant_subject(principal, request)
        if subject is None:
            return AccessPermit(None, principal.subject_to_approval)
        grants = await tx.grants.list_by_subject_and_device(subject, device) if known is None else known
        grant, quota = await self._choose_grant(
            tx, replace(principal, subject=subject), grants, device, request, now_ms, spend=spend and not request.runs_later
        )
        return AccessPermit(grant, principal.subject_to_approval, quota)

    async def authorize_many(
        self, tx: GrantsTx, requests: Sequence[AutomationGrantCheckInput], now_ms: int
    ) -> Sequence[AccessPermit | PermissionDenied | RateLimited]:
        """`authorize` for many commands, with one look-up of memberships and grants. Returns errors instead of raising them."""
        membership_ids = {item.caller.on_behalf_of for item in requests if item.caller.on_behalf_of is not None}
        # Kept as they are until the commit, in one order: a member who is demoted meanwhile waits for this transaction.
        members = {one: await tx.memberships.get_for_share(one) for one in sorted(membership_ids)}
        principals = [_automation_principal(item, members) for item in requests]
        devices: dict[GrantSubject, list[Device]] = {}
        for item, principal in zip(requests, principals, strict=True):
            if isinstance(principal, Principal) and principal.subject is not None:
                devices.setdefault(principal.subject, []).append(item.device)
        grants = {subject: await tx.grants.list_by_subject_and_devices(subject, many) for subject, many in devices.items()}
        return [
            principal
            if isinstance(principal, PermissionDenied)
            else await self._authorize_automation(tx, principal, grants, item, now_ms)
            for item, principal in zip(requests, principals, strict=True)
        ]

    async def _authorize_automation(
        self,
        tx: GrantsTx,
        principal: Principal,
        grants: Mapping[GrantSubject, Sequence[Grant]],
        item: AutomationGrantCheckInput,
        now_ms: int,
    ) -> AccessPermit | PermissionDenied | RateLimited:
        if principal.subject is None:
            return AccessPermit(None, principal.subject_to_approval)
        applicable = [grant for grant in grants[principal.subject] if grant.applies_to(item.device)]
        try:
            grant, quota = await self._choose_grant(tx, principal, applicable, item.device, item.request, now_ms, spend=True)
        except (PermissionDenied, RateLimited) as error:
            return error
        return AccessPermit(grant, principal.subject_to_approval, quota)

    async def filter_readable(self, tx: GrantsTx, caller: Caller, devices: Sequence[Device], now_ms: int) -> list[Device]:
        """The devices that the caller may read, in the given order. All must belong to the caller's account."""
        if not isinstance(caller, ApiKeyCaller):
            return list(devices)
        grants = await tx.grants.list_by_subject(caller.account_id, GrantSubject(key_id=caller.key_id))
        valid = [grant for grant in grants if not grant.is_expired(now_ms)]
        covered = {grant.place for grant in valid}
        return [device for device in devices if not covered.isdisjoint(device.places)]

    async def _choose_grant(
        self,
        tx: GrantsTx,
        principal: Principal,
        grants: Sequence[Grant],
        device: Device,
        request: GrantCheckInput,
        now_ms: int,
        *,
        spend: bool,
    ) -> tuple[Grant, RemainingRateLimit | None]:
        """The first of the principal's grants on the device that allows the call. Raises PermissionDenied or RateLimited."""
        for _ in range(MAX_ATTEMPTS):
            if not grants:
                raise checks.missing_grant_error(principal.display_name, device.device_id, request)
            passing, denials = checks.filter_applicable(grants, request, now_ms, self.evaluator)
            if not passing:
                raise checks.denial_error(checks.closest_denial(denials), request, now_ms)
            if request.command is None:
                return passing[0], None
            if not await _lock_memberships(tx, passing, device):
                spent = None
            elif spend:
                spent = await self._count_use(tx, passing, request, now_ms)
            else:
                spent = await _lock_grant(tx, passing[0])
            if spent is not None:
                return spent
            assert principal.subject is not None  # noqa: S101 - the grants belong to this subject
            grants = await tx.grants.list_by_subject_and_device(principal.subject, device)
        raise Unavailable("The grants on this device are being changed. Try again in a moment.")

    async def _count_use(
        self, tx: GrantsTx, passing: Iterable[Grant], request: GrantCheckInput, now_ms: int
    ) -> tuple[Grant, RemainingRateLimit | None] | None:
        """Count one use on the first grant that has one left. Raises RateLimited for the grant that is free again soonest. None
        when a grant changed after it was read: a use must be counted against the current limit."""
        spent: list[FailedGrantCheck] = []
        for grant in passing:
            limit = grant.rate_limit_per_minute
            if limit is None:
                return await _lock_grant(tx, grant)
            uses = await tx.grants.list_recent_uses(grant, *rate_window(now_ms), limit)
            if uses is None:
                return None
            allowance = self.evaluator.rate_allowance(uses, limit, now_ms)
            if allowance.is_allowed:
                await tx.grants.add_use(grant.grant_id, now_ms)
                return grant, RemainingRateLimit.from_allowance(limit, allowance, now_ms)
            spent.append(FailedGrantCheck(grant, GrantCheckStep.RATE, allowance.next_free_ms))
        raise checks.denial_error(checks.closest_denial(spent), request, now_ms)


async def get_readable_device(tx: GrantsTx, authorizer: Authorizer, caller: Caller, device_id: DeviceId, now_ms: int) -> Device:
    """Raises NotFound, PermissionDenied."""
    device = await get_device(tx, caller.account_id, device_id)
    await authorizer.authorize(tx, caller, device, READ_REQUEST, now_ms)
    return device


def grant_subject_of(caller: SessionCaller | ApiKeyCaller) -> GrantSubject | None:
    """The subject whose grants apply to the caller; None when its role needs none."""
    if isinstance(caller, ApiKeyCaller):
        return GrantSubject(key_id=caller.key_id)
    return session_principal(caller.membership_id, caller.role, "").subject


async def resolve_principal(tx: GrantsTx, caller: Caller, device: Device) -> Principal:
    """Raises PermissionDenied when the membership that a schedule or rule acts for no longer exists."""
    if isinstance(caller, ApiKeyCaller):
        return Principal("This API key", None, GrantSubject(key_id=caller.key_id))
    if isinstance(caller, SessionCaller):
        return session_principal(caller.membership_id, caller.role, "Your membership")
    if caller.on_behalf_of is None:
        return _system_principal(caller, None, device)
    return _system_principal(caller, await tx.memberships.get_for_share(caller.on_behalf_of), device)


def session_principal(membership_id: MembershipId, role: Role, display_name: str) -> Principal:
    subject = None if role.is_at_least(Role.ADMIN) else GrantSubject(membership_id=membership_id)
    return Principal(display_name, role, subject, is_session=True)


def required_grant_subject(principal: Principal, request: GrantCheckInput) -> GrantSubject | None:
    """The subject whose grant this call needs; None when the role alone is enough.

    Raises PermissionDenied `ROLE_REQUIRED` for a Viewer's ACTION."""
    if principal.role is None or principal.subject is None:
        return principal.subject
    if request.command is None:
        return None
    if principal.role is Role.VIEWER and not request.is_query:
        raise PermissionDenied(
            f"A Viewer may send QUERY commands only; {request.command} is an ACTION. "
            "Ask an Owner or Admin for the role Member and a grant.",
            code="ROLE_REQUIRED",
        )
    return principal.subject


def _system_principal(caller: SystemCaller, membership: Membership | None, device: Device) -> Principal:
    """`membership`: the current state of the one the automation acts for. Raises PermissionDenied when it no longer exists."""
    if caller.on_behalf_of is None:
        return Principal(f"The service ({caller.label})", Role.OWNER, None)
    if membership is None or membership.account_id != device.account_id:
        raise PermissionDenied(
            f"The creator of {caller.label} is no longer a member of this account. "
            "Save it again as a member who may run its command.",
            code=checks.GRANT_MISSING,
        )
    principal = session_principal(membership.membership_id, membership.role, f"The member who created {caller.label}")
    return replace(principal, is_session=False)


def _automation_principal(
    item: AutomationGrantCheckInput, members: Mapping[MembershipId, Membership | None]
) -> Principal | PermissionDenied:
    """The principal with the grants it needs, or the error that no grant can lift."""
    membership = None if item.caller.on_behalf_of is None else members.get(item.caller.on_behalf_of)
    try:
        principal = _system_principal(item.caller, membership, item.device)
        needed = required_grant_subject(principal, item.request)
        return principal if needed is principal.subject else replace(principal, subject=needed)
    except PermissionDenied as error:
        return error


async def _lock_memberships(tx: GrantsTx, grants: Sequence[Grant], device: Device) -> bool:
    """Keep the device in the groups of these grants until the commit. False when it has left one since the grants were read."""
    return all([await tx.grants.lock_membership(grant, device.device_id) for grant in grants if grant.group_id is not None])


async def _lock_grant(tx: GrantsTx, grant: Grant) -> tuple[Grant, None] | None:
    """The grant, which nobody can take away before the commit; None when it has changed since it was read."""
    return (grant, None) if await tx.grants.lock_for_share(grant) else None
