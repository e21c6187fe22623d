"""Ports of the approvals part: its repository, and what submits an approved command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from domain.approvals.model import Approval, ApprovalStatus
from domain.devices.model import Device
from domain.grants.ports import GrantsTx
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, KeyId, MembershipId
from domain.kernel.ports import ResultNotifier


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
        before: Position | None = None,
        created: TimeSpan = ANY_TIME,
    ) -> Sequence[Approval]:
        """Newest first; with `before`, a (`created_ms`, `seq`), only what is older."""

    async def list_pending_by_requester(
        self, account_id: AccountId, *, key_id: KeyId | None, membership_id: MembershipId | None
    ) -> Sequence[Approval]:
        """PENDING approvals that this key or membership requested, oldest first."""

    async def list_pending_devices(self, account_id: AccountId, key_id: KeyId) -> Sequence[DeviceId]:
        """The devices for which a request of this key is PENDING."""

    async def list_pending_commands(self, account_id: AccountId) -> Sequence[tuple[DeviceId, str, int]]:
        """The device and the command of each PENDING approval."""

    async def decide_if_pending(self, approval: Approval) -> bool:
        """Store the decision if the approval is still PENDING (compare-and-set); True for exactly one caller."""

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int: ...

    async def count_all_pending(self) -> int: ...

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Approval]:
        """PENDING approvals that have expired, oldest first."""

    async def next_expiry_ms(self) -> int | None: ...

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        """Delete the decided approvals among the `limit` oldest; returns the number deleted."""


ApprovalWaiter: TypeAlias = ResultNotifier[ApprovalId, Approval]
"""Of decisions."""


TxT_contra = TypeVar("TxT_contra", contravariant=True)


class ApprovedCommandSubmitterPort(Protocol[TxT_contra]):
    """Checks the requester's permission and the device again and queues the command, all in `tx`. Raises the same errors as a
    submitted command. The commands part, a higher layer, implements it."""

    async def submit_approved(self, tx: TxT_contra, approval: Approval, device: Device, now_ms: int) -> ExecutionId: ...


class ApprovalsTx(GrantsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def approvals(self) -> ApprovalRepository: ...
