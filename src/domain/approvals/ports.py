"""What the approvals part needs from outside, and the port through which an approved command is let go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.approvals.model import Approval, ApprovalStatus
from domain.devices.model import Device
from domain.grants.ports import GrantsTx
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId


class ApprovalRepository(Protocol):
    async def add(self, approval: Approval) -> None: ...

    async def get(self, account_id: AccountId, approval_id: ApprovalId) -> Approval | None: ...

    async def list(
        self,
        account_id: AccountId,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 200,
    ) -> Sequence[Approval]:
        """Newest first."""
        ...

    async def decide(self, approval: Approval) -> bool:
        """Write the decision if the stored one is still PENDING; True for exactly one caller."""
        ...

    async def waiting_on(self, account_id: AccountId, device_id: DeviceId) -> int:
        """How many of the device are PENDING."""
        ...

    async def overdue(self, now_ms: int, limit: int) -> Sequence[Approval]:
        """PENDING ones whose time is up, oldest first."""
        ...

    async def next_expiry_ms(self) -> int | None: ...

    async def forget_before(self, created_ms: int, limit: int) -> int:
        """Delete decided ones among the `limit` oldest; how many went."""
        ...


class ApprovalsTx(GrantsTx, Protocol):
    @property
    def approvals(self) -> ApprovalRepository: ...


class Release(Protocol):
    """Checks the requester's grant and the device anew and queues the command, all in `tx`. Raises what a refused command
    raises. Implemented by the commands part, which stands above this one."""

    async def release(self, tx: ApprovalsTx, approval: Approval, device: Device, now_ms: int) -> ExecutionId: ...
