"""Port of approval links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.kernel.ids import ApprovalId, MembershipId


@dataclass(frozen=True, slots=True)
class ApprovalLinkClaims:
    membership_id: MembershipId
    approval_id: ApprovalId
    issued_ms: int
    expires_ms: int


class ApprovalLinkCodec(Protocol):
    """Signed tokens with a key of their own, so that no token of another kind is accepted, nor this one anywhere else."""

    def issue(self, membership_id: MembershipId, approval_id: ApprovalId, issued_ms: int, expires_ms: int) -> str: ...

    def read(self, token: str) -> ApprovalLinkClaims | None:
        """None unless this installation signed it. Whether it has expired is the caller's part."""
