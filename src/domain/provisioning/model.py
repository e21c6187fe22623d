"""A provisioning code, the claims that devices make with it, and their rules.

A claim is PENDING until somebody decides, APPROVED until the device fetches its credentials, then CLAIMED; or DENIED. A code that
asks for no approval makes it CLAIMED at once. It is decided once.

A claim belongs to who made it, which the claim token proves: a secret of the device, or one that the first answer gave it.
Whoever has the code and knows the hardware id, but not the token, gets nothing of this claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from domain.devices.model import DeviceMetadata, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.ids import AccountId, ClaimId, DeviceId, DeviceTypeId, MembershipId, ProjectId, ProvisioningCodeId


@dataclass(frozen=True, slots=True)
class ProvisioningCode:
    """`claimed_count`: how many devices have got credentials with it. `created_by` must stay an Admin, or the code is void.
    `hardware_ids`: those that may come, as `stored_hardware_id` writes them; empty for any."""

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
    hardware_ids: tuple[str, ...] = ()

    def admits(self, hardware_id: str) -> bool:
        return not self.hardware_ids or hardware_id in self.hardware_ids

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
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    CLAIMED = "CLAIMED"


@dataclass(frozen=True, slots=True)
class DeviceProvisioningClaim:
    """`name` and `address` are what the device said and where it called from. `device_id` is set when it is CLAIMED, and None
    again when that device is deleted. `claimed_ms`: when its credentials were made."""

    claim_id: ClaimId
    code_id: ProvisioningCodeId
    account_id: AccountId
    hardware_id: str
    name: str | None
    address: str
    status: ClaimStatus
    device_id: DeviceId | None
    created_ms: int
    token_hash: bytes = field(repr=False)
    decided_by: str | None = None
    decided_ms: int | None = None
    claimed_ms: int | None = None
    seq: int = field(default=0, compare=False, repr=False)
    """Its place among those of its kind, in the order of their making. The storage gives it."""

    @property
    def ended_ms(self) -> int | None:
        """When the device had its credentials, or was denied them; None while it may still get some."""
        return self.decided_ms if self.status is ClaimStatus.DENIED else self.claimed_ms

    @property
    def is_over(self) -> bool:
        """Its device was deleted: the hardware id may claim again."""
        return self.status is ClaimStatus.CLAIMED and self.device_id is None


def stored_hardware_id(text: str) -> str:
    """A hardware id (ASCII) as it is stored and compared: firmware writes the same MAC address in either case."""
    return text.upper()


MAX_CODE_DEVICES = 10_000
MAX_LISTED_HARDWARE_IDS = 1_000
"""Of one code."""
POLL_AFTER_S = 30
"""When a device that waits for approval asks again."""
