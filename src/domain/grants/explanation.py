"""Explains an access decision: the checks of `Authorizer` without enforcing them and without using up a rate limit."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from domain.devices.channels import RELAY_CHANNEL, find_channel, on_channel
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.grants.authorizer import Principal, required_grant_subject, session_principal
from domain.grants.checks import (
    READ_REQUEST,
    FailedGrantCheck,
    GrantCheckInput,
    GrantCheckStep,
    closest_denial,
    explain_denial,
    filter_applicable,
    missing_grant_error,
)
from domain.grants.model import Grant, GrantEvaluator, GrantSubject, rate_window
from domain.grants.ports import GrantsTx
from domain.grants.service import DeviceCommandLister
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import PermissionDenied, Unauthenticated, ValidationFailed
from domain.kernel.ids import DeviceId, KeyId, MembershipId
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import ApiKey
from domain.keys.service import referenced_api_key

TxT = TypeVar("TxT", bound=GrantsTx)


@dataclass(frozen=True, slots=True)
class SingleGrantResult:
    """The result of one grant for the call; `code` None means that the grant allows it."""

    grant: Grant
    code: str | None
    message: str
    passes_from_ms: int | None


@dataclass(frozen=True, slots=True)
class AccessExplanation:
    """`passes_from_ms`: when the call would be allowed without any change; None when it is allowed now or waiting does not help.
    `needs_approval`: the call is allowed, but runs only after an Owner or Admin has approved it."""

    allowed: bool
    code: str | None
    message: str
    passes_from_ms: int | None = None
    grant: Grant | None = None
    grant_results: tuple[SingleGrantResult, ...] = ()
    needs_approval: bool = False
    device_is_active: bool = True
    """Whether the device takes commands at all; `allowed` is about the permission."""
    expires_ms: int | None = None
    allowed_networks: tuple[str, ...] = ()
    """Of the API key: from when on, and from where else, the call is refused whatever the grants say. Empty for a member."""


@service
class AccessExplainer(Generic[TxT]):
    uow: UnitOfWork[TxT]
    clock: Clock
    evaluator: GrantEvaluator
    commands: DeviceCommandLister[TxT]

    async def explain(
        self,
        caller: SessionCaller | ApiKeyCaller,
        device_id: DeviceId,
        *,
        command: str | None = None,
        channel: int = RELAY_CHANNEL,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
        address: str | None = None,
    ) -> AccessExplanation:
        """Explain for an API key, a member or the caller. `command` None is a read. `address`: where the API key would call from;
        None if that is not known, so that only a key's networks are told.

        Raises PermissionDenied when somebody below Admin (`ROLE_REQUIRED`) or an API key (`SESSION_REQUIRED`) asks about another
        subject."""
        if key_id is not None and membership_id is not None:
            raise ValidationFailed.for_field("membershipId", "give apiKeyId or membershipId, not both.")
        _check_can_explain(caller, key_id, membership_id)
        now_ms = self.clock.now_ms()
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            principal, key = await _resolve_principal(tx, caller, key_id, membership_id)
            if address is not None:
                _check_address(address, key)
            request, requires_approval = await self._permission_request(tx, device, command, channel)
            explanation = await self._explain(tx, device, principal, request, now_ms)
        if key is not None:
            explanation = _limit_to_key(explanation, key, address, now_ms)
        waits = requires_approval and explanation.allowed and principal.subject_to_approval
        return replace(explanation, needs_approval=waits, device_is_active=device.is_active)

    async def _permission_request(
        self, tx: TxT, device: Device, command: str | None, channel: int
    ) -> tuple[GrantCheckInput, bool]:
        if command is None:
            return READ_REQUEST, False
        if find_channel(device.channels, channel) is None:
            raise ValidationFailed(
                f"This device has no channel {channel}. Its channels are in GET /devices/{device.device_id}.",
                code="UNKNOWN_CHANNEL",
            )
        for definition in await self.commands.effective_definitions(tx, device):
            if definition.name == command and channel in (definition.channels or (channel,)):
                request = GrantCheckInput.for_device(device, command, channel, is_query=definition.kind == "QUERY")
                return request, definition.requires_approval
        raise ValidationFailed(
            f"This device has no command {on_channel(repr(command), channel)}. "
            f"GET /devices/{device.device_id}/commands lists those it has.",
            code="UNKNOWN_COMMAND",
        )

    async def _explain(
        self, tx: TxT, device: Device, principal: Principal, request: GrantCheckInput, now_ms: int
    ) -> AccessExplanation:
        try:
            subject = required_grant_subject(principal, request)
        except PermissionDenied as error:
            return AccessExplanation(False, error.code, error.message)
        if subject is None:
            return AccessExplanation(
                True, None, f"{principal.display_name} needs no grant for this: the role {principal.role} is enough."
            )
        grants = await tx.grants.list_by_subject_and_device(subject, device)
        if not grants:
            missing = missing_grant_error(principal.display_name, device.device_id, request)
            return AccessExplanation(False, missing.code, missing.message)
        passing, denials = filter_applicable(grants, request, now_ms, self.evaluator)
        rate_denials = [] if request.command is None else [await self._rate_denial(tx, grant, now_ms) for grant in passing]
        return _summarize(grants, [*denials, *(denial for denial in rate_denials if denial is not None)], request)

    async def _rate_denial(self, tx: TxT, grant: Grant, now_ms: int) -> FailedGrantCheck | None:
        """A denial when the rolling window is full."""
        limit = grant.rate_limit_per_minute
        if limit is None:
            return None
        uses = await tx.grants.list_recent_uses(grant, *rate_window(now_ms), limit) or ()
        allowance = self.evaluator.rate_allowance(uses, limit, now_ms)
        return None if allowance.is_allowed else FailedGrantCheck(grant, GrantCheckStep.RATE, allowance.next_free_ms)


def _summarize(grants: Sequence[Grant], denials: Sequence[FailedGrantCheck], request: GrantCheckInput) -> AccessExplanation:
    denied = {denial.grant.grant_id: denial for denial in denials}
    results = tuple(_grant_result(grant, denied.get(grant.grant_id), request) for grant in grants)
    first = next((grant for grant in grants if grant.grant_id not in denied), None)
    if first is not None:
        message = f"Grant {first.grant_id} allows this."
        return AccessExplanation(True, None, message, None, first, results)
    denial = closest_denial(denials)
    soonest = min((m.passes_from_ms for m in denials if m.passes_from_ms is not None), default=None)
    return AccessExplanation(False, denial.code, explain_denial(denial, request), soonest, denial.grant, results)


def _grant_result(grant: Grant, denial: FailedGrantCheck | None, request: GrantCheckInput) -> SingleGrantResult:
    if denial is None:
        return SingleGrantResult(grant, None, "Allows this.", None)
    return SingleGrantResult(grant, denial.code, explain_denial(denial, request), denial.passes_from_ms)


def _check_can_explain(caller: SessionCaller | ApiKeyCaller, key_id: KeyId | None, membership_id: MembershipId | None) -> None:
    if isinstance(caller, ApiKeyCaller):
        if membership_id is not None or key_id not in (None, caller.key_id):
            raise PermissionDenied(
                "An API key asks for itself only. Leave out apiKeyId and membershipId, or ask with an Admin's session.",
                code="SESSION_REQUIRED",
            )
    elif key_id is not None or membership_id not in (None, caller.membership_id):
        require_role(caller, Role.ADMIN)


def _check_address(address: str, key: ApiKey | None) -> None:
    if key is None:
        raise ValidationFailed.for_field("address", "matters for an API key only. Give apiKeyId too, or leave it out.")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ValidationFailed.for_field("address", "is no IP address. Give one such as 192.168.1.7 or 2001:db8::7.") from None


def _limit_to_key(explanation: AccessExplanation, key: ApiKey, address: str | None, now_ms: int) -> AccessExplanation:
    """What holds for the key itself, whatever its grants say: it may be disabled or over, or not be used from there."""
    secret = b"" if address is None else key.secret_hash  # without a secret the network is not checked
    shown = ApiKeyCaller(key.account_id, key.key_id, key.name, address or "", secret_hash=secret)
    explanation = replace(explanation, expires_ms=key.expires_ms, allowed_networks=key.allowed_networks)
    try:
        key.check_use(shown, now_ms)
    except (Unauthenticated, PermissionDenied) as error:
        return replace(explanation, allowed=False, code=error.code, message=error.message, passes_from_ms=None)
    return explanation


async def _resolve_principal(
    tx: GrantsTx, caller: SessionCaller | ApiKeyCaller, key_id: KeyId | None, membership_id: MembershipId | None
) -> tuple[Principal, ApiKey | None]:
    """Whose access is explained; for an API key the key as well."""
    if isinstance(caller, ApiKeyCaller):
        key = await tx.api_keys.get(caller.account_id, caller.key_id)
        return Principal("This API key", None, GrantSubject(key_id=caller.key_id)), key
    if key_id is not None:
        key = await referenced_api_key(tx, caller.account_id, key_id, "apiKeyId")
        return Principal(f"API key {key.name!r}", None, GrantSubject(key_id=key_id)), key
    if membership_id is None:
        return session_principal(caller.membership_id, caller.role, "Your membership"), None
    membership = await tx.memberships.get(membership_id)
    if membership is None or membership.account_id != caller.account_id:
        raise ValidationFailed.for_field("membershipId", f"there is no member {membership_id!r} in this account. Check it.")
    return session_principal(membership_id, membership.role, "This member"), None
