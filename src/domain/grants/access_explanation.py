"""Why a call would pass or not: the gate's own decision, told instead of enforced, and nothing spent by asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.grants import policy
from domain.grants.authorizer import Principal, required_grant_subject, session_principal
from domain.grants.grant_service import CommandCatalog
from domain.grants.model import Grant, GrantSubject
from domain.grants.policy import Denial, GrantCheck, PermissionRequest
from domain.grants.ports import GrantsTx
from domain.grants.rate_limit import RATE_WINDOW_MS, GrantEvaluator
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import PermissionDenied, ValidationFailed
from domain.kernel.ids import DeviceId, KeyId, MembershipId
from domain.kernel.unit_of_work import UnitOfWork

TxT = TypeVar("TxT", bound=GrantsTx)


@dataclass(frozen=True, slots=True)
class GrantCheckResult:
    """What one grant says to the call; `code` None means that it lets it pass."""

    grant: Grant
    code: str | None
    message: str
    passes_from_ms: int | None


@dataclass(frozen=True, slots=True)
class AccessExplanation:
    """`passes_ms`: when the call would pass by waiting alone; None when it passes now or waiting does not help.
    `waits_for_approval`: it would pass, but only after an Owner or Admin has approved it."""

    allowed: bool
    code: str | None
    message: str
    passes_from_ms: int | None
    grant: Grant | None
    needs_approval: bool
    grant_results: tuple[GrantCheckResult, ...]


class AccessExplainer(Generic[TxT]):
    def __init__(self, *, uow: UnitOfWork[TxT], clock: Clock, windows: GrantEvaluator, commands: CommandCatalog[TxT]) -> None:
        self._uow = uow
        self._clock = clock
        self._evaluator = windows
        self._commands = commands

    async def explain(
        self,
        caller: Session,
        device_id: DeviceId,
        *,
        command: str | None = None,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
    ) -> AccessExplanation:
        """For a key, for a member, or for the caller. `command` None asks about reading. Asking about others needs Admin."""
        if key_id is not None and membership_id is not None:
            raise ValidationFailed.for_field("membershipId", "give apiKeyId or membershipId, not both.")
        if key_id is not None or membership_id not in (None, caller.membership_id):
            require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        async with self._uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            party = await _resolve_principal(tx, caller, key_id, membership_id)
            ask, flagged = await self._permission_request(tx, device, command)
            explanation = await self._explain(tx, device, party, ask, now_ms)
        waits = flagged and explanation.allowed and party.subject_to_approval
        return replace(explanation, needs_approval=waits)

    async def _permission_request(self, tx: TxT, device: Device, command: str | None) -> tuple[PermissionRequest, bool]:
        if command is None:
            return policy.READ_REQUEST, False
        for known in await self._commands.effective_definitions(tx, device):
            if known.name == command:
                return PermissionRequest(command, is_query=known.kind == "QUERY"), known.requires_approval
        raise ValidationFailed(
            f"This device has no command {command!r}. GET /devices/{device.device_id}/commands lists those it has.",
            code="UNKNOWN_COMMAND",
        )

    async def _explain(self, tx: TxT, device: Device, party: Principal, ask: PermissionRequest, now_ms: int) -> AccessExplanation:
        try:
            subject = required_grant_subject(party, ask)
        except PermissionDenied as error:
            return _explain_without_grants(False, error.code, error.message)
        if subject is None:
            return _explain_without_grants(
                True, None, f"{party.display_name} needs no grant for this: the role {party.role} is enough."
            )
        grants = await tx.grants.list_by_subject_and_device(subject, device)
        if not grants:
            none = policy.missing_grant_error(party.display_name, device.device_id, ask)
            return _explain_without_grants(False, none.code, none.message)
        passing, misses = policy.filter_applicable(grants, ask, now_ms, self._evaluator)
        spent = [] if ask.command is None else [await self._rate_denial(tx, grant, now_ms) for grant in passing]
        return _summarize(grants, [*misses, *(miss for miss in spent if miss is not None)], ask)

    async def _rate_denial(self, tx: TxT, grant: Grant, now_ms: int) -> Denial | None:
        """A miss when the rolling window is full."""
        limit = grant.rate_limit_per_minute
        if limit is None:
            return None
        uses = await tx.grants.list_recent_uses(grant, now_ms - RATE_WINDOW_MS, limit) or ()
        allowance = self._evaluator.rate_allowance(uses, limit, now_ms)
        return None if allowance.is_allowed else Denial(grant, GrantCheck.RATE, allowance.next_free_ms)


def _summarize(grants: Sequence[Grant], misses: Sequence[Denial], ask: PermissionRequest) -> AccessExplanation:
    missed = {miss.grant.grant_id: miss for miss in misses}
    findings = tuple(_grant_result(grant, missed.get(grant.grant_id), ask) for grant in grants)
    first = next((grant for grant in grants if grant.grant_id not in missed), None)
    if first is not None:
        message = f"Grant {first.grant_id} lets this pass."
        return AccessExplanation(True, None, message, None, first, False, findings)
    miss = policy.closest_denial(misses)
    soonest = min((m.passes_from_ms for m in misses if m.passes_from_ms is not None), default=None)
    return AccessExplanation(False, miss.code, policy.explain_denial(miss, ask), soonest, miss.grant, False, findings)


def _grant_result(grant: Grant, miss: Denial | None, ask: PermissionRequest) -> GrantCheckResult:
    if miss is None:
        return GrantCheckResult(grant, None, "Lets this pass.", None)
    return GrantCheckResult(grant, miss.code, policy.explain_denial(miss, ask), miss.passes_from_ms)


def _explain_without_grants(allowed: bool, code: str | None, message: str) -> AccessExplanation:
    return AccessExplanation(allowed, code, message, None, None, False, ())


async def _resolve_principal(
    tx: GrantsTx, caller: Session, key_id: KeyId | None, membership_id: MembershipId | None
) -> Principal:
    if key_id is not None:
        key = await tx.api_keys.get(caller.account_id, key_id)
        if key is None:
            raise ValidationFailed.for_field("apiKeyId", f"there is no API key {key_id!r} in this account. Check the keyId.")
        return Principal(f"API key {key.name!r}", None, GrantSubject(key_id=key_id))
    if membership_id is None:
        return session_principal(caller.membership_id, caller.role, "Your membership")
    membership = await tx.memberships.get(membership_id)
    if membership is None or membership.account_id != caller.account_id:
        raise ValidationFailed.for_field("membershipId", f"there is no member {membership_id!r} in this account. Check it.")
    return session_principal(membership_id, membership.role, "This member")
