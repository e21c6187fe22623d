"""A command that waits for a decision: PENDING → APPROVED, DENIED or EXPIRED. Exactly one decision takes effect."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.kernel.clock import DAY_MS
from domain.kernel.domain_event import Json
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, GrantId, KeyId, MembershipId, SessionId, UserId

APPROVAL_TTL_MS = DAY_MS
MAX_PENDING_PER_DEVICE = 100
"""Pending requests per device: more than people decide on; bounds what a faulty client can queue."""


class ApprovalStatus(StrEnum):
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who requested the command: an API key, or a membership with its user. `session_id`: the service session that asked for
    the member; the request ends with it."""

    name: str
    key_id: KeyId | None = None
    membership_id: MembershipId | None = None
    user_id: UserId | None = None
    session_id: SessionId | None = None

    @property
    def label(self) -> str:
        return f"apikey:{self.key_id}" if self.key_id else f"user:{self.user_id}"


@dataclass(frozen=True, slots=True)
class Approval:
    approval_id: ApprovalId
    account_id: AccountId
    device_id: DeviceId
    cmd: str
    params: Json
    ttl_ms: int
    status: ApprovalStatus
    requested_by: Requester
    grant_id: GrantId | None
    created_ms: int
    expires_ms: int
    decided_by: str | None = None
    decided_ms: int | None = None
    execution_id: ExecutionId | None = None
    reason: str | None = None
    """Why the requester wants it."""
    note: str | None = None
    """What the decider says about it."""
