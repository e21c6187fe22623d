"""A provisioning code, and the claims that devices make with it.

A claim is WAITING until somebody decides, APPROVED until the device fetches its credentials, then CLAIMED; or DENIED. Without an
approval list it is CLAIMED at once.

Rules of provisioning codes, without I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.accounts.model import Membership
from domain.devices.model import DeviceMetadata, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.caller import Role
from domain.kernel.clock import DAY_MS, MINUTE_MS
from domain.kernel.errors import Conflict, PermissionDenied, Unauthenticated, ValidationFailed
from domain.kernel.ids import AccountId, ClaimId, DeviceId, DeviceTypeId, MembershipId, ProjectId, ProvisioningCodeId
from domain.sign_in.policy import AttemptLimit


@dataclass(frozen=True, slots=True)
class ProvisioningCode:
    """`claimed_count`: how many devices have got credentials with it. `created_by` must stay an Admin, or the code is void."""

    code_id: ProvisioningCodeId
    account_id: AccountId
    name: str
    prefix: str
    code_hash: bytes
    project_id: ProjectId
    board_type: str
    app_type: str
    profile: FirmwareProfile | None
    device_type_id: DeviceTypeId | None
    tags: tuple[str, ...]
    max_devices: int
    claimed_count: int
    requires_approval: bool
    expires_ms: int
    created_by: MembershipId
    created_ms: int

    def registration(self, claim: DeviceProvisioningClaim) -> DeviceRegistrationInput:
        """The device that a claim becomes; its hardware id is its external id."""
        return DeviceRegistrationInput(
            name=claim.name or f"{self.name} {claim.hardware_id}",
            board_type=self.board_type,
            app_type=self.app_type,
            project_id=self.project_id,
            device_type_id=self.device_type_id,
            profile=self.profile,
            about=DeviceMetadata(tags=self.tags),
            external_id=claim.hardware_id,
        )


class ClaimStatus(StrEnum):
    WAITING = "WAITING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    CLAIMED = "CLAIMED"


@dataclass(frozen=True, slots=True)
class DeviceProvisioningClaim:
    """`name` and `address` are what the device said and where it called from. `device_id` is set when it is CLAIMED, and None
    again when that device is deleted."""

    claim_id: ClaimId
    code_id: ProvisioningCodeId
    account_id: AccountId
    hardware_id: str
    name: str | None
    address: str
    status: ClaimStatus
    device_id: DeviceId | None
    created_ms: int
    decided_by: str | None = None
    decided_ms: int | None = None


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
