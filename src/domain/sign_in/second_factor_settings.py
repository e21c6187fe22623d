"""A user's second factor: set up an authenticator app, recovery codes, remove it again. Passkeys have a service of their own.

Every change needs a recent proof of presence (`step_up.py`), so that a stolen session cannot replace the factor. Setting up the
first factor ends all other sessions, because those were opened without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, NotFound, Unauthenticated, ValidationFailed
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import TotpEnrollment
from domain.sign_in.policy import RolesRequiringSecondFactor, normalize_code, second_factor_required_error
from domain.sign_in.ports import SignInTx, TotpCodec
from domain.sign_in.presence import require_verification
from domain.sign_in.second_factor import RecoveryCodeIssuer, complete_factor_removal


@dataclass(frozen=True, slots=True)
class SecondFactorStatus:
    """`enabled`: there is at least one, an authenticator app (`totp`) or a passkey."""

    enabled: bool
    required: bool
    totp: bool
    passkeys: int
    recovery_codes_left: int


@dataclass(frozen=True, slots=True)
class TotpSetup:
    secret: str = field(repr=False)
    uri: str = field(repr=False)
    qr_svg: str = field(repr=False)
    qr_rows: Sequence[str] = field(repr=False)


@service
class SecondFactorService:
    uow: UnitOfWork[SignInTx]
    clock: Clock
    vault: Vault
    totp: TotpCodec
    recovery_codes: RecoveryCodeIssuer
    requirement: RolesRequiringSecondFactor

    async def get_status(self, caller: SessionCaller) -> SecondFactorStatus:
        async with self.uow.read() as tx:
            enabled = await tx.second_factors.is_enabled(caller.user_id)
            totp = await tx.second_factors.has_totp(caller.user_id)
            passkeys = len(await tx.passkeys.list_by_user(caller.user_id))
            left = await tx.second_factors.count_recovery_codes(caller.user_id)
        # Not of a session whose identity provider stands for it: its caller lacks none.
        is_required = self.requirement.applies_to(caller.role) and (enabled or caller.lacks_second_factor)
        return SecondFactorStatus(enabled, is_required, totp, passkeys, left)

    async def begin_totp(self, caller: SessionCaller) -> TotpSetup:
        """A new secret, which counts once a code of it is confirmed. Raises Conflict when the user has a confirmed one."""
        now_ms = self.clock.now_ms()
        secret = self.totp.new_secret()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            user = await tx.users.get(caller.user_id)
            existing = await tx.second_factors.get_totp_for_update(caller.user_id)
            if user is None:
                raise Unauthenticated("This user no longer exists.")
            if existing is not None and existing.confirmed_ms is not None:
                raise Conflict("You have an authenticator app already. Remove it first.", code="SECOND_FACTOR_EXISTS")
            sealed = self.vault.seal(secret, caller.user_id)
            await tx.second_factors.upsert_totp(TotpEnrollment(caller.user_id, sealed, now_ms))
        uri = self.totp.setup_uri(secret, user.email)
        return TotpSetup(secret, uri, self.totp.qr_svg(uri), self.totp.qr_rows(uri))

    async def confirm_totp(self, caller: SessionCaller, code: str) -> Sequence[str]:
        """The recovery codes, shown once; none for a user who has some already, because of a passkey.

        Raises ValidationFailed `SECOND_FACTOR_INVALID`, NotFound before `begin_totp`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            secret = await tx.second_factors.get_totp_for_update(caller.user_id)
            if secret is None or secret.confirmed_ms is not None:
                raise NotFound("There is no authenticator app to confirm. Begin with POST /api/v1/auth/second-factor/totp.")
            opened = self.vault.open(secret.sealed, caller.user_id)
            step = self.totp.matching_step(opened, normalize_code(code), now_ms)
            if step is None:
                raise ValidationFailed.for_field(
                    "code",
                    "is wrong. Enter the code that the app shows now; check the clock of its device.",
                    code="SECOND_FACTOR_INVALID",
                )
            is_first = not await tx.second_factors.is_enabled(caller.user_id)
            await tx.second_factors.upsert_totp(replace(secret, confirmed_ms=now_ms, last_step=step))
            codes = await self.recovery_codes.begin(tx, caller, now_ms) if is_first else ()
            tx.emit(event_of(caller, "second_factor_enabled", "An authenticator app was set up", now_ms))
        return codes

    async def renew_recovery_codes(self, caller: SessionCaller) -> Sequence[str]:
        """New codes instead of all old ones. Raises NotFound without a second factor."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            if not await tx.second_factors.is_enabled(caller.user_id):
                raise NotFound("You have no second factor, and recovery codes stand in for one. Set it up first.")
            codes = await self.recovery_codes.replace(tx, caller.user_id)
            tx.emit(event_of(caller, "recovery_codes_renewed", "The recovery codes were replaced", now_ms))
        return codes

    async def remove_totp(self, caller: SessionCaller) -> None:
        """The passkeys stay. Raises Conflict `SECOND_FACTOR_REQUIRED` for the last factor where one is required, NotFound."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            if not await tx.second_factors.has_totp(caller.user_id):
                raise NotFound("You have no authenticator app.")
            await tx.second_factors.delete_totp(caller.user_id)
            await complete_factor_removal(tx, caller, self.requirement)
            tx.emit(event_of(caller, "second_factor_removed", "The authenticator app was removed", now_ms))

    async def remove(self, caller: SessionCaller) -> None:
        """All factors. Raises Conflict `SECOND_FACTOR_REQUIRED` where one is required, NotFound without one."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            if self.requirement.applies_to(caller.role):
                raise second_factor_required_error()
            if not await tx.second_factors.is_enabled(caller.user_id):
                raise NotFound("You have no second factor.")
            await tx.second_factors.delete_all(caller.user_id)
            tx.emit(event_of(caller, "second_factor_removed", "The second factor was removed", now_ms))
