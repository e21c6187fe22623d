"""The gate: every call that touches a device passes here, whoever makes it and by whichever road.

Owners and Admins pass. Members and Viewers read freely and need a grant to their membership for commands, a Viewer for QUERY
commands only. An API key needs a grant for everything. A schedule or rule may do what the membership that made it may do now.

A grant's rate is counted in the caller's own write transaction and only when every other check has passed, so that a refused
call costs nothing and two calls at once never share the last use. A grant that is used up does not stand in the way of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from domain.accounts.model import Membership
from domain.devices.model import Device
from domain.grants import policy
from domain.grants.model import Grant, GrantSubject
from domain.grants.policy import Denial, GrantCheck, PermissionRequest
from domain.grants.ports import GrantsTx
from domain.grants.rate_limit import RATE_WINDOW_MS, GrantEvaluator, RateLimitQuota
from domain.kernel.caller import ApiKeyCaller, Caller, Role, Session, SystemCaller
from domain.kernel.errors import PermissionDenied, RateLimited, Unavailable
from domain.kernel.ids import GrantId, MembershipId

MAX_ATTEMPTS = 5
"""A grant that is changed while we wait to count its use is read again and is ours from then on, so two nearly always suffice."""


@dataclass(frozen=True, slots=True)
class Permit:
    """The call may proceed. `grant` is the grant that allows it; None when the role alone is enough. `subject_to_approval`: a
    command with `requiresApproval` waits for a decision (`Principal.subject_to_approval`). `quota` is what is left of the
    grant's rate limit; None when the grant has none or this call was not counted."""

    grant: Grant | None
    subject_to_approval: bool
    quota: RateLimitQuota | None = None

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
class AutomationPermissionRequest:
    """One command that an automation wants to run now."""

    caller: SystemCaller
    device: Device
    request: PermissionRequest


class Authorizer:
    def __init__(self, *, windows: GrantEvaluator) -> None:
        self._evaluator = windows

    async def authorize(
        self,
        tx: GrantsTx,
        caller: Caller,
        device: Device,
        *,
        command: str | None,
        is_query: bool,
        now_ms: int,
        spend: bool = True,
        known: Sequence[Grant] | None = None,
    ) -> Permit:
        """Let the call pass or raise. `command` None is a read. `spend=False` leaves the rate limit alone, neither asked nor
        counted: for a command whose use was counted when it was requested. `known`: the grants of `subject_of(caller)` on the
        device, where this very transaction has looked them up.

        Raises Refused `GRANT_MISSING`, `COMMAND_NOT_GRANTED`, `SCOPE_TOO_NARROW`, `GRANT_EXPIRED`, `OUTSIDE_GRANT_WINDOW` or
        `ROLE_REQUIRED`, and Throttled `RATE_LIMITED`.
        """
        return await self._authorize(tx, caller, device, PermissionRequest(command, is_query), now_ms, spend=spend, known=known)

    async def authorize_later(
        self, tx: GrantsTx, caller: Caller, device: Device, *, command: str, is_query: bool, now_ms: int
    ) -> Permit:
        """For a command that will run at another time: window and rate are left to the check that is made then."""
        return await self._authorize(
            tx, caller, device, PermissionRequest(command, is_query, runs_later=True), now_ms, spend=False
        )

    async def authorize_many(
        self, tx: GrantsTx, asked: Sequence[AutomationPermissionRequest], now_ms: int
    ) -> Sequence[Permit | PermissionDenied | RateLimited]:
        """`permit` of many commands: memberships and grants are looked up once for all of them. Says instead of raising."""
        acting = {one.caller.on_behalf_of for one in asked if one.caller.on_behalf_of is not None}
        members = {membership_id: await tx.memberships.get(membership_id) for membership_id in sorted(acting)}
        parties = [_automation_principal(one, members) for one in asked]
        devices: dict[GrantSubject, list[Device]] = {}
        for one, party in zip(asked, parties, strict=True):
            if isinstance(party, Principal) and party.subject is not None:
                devices.setdefault(party.subject, []).append(one.device)
        grants = {subject: await tx.grants.list_by_subject_and_devices(subject, many) for subject, many in devices.items()}
        return [
            party if isinstance(party, PermissionDenied) else await self._authorize_automation(tx, party, grants, one, now_ms)
            for one, party in zip(asked, parties, strict=True)
        ]

    async def _authorize_automation(
        self,
        tx: GrantsTx,
        party: Principal,
        grants: Mapping[GrantSubject, Sequence[Grant]],
        one: AutomationPermissionRequest,
        now_ms: int,
    ) -> Permit | PermissionDenied | RateLimited:
        if party.subject is None:
            return Permit(None, party.subject_to_approval)
        here = [grant for grant in grants[party.subject] if grant.applies_to(one.device)]
        try:
            grant, quota = await self._choose_grant(tx, party, here, one.device, one.request, now_ms, spend=True)
        except (PermissionDenied, RateLimited) as refusal:
            return refusal
        return Permit(grant, party.subject_to_approval, quota)

    async def filter_readable(self, tx: GrantsTx, caller: Caller, devices: Sequence[Device], now_ms: int) -> list[Device]:
        """Those of the caller's account's devices it may read, in the order given."""
        if not isinstance(caller, ApiKeyCaller):
            return list(devices)
        grants = await tx.grants.list_by_subject(caller.account_id, GrantSubject(key_id=caller.key_id))
        valid = [grant for grant in grants if not grant.is_expired(now_ms)]
        direct = {grant.device_id for grant in valid if grant.device_id is not None}
        projects = {grant.project_id for grant in valid if grant.project_id is not None}
        return [device for device in devices if device.device_id in direct or device.project_id in projects]

    async def _authorize(
        self,
        tx: GrantsTx,
        caller: Caller,
        device: Device,
        ask: PermissionRequest,
        now_ms: int,
        *,
        spend: bool,
        known: Sequence[Grant] | None = None,
    ) -> Permit:
        party = await resolve_principal(tx, caller, device)
        subject = required_grant_subject(party, ask)
        if subject is None:
            return Permit(None, party.subject_to_approval)
        grants = await tx.grants.list_by_subject_and_device(subject, device) if known is None else known
        grant, quota = await self._choose_grant(tx, replace(party, subject=subject), grants, device, ask, now_ms, spend=spend)
        return Permit(grant, party.subject_to_approval, quota)

    async def _choose_grant(
        self,
        tx: GrantsTx,
        party: Principal,
        grants: Sequence[Grant],
        device: Device,
        ask: PermissionRequest,
        now_ms: int,
        *,
        spend: bool,
    ) -> tuple[Grant, RateLimitQuota | None]:
        """The one of the party's grants on the device that lets the call pass. Raises Refused or Throttled."""
        for _ in range(MAX_ATTEMPTS):
            if not grants:
                raise policy.missing_grant_error(party.display_name, device.device_id, ask)
            passing, misses = policy.filter_applicable(grants, ask, now_ms, self._evaluator)
            if not passing:
                raise policy.denial_error(policy.closest_denial(misses), ask, now_ms)
            if ask.command is None or not spend:
                return passing[0], None
            spent = await self._count_use(tx, passing, ask, now_ms)
            if spent is not None:
                return spent
            assert party.subject is not None  # noqa: S101 - whose grants these are
            grants = await tx.grants.list_by_subject_and_device(party.subject, device)
        raise Unavailable("The grants on this device are being changed. Try again in a moment.")

    async def _count_use(
        self, tx: GrantsTx, passing: Iterable[Grant], ask: PermissionRequest, now_ms: int
    ) -> tuple[Grant, RateLimitQuota | None] | None:
        """Count one use on the first grant that has one left. Raises Throttled naming the one that is free again soonest. None
        when a grant was changed after it had been read: what is counted must be counted against the limit that holds now."""
        spent: list[Denial] = []
        for grant in passing:
            limit = grant.rate_limit_per_minute
            if limit is None:
                return grant, None
            uses = await tx.grants.list_recent_uses(grant, now_ms - RATE_WINDOW_MS, limit)
            if uses is None:
                return None
            allowance = self._evaluator.rate_allowance(uses, limit, now_ms)
            if allowance.is_allowed:
                await tx.grants.add_use(grant.grant_id, now_ms)
                return grant, RateLimitQuota.from_allowance(limit, allowance, now_ms)
            spent.append(Denial(grant, GrantCheck.RATE, allowance.next_free_ms))
        raise policy.denial_error(policy.closest_denial(spent), ask, now_ms)


