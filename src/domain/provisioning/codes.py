"""Make, list and revoke provisioning codes, and decide about the claims that wait. A code is shown once; its hash is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.accounts.policy import check_name
from domain.devices.model import FirmwareProfile
from domain.devices.registration import check_references
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.checks import check_capacity
from domain.kernel.clock import ANY_TIME, DAY_MS, Clock, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, NotFound, ValidationFailed
from domain.kernel.ids import ClaimId, DeviceTypeId, IdAndSecretGenerator, IdPrefix, ProjectId, ProvisioningCodeId
from domain.kernel.unit_of_work import UnitOfWork
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode
from domain.provisioning.ports import ProvisioningTx
from domain.sign_in.ports import TokenHasher
from domain.sign_in.presence import require_fresh_proof

CODE_PREFIX = "lbp_"
CODE_RANDOM_LENGTH = 26
"""Letters and digits: 154 bits."""
DISPLAY_PREFIX_LENGTH = len(CODE_PREFIX) + 4
MAX_CODE_TTL_MS = 366 * DAY_MS


@dataclass(frozen=True, slots=True)
class ProvisioningCodeInput:
    name: str
    board_type: str
    app_type: str
    expires_ms: int
    max_devices: int
    requires_approval: bool
    project_id: ProjectId | None = None
    device_type_id: DeviceTypeId | None = None
    profile: FirmwareProfile | None = None
    tags: tuple[str, ...] = ()
    hardware_ids: tuple[str, ...] = ()
    """The only ones that may come, as they are stored; empty for any."""


@service
class ProvisioningCodeService:
    uow: UnitOfWork[ProvisioningTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher

    async def create(self, caller: SessionCaller, wanted: ProvisioningCodeInput) -> tuple[ProvisioningCode, str]:
        """The code and its text, which is not stored.

        Raises PermissionDenied, also `STEP_UP_REQUIRED`; NotFound for an unknown project or device type; Conflict
        `PROVISIONING_CODE_LIMIT`."""
        now_ms = self.clock.now_ms()
        if not now_ms < wanted.expires_ms <= now_ms + MAX_CODE_TTL_MS:
            raise ValidationFailed.for_field("expiresAt", "must be in the future, and at most a year ahead.")
        secret = f"{CODE_PREFIX}{self.ids.random_alphanumeric(CODE_RANDOM_LENGTH)}"
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            existing = await tx.provisioning_codes.list_by_account(caller.account_id)
            check_capacity(len(existing), "PROVISIONING_CODE_LIMIT", "An account has at most {limit} provisioning codes")
            await check_references(tx, caller.account_id, wanted.project_id, wanted.device_type_id)
            project_id = wanted.project_id or (await tx.projects.get_default(caller.account_id)).project_id
            code = ProvisioningCode(
                code_id=ProvisioningCodeId(self.ids.new_id(IdPrefix.PROVISIONING_CODE)),
                account_id=caller.account_id,
                name=check_name(wanted.name),
                prefix=secret[:DISPLAY_PREFIX_LENGTH],
                code_hash=self.digest.sha256(secret),
                project_id=project_id,
                board_type=wanted.board_type,
                app_type=wanted.app_type,
                profile=wanted.profile,
                device_type_id=wanted.device_type_id,
                tags=wanted.tags,
                max_devices=wanted.max_devices,
                claimed_count=0,
                requires_approval=wanted.requires_approval,
                expires_ms=wanted.expires_ms,
                created_by=caller.membership_id,
                created_ms=now_ms,
                hardware_ids=wanted.hardware_ids,
            )
            await tx.provisioning_codes.add(code)
            text = f"Provisioning code {code.name} ({code.prefix}…) was created for {code.max_devices} devices"
            tx.emit(event_of(caller, "provisioning_code_created", text, self.clock.now_ms(), codeId=code.code_id))
        return code, secret

    async def list(self, caller: SessionCaller) -> Sequence[ProvisioningCode]:
        async with self.uow.read() as tx:
            return await tx.provisioning_codes.list_by_account(caller.account_id)

    async def get(self, caller: SessionCaller, code_id: ProvisioningCodeId) -> ProvisioningCode:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_code(tx, caller, code_id)

    async def revoke(self, caller: SessionCaller, code_id: ProvisioningCodeId) -> None:
        """Deletes the code and what waits for it, at once; the devices that have used it stay. Raises NotFound."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            code = await _get_code(tx, caller, code_id)
            await tx.provisioning_codes.delete(code_id)
            text = f"Provisioning code {code.name} ({code.prefix}…) was revoked"
            tx.emit(event_of(caller, "provisioning_code_revoked", text, self.clock.now_ms(), codeId=code_id))

    async def list_claims(
        self,
        caller: SessionCaller,
        *,
        status: ClaimStatus | None,
        before: Position | None,
        limit: int,
        created: TimeSpan = ANY_TIME,
    ) -> Sequence[DeviceProvisioningClaim]:
        """Newest first; `before`: only what is older than this (`created_ms`, `seq`)."""
        async with self.uow.read() as tx:
            return await tx.device_claims.list_by_account(caller.account_id, status, before, limit, created)

    async def get_claim(self, caller: SessionCaller, claim_id: ClaimId) -> DeviceProvisioningClaim:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_claim(tx, caller, claim_id)

    async def decide(self, caller: SessionCaller, claim_id: ClaimId, *, approve: bool) -> DeviceProvisioningClaim:
        """For the board that holds the claim's token, and no other one with its hardware id. Once: `forget` takes it back until
        the device has its credentials.

        Raises NotFound, Conflict `ALREADY_DECIDED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            claim = await _get_claim(tx, caller, claim_id)
            if claim.status is not ClaimStatus.PENDING:
                raise Conflict(
                    f"This claim is already {claim.status}. Exactly one decision counts. Forget the claim to let the board ask "
                    "again; revoke the credentials of a device on its page.",
                    code="ALREADY_DECIDED",
                )
            status = ClaimStatus.APPROVED if approve else ClaimStatus.DENIED
            claim = replace(claim, status=status, decided_by=caller.label, decided_ms=now_ms)
            await tx.device_claims.upsert(claim)
            text = f"Device {claim.hardware_id} was {'approved' if approve else 'denied'}"
            data = {"claimId": claim_id, "hardwareId": claim.hardware_id}
            tx.emit(event_of(caller, "device_claim_decided", text, self.clock.now_ms(), **data))
        return claim

    async def forget(self, caller: SessionCaller, claim_id: ClaimId) -> None:
        """Delete a claim that has no device: its hardware id may make a new one, whoever asks first.

        Raises NotFound, Conflict `ALREADY_CLAIMED`."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            claim = await _get_claim(tx, caller, claim_id)
            if claim.status is ClaimStatus.CLAIMED and not claim.is_over:
                raise Conflict(
                    "The device has its credentials already. Delete it, then it can claim again.", code="ALREADY_CLAIMED"
                )
            await tx.device_claims.delete(claim_id)
            data = {"claimId": claim_id, "hardwareId": claim.hardware_id}
            text = f"The claim of device {claim.hardware_id} was forgotten"
            tx.emit(event_of(caller, "device_claim_decided", text, self.clock.now_ms(), **data))


async def _get_code(tx: ProvisioningTx, caller: SessionCaller, code_id: ProvisioningCodeId) -> ProvisioningCode:
    code = await tx.provisioning_codes.get_for_update(caller.account_id, code_id)
    if code is None:
        raise NotFound.for_resource("provisioning code", code_id)
    return code


async def _get_claim(tx: ProvisioningTx, caller: SessionCaller, claim_id: ClaimId) -> DeviceProvisioningClaim:
    claim = await tx.device_claims.get_for_update(caller.account_id, claim_id)
    if claim is None:
        raise NotFound.for_resource("claim", claim_id)
    return claim
