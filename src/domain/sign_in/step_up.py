"""Step-up: proof that the user is present now, for acts that a stolen session must not reach.

Signing in is such a proof, and so is a second factor in a session, or the password for a user without one. It counts for
minutes.
"""

from __future__ import annotations

from domain.kernel.caller import Caller, Role, SessionCaller
from domain.kernel.clock import Clock, is_of_earlier_clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.policy import PASSWORD_CONFIRMATIONS, STEP_UP_TTL_MS, WRONG_FACTOR
from domain.sign_in.ports import PasswordHasher, SignInTx
from domain.sign_in.second_factor import PresentedSecondFactor, SecondFactorChecker, purpose_of_step_up


async def is_verified(tx: SignInTx, caller: SessionCaller, now_ms: int, within_ms: int) -> bool:
    """Whether the user of this session has proved to be present within this time."""
    session = None if caller.session_id is None else await tx.user_sessions.get(caller.session_id)
    verified_ms = None if session is None else session.verified_ms
    return verified_ms is not None and now_ms - verified_ms <= within_ms and not is_of_earlier_clock(verified_ms, now_ms)


async def require_verification(tx: SignInTx, caller: SessionCaller, now_ms: int, within_ms: int = STEP_UP_TTL_MS) -> None:
    """Raises PermissionDenied `STEP_UP_REQUIRED`."""
    if not await is_verified(tx, caller, now_ms, within_ms):
        raise PermissionDenied(
            "Confirm that it is you: POST /api/v1/auth/step-up with your second factor, or with your password if you have none.",
            code="STEP_UP_REQUIRED",
        )


async def require_fresh_proof(tx: SignInTx, caller: Caller, now_ms: int) -> None:
    """Before anything is made that outlives the session of who makes it: a key, a code, a channel, a member. As
    `require_verification` for the session of a person. A service session passes: it was made with a proof, for the operations
    that it names. So does the service itself. Raises PermissionDenied `STEP_UP_REQUIRED`."""
    if isinstance(caller, SessionCaller) and caller.session_id is not None and caller.operations is None:
        await require_verification(tx, caller, now_ms)


async def require_second_factor_if_enabled(tx: SignInTx, caller: SessionCaller, now_ms: int, within_ms: int) -> None:
    """For users with a second factor as `require_verification`; all others pass. So does the service's own caller."""
    await require_factor_of_link(tx, caller)
    if caller.session_id is not None and await tx.second_factors.is_enabled(caller.user_id):
        await require_verification(tx, caller, now_ms, within_ms)


async def require_factor_of_link(tx: SignInTx, caller: SessionCaller) -> None:
    """By an approval link, a second factor must have been shown with it: also one that was set up a moment ago.

    Raises PermissionDenied `SECOND_FACTOR_REQUIRED`."""
    if caller.has_shown_factor is False and await tx.second_factors.is_enabled(caller.user_id):
        raise PermissionDenied("Confirm with your second factor.", code="SECOND_FACTOR_REQUIRED")


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


def invalid_factor_error() -> PermissionDenied:
    return PermissionDenied(WRONG_FACTOR, code="SECOND_FACTOR_INVALID")
