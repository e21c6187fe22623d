"""What the approvals part needs from outside, and the port through which an approved command is let go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from domain.approvals.model import Approval, ApprovalStatus
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId
from domain.kernel.unit_of_work import Transaction


class ApprovalRepository(Protocol):
    async def add(self, approval: Approval) -> None: ...

    async def get(self, account_id: AccountId, approval_id: ApprovalId) -> Approval | None: ...

    async def list_newest(
        self,
        account_id: AccountId,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 200,
    ) -> Sequence[Approval]:
        """Newest first."""
        ...

    async def decide_if_pending(self, approval: Approval) -> bool:
        """Write the decision if the stored one is still PENDING; True for exactly one caller."""
        ...

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int:
        """How many of the device are PENDING."""
        ...

    async def count_all_pending(self) -> int:
        """How many are PENDING in all accounts."""
        ...

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Approval]:
        """PENDING ones whose time is up, oldest first."""
        ...

    async def next_expiry_ms(self) -> int | None: ...

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        """Delete decided ones among the `limit` oldest; how many went."""
        ...


class HasApprovals(Protocol):
    @property
    def approvals(self) -> ApprovalRepository: ...


class ApprovalTx(Transaction, HasApprovals, HasDevices, Protocol): ...


TxT_contra = TypeVar("TxT_contra", contravariant=True)


class ApprovedCommandSubmitter(Protocol[TxT_contra]):
    """Checks the requester's grant and the device anew and queues the command, all in `tx`. Raises what a refused command
    raises. Implemented by the commands part, which stands above this one."""

    async def submit_approved(self, tx: TxT_contra, approval: Approval, device: Device, now_ms: int) -> ExecutionId: ...
