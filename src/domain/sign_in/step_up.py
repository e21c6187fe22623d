"""Step-up: proof that the user is present now, for acts that a stolen session must not reach.

Signing in is such a proof, and so is a second factor in a session, or the password for a user without one. It counts for
minutes.
"""

from __future__ import annotations

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.policy import PASSWORD_CONFIRMATIONS, STEP_UP_TTL_MS
from domain.sign_in.ports import PasswordHasher, SignInTx
from domain.sign_in.presence import invalid_factor_error
from domain.sign_in.second_factor import PresentedSecondFactor, SecondFactorChecker, purpose_of_step_up


@service
class StepUpService:
    uow: UnitOfWork[SignInTx]
    clock: Clock
    hasher: PasswordHasher
    factors: SecondFactorChecker

    async def step_up(self, caller: SessionCaller, *, password: str | None, factor: PresentedSecondFactor | None) -> int:
        """Until when the proof counts, in Unix ms. Raises PermissionDenied `PASSWORD_MISMATCH` or `SECOND_FACTOR_INVALID`,
        RateLimited after too many wrong ones."""
        subject = f"password:{caller.user_id}"
        async with self.uow.read() as tx:
            user = await tx.users.get(caller.user_id)
            has_factor = await tx.second_factors.is_enabled(caller.user_id)
            PASSWORD_CONFIRMATIONS.check(await tx.login_failures.get_for_update(subject), self.clock.now_ms(), "wrong passwords")
        if user is None:
            raise Unauthenticated("This user no longer exists.")
        if has_factor and factor is None:
            raise PermissionDenied(
                "You have a second factor. Confirm with it instead of the password.", code="SECOND_FACTOR_INVALID"
            )
        is_password = not has_factor and password is not None and await self.hasher.verify(user.password_hash, password)
        prepared = None
        if has_factor and factor is not None:
            prepared = await self.factors.prepare(factor, purpose_of_step_up(caller.session_id))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            if prepared is not None:
                accepted = await self.factors.check(tx, caller.user_id, prepared, now_ms)
            else:
                failures = await tx.login_failures.get_for_update(subject)
                PASSWORD_CONFIRMATIONS.check(failures, now_ms, "wrong passwords")
                accepted = is_password
                if not accepted:
                    await tx.login_failures.upsert(PASSWORD_CONFIRMATIONS.count(failures, subject, now_ms))
            if accepted and caller.session_id is not None:
                await tx.user_sessions.record_verification(caller.session_id, now_ms)
            text = f"{user.name} confirmed to be present" if accepted else f"{user.name} failed to confirm to be present"
            tx.emit(event_of(caller, "step_up" if accepted else "step_up_failed", text, now_ms))
        if not accepted and has_factor:
            raise invalid_factor_error()
        if not accepted:
            raise PermissionDenied("The password is wrong. Enter the one you sign in with.", code="PASSWORD_MISMATCH")
        return now_ms + STEP_UP_TTL_MS
