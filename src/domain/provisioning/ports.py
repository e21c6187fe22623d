"""Ports of provisioning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.devices.ports import DevicesTx
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, ClaimId, ProvisioningCodeId
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode


class ProvisioningCodeRepository(Protocol):
    async def add(self, code: ProvisioningCode) -> None: ...

    async def get_for_update(self, account_id: AccountId, code_id: ProvisioningCodeId) -> ProvisioningCode | None:
        """Locks the code until the write transaction ends: its claims are counted one after the other."""

    async def find_by_hash_for_update(self, code_hash: bytes) -> ProvisioningCode | None: ...

    async def list_by_account(self, account_id: AccountId) -> Sequence[ProvisioningCode]:
        """Oldest first."""

    async def set_claimed_count(self, code_id: ProvisioningCodeId, count: int) -> None: ...

    async def delete(self, code_id: ProvisioningCodeId) -> None:
        """With its claims; the devices stay."""


class DeviceProvisioningClaimRepository(Protocol):
    """One claim per code and hardware id."""

    async def upsert(self, claim: DeviceProvisioningClaim) -> None: ...

    async def get_for_update(self, account_id: AccountId, claim_id: ClaimId) -> DeviceProvisioningClaim | None: ...

    async def find_for_update(self, code_id: ProvisioningCodeId, hardware_id: str) -> DeviceProvisioningClaim | None:
        """Locks the claim: a decision on it and the use of it follow one another."""

    async def count(self, code_id: ProvisioningCodeId, status: ClaimStatus) -> int: ...

    async def delete(self, claim_id: ClaimId) -> None: ...

    async def list_by_account(
        self, account_id: AccountId, status: ClaimStatus | None, before: Position | None, limit: int, created: TimeSpan = ANY_TIME
    ) -> Sequence[DeviceProvisioningClaim]:
        """Newest first; `before`: only what is older than this (`created_ms`, `seq`)."""


class ProvisioningTx(DevicesTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def provisioning_codes(self) -> ProvisioningCodeRepository: ...

    @property
    def device_claims(self) -> DeviceProvisioningClaimRepository: ...
