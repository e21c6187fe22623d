"""Whether a person is present now: the checks before acts that a stolen session must not reach. `step_up.py` records the proof.

In the transaction of the act itself, so that a proof that ends meanwhile does not count.
"""

from __future__ import annotations

from domain.kernel.caller import Caller, SessionCaller
from domain.kernel.clock import is_of_earlier_clock
from domain.kernel.errors import PermissionDenied
from domain.sign_in.policy import STEP_UP_TTL_MS, WRONG_FACTOR
from domain.sign_in.ports import SignInTx


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


def invalid_factor_error() -> PermissionDenied:
    return PermissionDenied(WRONG_FACTOR, code="SECOND_FACTOR_INVALID")