def grant_subject_of(caller: Session | ApiKeyCaller) -> GrantSubject | None:
    """Whose grants may count for a call of this caller."""
    if isinstance(caller, ApiKeyCaller):
        return GrantSubject(key_id=caller.key_id)
    return session_principal(caller.membership_id, caller.role, "").subject


async def resolve_principal(tx: GrantsTx, caller: Caller, device: Device) -> Principal:
    """Raises Refused when the membership a schedule or rule acts for is gone."""
    if isinstance(caller, ApiKeyCaller):
        return Principal("This API key", None, GrantSubject(key_id=caller.key_id))
    if isinstance(caller, Session):
        return session_principal(caller.membership_id, caller.role, "Your membership")
    if caller.on_behalf_of is None:
        return _system_principal(caller, None, device)
    return _system_principal(caller, await tx.memberships.get(caller.on_behalf_of), device)


def _system_principal(caller: SystemCaller, membership: Membership | None, device: Device) -> Principal:
    """`membership`: the one the automation acts for, as it is now. Raises Refused when that is gone."""
    if caller.on_behalf_of is None:
        return Principal(f"The service ({caller.label})", Role.OWNER, None)
    if membership is None or membership.account_id != device.account_id:
        raise PermissionDenied(
            f"Whoever set up {caller.label} is no longer a member of this account. "
            "Save it again as somebody who may run its command.",
            code=policy.GRANT_MISSING,
        )
    principal = session_principal(membership.membership_id, membership.role, f"The member who set up {caller.label}")
    return replace(principal, is_session=False)


def _automation_principal(
    one: AutomationPermissionRequest, members: Mapping[MembershipId, Membership | None]
) -> Principal | PermissionDenied:
    """Who asks, and whose grants that takes; or why it may not, whatever the grants are."""
    membership = None if one.caller.on_behalf_of is None else members.get(one.caller.on_behalf_of)
    try:
        party = _system_principal(one.caller, membership, one.device)
        needed = required_grant_subject(party, one.request)
        return party if needed is party.subject else replace(party, subject=needed)
    except PermissionDenied as refusal:
        return refusal


def session_principal(membership_id: MembershipId, role: Role, display_name: str) -> Principal:
    subject = None if role.is_at_least(Role.ADMIN) else GrantSubject(membership_id=membership_id)
    return Principal(display_name, role, subject, is_session=True)


def required_grant_subject(party: Principal, ask: PermissionRequest) -> GrantSubject | None:
    """Whose grant this call needs; None where the role alone is enough. Raises Refused `ROLE_REQUIRED` for a Viewer's ACTION."""
    if party.role is None or party.subject is None:
        return party.subject
    if ask.command is None:
        return None
    if party.role is Role.VIEWER and not ask.is_query:
        raise PermissionDenied(
            f"A Viewer may send QUERY commands only; {ask.command} is an ACTION. "
            "Ask an Owner or Admin for the role Member and a grant.",
            code="ROLE_REQUIRED",
        )
    return party.subject
