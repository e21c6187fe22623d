"""Rules of the second factor, without I/O: who needs one, how long a proof counts, and how often a code may be wrong."""

from __future__ import annotations

from enum import StrEnum

from domain.kernel.caller import Role
from domain.kernel.clock import MINUTE_MS
from domain.kernel.errors import Conflict, ValidationFailed
from domain.sign_in.attempt_window_limit import AttemptLimit

CHALLENGE_TTL_MS = 5 * MINUTE_MS
CHALLENGE_TOKEN_LENGTH = 40
RECOVERY_CODES = 10
RECOVERY_CODE_LENGTH = 10
"""Letters and digits: 59 bits."""
STEP_UP_TTL_MS = 5 * MINUTE_MS
"""How long a proof of presence counts for a change of the factors and for the reveal of credentials."""
APPROVAL_STEP_UP_TTL_MS = 15 * MINUTE_MS
CODE_TRIES = AttemptLimit(5, 15 * MINUTE_MS)
"""Wrong second factors of one user. Only who knows the password, or holds a session, can use them up."""


class RolesRequiringSecondFactor(StrEnum):
    """Who must have a second factor."""

    NOBODY = "nobody"
    ADMINS = "admins"
    ALL = "all"

    def applies_to(self, role: Role) -> bool:
        return self is RolesRequiringSecondFactor.ALL or (
            self is RolesRequiringSecondFactor.ADMINS and role.is_at_least(Role.ADMIN)
        )


def second_factor_required_error() -> Conflict:
    return Conflict("This installation requires a second factor for your role.", code="SECOND_FACTOR_REQUIRED")


def challenge_expired_error() -> ValidationFailed:
    return ValidationFailed.for_field(
        "challengeToken", "is wrong, used or older than five minutes. Begin again with your password.", code="CHALLENGE_EXPIRED"
    )


def normalize_code(code: str) -> str:
    """Without the spaces and hyphens that people and apps write into codes."""
    return "".join(code.split()).replace("-", "")


def format_recovery_code(code: str) -> str:
    return f"{code[:5]}-{code[5:]}"
