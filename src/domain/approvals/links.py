"""Approval links: whoever is notified that a command waits can decide it without a sign-in.

A link is a signed token for one approval and one member. It says who would decide, not that they may: role, own request, second
factor and the state of the approval are read again in the transaction that decides. It ends after LINK_TTL_MS, with the
decision, so it works once, when the person changes the password, and when a session of theirs is revoked, as by "sign out
everywhere else": who lost a phone lost its messages too. Looking changes nothing. Who has a second factor must show it, for
either decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from domain.accounts.model import User
from domain.approvals.model import ALREADY_DECIDED, Approval, ApprovalStatus
from domain.approvals.ports import ApprovalsTx
from domain.approvals.service import ApprovalService
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import JsonObject, event_of
from domain.kernel.errors import Conflict, NotFound, PermissionDenied, ValidationFailed
from domain.kernel.ids import ApprovalId, ExecutionId, MembershipId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.passkeys import PasskeySignInService
from domain.sign_in.policy import RolesRequiringSecondFactor
from domain.sign_in.presence import invalid_factor_error
from domain.sign_in.second_factor import PresentedSecondFactor, SecondFactorChecker

LINK_TTL_MS = HOUR_MS
"""From the moment it is sent. Later the person signs in: the request itself waits for a day."""
TxT = TypeVar("TxT", bound=ApprovalsTx)


@dataclass(frozen=True, slots=True)
class ApprovalLinkClaims:
    membership_id: MembershipId
    approval_id: ApprovalId
    issued_ms: int
    expires_ms: int


class ApprovalLinkCodec(Protocol):
    """Signed tokens with a key of their own, so that no token of another kind is accepted, nor this one anywhere else."""

    def issue(self, membership_id: MembershipId, approval_id: ApprovalId, issued_ms: int, expires_ms: int) -> str: ...

    def read(self, token: str) -> ApprovalLinkClaims | None:
        """None unless this installation signed it. Whether it has expired is the caller's part."""


@dataclass(frozen=True, slots=True)
class ApprovalLinkDetails:
    """What a link is for. `methods`: the second factors that the person can show (`totp`, `passkey`, `recovery`); none if they
    have none."""

    approval: Approval
    device: Device
    user: User
    expires_ms: int
    methods: tuple[str, ...]
    caller: SessionCaller

    @property
    def channel_name(self) -> str | None:
        """Of the channel that the command is for; None for a device of one relay."""
        channel = self.device.channel(self.approval.channel) if self.device.channels else None
        return None if channel is None else channel.name


@service
class ApprovalLinkService(Generic[TxT]):
    """`requirement`: whose links need a second factor even if they have none: they have to sign in and set one up."""

    uow: UnitOfWork[TxT]
    clock: Clock
    codec: ApprovalLinkCodec
    approvals: ApprovalService[TxT]
    factors: SecondFactorChecker
    passkeys: PasskeySignInService
    requirement: RolesRequiringSecondFactor

    async def preview(self, token: str, *, address: str = "") -> ApprovalLinkDetails:
        """What the link is for; changes nothing. Raises ValidationFailed `LINK_INVALID`, PermissionDenied `ROLE_REQUIRED`,
        NotFound for a request that was deleted with its device."""
        claims = self.codec.read(token)
        if claims is None or self.clock.now_ms() >= claims.expires_ms:
            raise _link_invalid_error()
        async with self.uow.read() as tx:
            membership = await tx.memberships.get(claims.membership_id)
            user = None if membership is None else await tx.users.get(membership.user_id)
            if membership is None or user is None or await _was_cut_off(tx, user, claims.issued_ms):
                raise _link_invalid_error()
            caller = membership.to_session(address)
            require_role(caller, Role.ADMIN)
            approval = await tx.approvals.get(membership.account_id, claims.approval_id)
            if approval is None:
                raise NotFound("This request does not exist any more. Its device may have been deleted.")
            device = await get_device(tx, membership.account_id, approval.device_id)
            methods = await self._list_methods(tx, user)
        return ApprovalLinkDetails(approval, device, user, min(claims.expires_ms, approval.expires_ms), methods, caller)

    async def passkey_options(self, token: str) -> JsonObject:
        """For `navigator.credentials.get`. Raises as `preview`; NotFound for a person without passkeys."""
        linked = await self.preview(token)
        return await self.passkeys.options_of(linked.user.user_id, _purpose(linked))

    async def decide(
        self, token: str, *, approve: bool, note: str | None, factor: PresentedSecondFactor | None, address: str
    ) -> ExecutionId | None:
        """The execution of an approved command. Raises as `preview` and as a decision by a session; and PermissionDenied
        `SECOND_FACTOR_REQUIRED`, `SECOND_FACTOR_INVALID` or `TOTP_LOCKED`, RateLimited after too many wrong ones."""
        linked = await self.preview(token, address=address)
        if linked.approval.status is not ApprovalStatus.PENDING:
            raise Conflict(f"This request is already {linked.approval.status}. A link decides once.", code=ALREADY_DECIDED)
        caller = replace(linked.caller, has_shown_factor=await self._check_factor(linked, factor))
        approval = linked.approval
        if approve:
            return await self.approvals.approve(caller, approval.device_id, approval.approval_id, note=note)
        await self.approvals.deny(caller, approval.device_id, approval.approval_id, note=note)
        return None

    async def _check_factor(self, linked: ApprovalLinkDetails, factor: PresentedSecondFactor | None) -> bool:
        """Whether a second factor was shown; False for a person who has none and needs none."""
        if not linked.methods:
            if not self.requirement.applies_to(linked.caller.role):
                return False
            raise PermissionDenied(
                "This installation requires a second factor for your role. Sign in and set one up.", code="SECOND_FACTOR_REQUIRED"
            )
        if factor is None:
            raise PermissionDenied("Confirm with your second factor.", code="SECOND_FACTOR_REQUIRED")
        prepared = await self.factors.prepare(factor, _purpose(linked))
        caller, now_ms = linked.caller, self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            accepted = await self.factors.check(tx, caller.user_id, prepared, now_ms, by_link=True)
            if not accepted:
                text = f"{linked.user.name} failed to confirm a decision by link"
                tx.emit(event_of(caller, "second_factor_failed", text, now_ms))
        if not accepted:
            raise invalid_factor_error()
        return True

    async def _list_methods(self, tx: ApprovalsTx, user: User) -> tuple[str, ...]:
        if not await tx.second_factors.is_enabled(user.user_id):
            return ()
        has_totp, passkeys = await tx.second_factors.has_totp(user.user_id), await tx.passkeys.list_by_user(user.user_id)
        found = (("totp", has_totp), ("passkey", bool(passkeys)), ("recoveryCode", True))
        return tuple(name for name, available in found if available)


async def _was_cut_off(tx: ApprovalsTx, user: User, issued_ms: int) -> bool:
    """Whether the person changed the password or had a session revoked since."""
    return max(user.password_changed_ms, await tx.user_sessions.last_revoked_ms(user.user_id) or 0) > issued_ms


def _purpose(linked: ApprovalLinkDetails) -> str:
    """What a passkey signs for: this decision of this person."""
    return f"approval-link:{linked.approval.approval_id}:{linked.caller.membership_id}"


def _link_invalid_error() -> ValidationFailed:
    return ValidationFailed.for_field(
        "token", "is wrong or has expired. Sign in to decide: the request may still wait.", code="LINK_INVALID"
    )
