"""Port that ends what waits for approval when the one who asked is deleted."""

from __future__ import annotations

from typing import Protocol, TypeVar

from domain.kernel.caller import SessionCaller
from domain.kernel.ids import KeyId, MembershipId

TxT_contra = TypeVar("TxT_contra", contravariant=True)


class PendingApprovalCloserPort(Protocol[TxT_contra]):
    """Ends the requests that wait for approval when their requester is deleted. The approvals part, a higher layer, implements
    it."""

    async def close_requests(
        self,
        tx: TxT_contra,
        caller: SessionCaller,
        now_ms: int,
        *,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
    ) -> None:
        """Exactly one of `key_id` and `membership_id` is given; the changes are part of `tx`."""
