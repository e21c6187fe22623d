"""Rules of provisioning codes, without I/O."""

from __future__ import annotations

from domain.accounts.model import Membership
from domain.kernel.caller import Role
from domain.kernel.clock import DAY_MS, MINUTE_MS
from domain.kernel.errors import Conflict, PermissionDenied, Unauthenticated, ValidationFailed
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode
from domain.sign_in.policy import AttemptLimit

CODE_PREFIX = "lbp_"
CODE_RANDOM_LENGTH = 26
"""Letters and digits: 154 bits."""
DISPLAY_PREFIX_LENGTH = len(CODE_PREFIX) + 4
MAX_CODE_DEVICES = 10_000
MAX_CODE_TTL_MS = 366 * DAY_MS
MAX_DENIED_CLAIMS = 200
"""Denied hardware ids of one code; more of them mean that somebody plays with it."""
WRONG_CODES = AttemptLimit(20, 15 * MINUTE_MS)
"""Wrong codes from one block of addresses."""
POLL_AFTER_S = 30
"""When a device that waits for approval asks again."""


def check_expiry(expires_ms: int, now_ms: int) -> None:
    if not now_ms < expires_ms <= now_ms + MAX_CODE_TTL_MS:
        raise ValidationFailed.for_field("expiresAt", "must be in the future, and at most a year ahead.")


def check_code_is_valid(code: ProvisioningCode | None, maker: Membership | None, now_ms: int) -> ProvisioningCode:
    """One error for all reasons, so that a stranger learns nothing. Raises Unauthenticated `PROVISIONING_CODE_INVALID`.

    `maker`: the membership `created_by`, as of this transaction."""
    may_make = maker is not None and maker.role.is_at_least(Role.ADMIN)
    if code is None or not may_make or now_ms >= code.expires_ms:
        raise Unauthenticated(
            "This provisioning code is unknown, expired or revoked, or its maker is no Admin any more. Ask for a new one.",
            code="PROVISIONING_CODE_INVALID",
        )
    return code


def check_claim_is_open(claim: DeviceProvisioningClaim | None) -> None:
    """Raises PermissionDenied `CLAIM_DENIED` for a hardware id that somebody has denied."""
    if claim is not None and claim.status is ClaimStatus.DENIED:
        raise PermissionDenied("An Admin has denied this hardware id. Ask an Admin to approve it.", code="CLAIM_DENIED")


def check_not_used_up(code: ProvisioningCode) -> None:
    """Raises Conflict `PROVISIONING_CODE_USED_UP`, also for a claim that was approved after others had used the code up."""
    if code.claimed_count >= code.max_devices:
        raise code_used_up_error()


def already_claimed_error() -> Conflict:
    return Conflict(
        "This hardware id has its credentials already; a code gives them once. Delete the device, then it can claim again; "
        "or give it new credentials by hand.",
        code="ALREADY_CLAIMED",
    )


def code_used_up_error() -> Conflict:
    return Conflict(
        "This provisioning code was used for as many devices as it is for. Ask an Admin for a new one.",
        code="PROVISIONING_CODE_USED_UP",
    )
