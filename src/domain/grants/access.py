"""Why a call would pass or not: the gate's own decision, told instead of enforced, and nothing spent by asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.grants import policy
from domain.grants.granting import CommandBook
from domain.grants.limit import RATE_WINDOW_MS, GrantEvaluator
from domain.grants.model import Grant, Subject
from domain.grants.policy import Ask, Check, Miss
from domain.grants.ports import GrantsTx
from domain.grants.service import Party, member_party, needed_grant
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import Invalid, Refused
from domain.kernel.ids import DeviceId, KeyId, MembershipId
from domain.kernel.unit_of_work import UnitOfWork

TxT = TypeVar("TxT", bound=GrantsTx)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one grant says to the call; `code` None means that it lets it pass."""

    grant: Grant
    code: str | None
    message: str
    passes_ms: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`passes_ms`: when the call would pass by waiting alone; None when it passes now or waiting does not help.
    `waits_for_approval`: it would pass, but only after an Owner or Admin has approved it."""

    allowed: bool
    code: str | None
    message: str
    passes_ms: int | None
    grant: Grant | None
    waits_for_approval: bool
    findings: tuple[Finding, ...]


class AccessService(Generic[TxT]):
    def __init__(
        self, *, uow: UnitOfWork[TxT], clock: Clock, windows: GrantEvaluator, commands: CommandBook[TxT]
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._windows = windows
        self._commands = commands

    async def explain(
        self,
        caller: Session,
        device_id: DeviceId,
        *,
        command: str | None = None,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
    ) -> Explanation:
        """For a key, for a member, or for the caller. `command` None asks about reading. Asking about others needs Admin."""
        if key_id is not None and membership_id is not None:
            raise Invalid.field("membershipId", "give apiKeyId or membershipId, not both.")
        if key_id is not None or membership_id not in (None, caller.membership_id):
            require_role(caller, Role.ADMIN)
        now_ms = self._clock.now_ms()
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            party = await _party(tx, caller, key_id, membership_id)
            ask, flagged = await self._ask(tx, device, command)
            explanation = await self._explained(tx, device, party, ask, now_ms)
        waits = flagged and explanation.allowed and party.role is not Role.OWNER
        return replace(explanation, waits_for_approval=waits)

    async def _ask(self, tx: TxT, device: Device, command: str | None) -> tuple[Ask, bool]:
        if command is None:
            return policy.READ, False
        for known in await self._commands.definitions(tx, device):
            if known.name == command:
                return Ask(command, is_query=known.kind == "QUERY"), known.requires_approval
        raise Invalid(
            f"This device has no command {command!r}. GET /devices/{device.device_id}/commands lists those it has.",
            code="UNKNOWN_COMMAND",
        )

    async def _explained(self, tx: TxT, device: Device, party: Party, ask: Ask, now_ms: int) -> Explanation:
        try:
            subject = needed_grant(party, ask)
        except Refused as error:
            return _told(False, error.code, error.message)
        if subject is None:
            return _told(True, None, f"{party.who} needs no grant for this: the role {party.role} is enough.")
        grants = await tx.grants.of_subject_on(subject, device)
        if not grants:
            none = policy.missing(party.who, device.device_id, ask)
            return _told(False, none.code, none.message)
        passing, misses = policy.sift(grants, ask, now_ms, self._windows)
        spent = [] if ask.command is None else [await self._spent(tx, grant, now_ms) for grant in passing]
        return _weighed(grants, [*misses, *(miss for miss in spent if miss is not None)], ask)

    async def _spent(self, tx: TxT, grant: Grant, now_ms: int) -> Miss | None:
        """A miss when the rolling window is full."""
        limit = grant.rate_limit_per_minute
        if limit is None:
            return None
        uses = await tx.grants.recent_uses(grant, now_ms - RATE_WINDOW_MS, limit) or ()
        allowance = self._windows.allowance(uses, limit, now_ms)
        return None if allowance.fits else Miss(grant, Check.RATE, allowance.frees_ms)


def _weighed(grants: Sequence[Grant], misses: Sequence[Miss], ask: Ask) -> Explanation:
    missed = {miss.grant.grant_id: miss for miss in misses}
    findings = tuple(_finding(grant, missed.get(grant.grant_id), ask) for grant in grants)
    first = next((grant for grant in grants if grant.grant_id not in missed), None)
    if first is not None:
        message = f"Grant {first.grant_id} lets this pass."
        return Explanation(True, None, message, None, first, False, findings)
    miss = policy.nearest(misses)
    soonest = min((m.passes_ms for m in misses if m.passes_ms is not None), default=None)
    return Explanation(False, miss.code, policy.explain(miss, ask), soonest, miss.grant, False, findings)


def _finding(grant: Grant, miss: Miss | None, ask: Ask) -> Finding:
    if miss is None:
        return Finding(grant, None, "Lets this pass.", None)
    return Finding(grant, miss.code, policy.explain(miss, ask), miss.passes_ms)


def _told(allowed: bool, code: str | None, message: str) -> Explanation:
    return Explanation(allowed, code, message, None, None, False, ())


async def _party(tx: GrantsTx, caller: Session, key_id: KeyId | None, membership_id: MembershipId | None) -> Party:
    if key_id is not None:
        key = await tx.keys.get(caller.account_id, key_id)
        if key is None:
            raise Invalid.field("apiKeyId", f"there is no API key {key_id!r} in this account. Check the keyId.")
        return Party(f"API key {key.name!r}", None, Subject(key_id=key_id))
    if membership_id is None:
        return member_party(caller.membership_id, caller.role, "Your membership")
    membership = await tx.memberships.get(membership_id)
    if membership is None or membership.account_id != caller.account_id:
        raise Invalid.field("membershipId", f"there is no member {membership_id!r} in this account. Check it.")
    return member_party(membership_id, membership.role, "This member")
