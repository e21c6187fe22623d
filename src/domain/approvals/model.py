"""A command that waits for a human: PENDING → APPROVED, DENIED or EXPIRED. Exactly one decision ever wins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.kernel.clock import DAY_MS
from domain.kernel.domain_events import Json
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, GrantId, KeyId, MembershipId, UserId

APPROVAL_TTL_MS = DAY_MS
MAX_PENDING_PER_DEVICE = 100
"""Requests of one device that wait at once: more than anybody decides on, and what a robot gone astray can pile up."""


class ApprovalStatus(StrEnum):
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asked: a key, or a membership with its user."""

    name: str
    key_id: KeyId | None = None
    membership_id: MembershipId | None = None
    user_id: UserId | None = None

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
