"""A device without credentials trades a provisioning code for its own.

One transaction decides and makes the device, with the code locked: a code never gives more than it is for. The hardware id
becomes the device's `externalId`, which is unique in the account, so a hardware id gets credentials once, with whatever code. A
device that was registered with this `externalId` before, and has no credentials yet, is the one that gets them.

Who claims is a stranger: wrong codes are counted by address, in the transaction that finds them wrong. A right code is never
refused for the wrong ones of its neighbours: one board with an old code would keep out all others of its network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.devices.credential_sync import CredentialSyncService
from domain.devices.credentials import CredentialIssuer, RevealedCredentials
from domain.devices.model import Device, DeviceStatus
from domain.devices.registration import add_device, check_device_capacity
from domain.kernel.caller import Role, SystemCaller
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import Conflict, PermissionDenied, Unauthenticated
from domain.kernel.ids import ClaimId, DeviceId, IdAndSecretGenerator, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode
from domain.provisioning.ports import ProvisioningTx
from domain.sign_in.policy import AttemptLimit, client_network
from domain.sign_in.ports import TokenHasher

MAX_DENIED_CLAIMS = 200
"""Denied hardware ids of one code; more of them mean that somebody plays with it."""
WRONG_CODES = AttemptLimit(20, 15 * MINUTE_MS)
"""Wrong codes from one block of addresses."""


@dataclass(frozen=True, slots=True)
class ProvisioningClaimInput:
    secret: str
    hardware_id: str
    name: str | None
    address: str


@service
class ProvisioningCodeRedemptionService:
    uow: UnitOfWork[ProvisioningTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    issuer: CredentialIssuer
    credential_sync: CredentialSyncService

    async def claim(self, request: ProvisioningClaimInput) -> RevealedCredentials | None:
        """The credentials; None while the claim waits for approval.

        Raises Unauthenticated `PROVISIONING_CODE_INVALID`, RateLimited `LOGIN_THROTTLED`, PermissionDenied `CLAIM_DENIED`,
        Conflict `ALREADY_CLAIMED`, `PROVISIONING_CODE_USED_UP` or `TOO_MANY_DEVICES`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            found = await self._find_code(tx, request, now_ms)
            issued = None if isinstance(found, Unauthenticated) else await self._claim(tx, found, request, now_ms)
        if isinstance(found, Unauthenticated):
            raise found
        if issued is not None:
            await self.credential_sync.sync(DeviceId(issued.device_id))
        return issued

    async def _find_code(
        self, tx: ProvisioningTx, request: ProvisioningClaimInput, now_ms: int
    ) -> ProvisioningCode | Unauthenticated:
        """The error is returned: its transaction must commit, as it counts the wrong code."""
        subject = f"claim:{client_network(request.address)}"
        failures = await tx.login_failures.get_for_update(subject)
        code = await tx.provisioning_codes.find_by_hash_for_update(self.digest.sha256(request.secret))
        maker = None if code is None else await tx.memberships.get_for_share(code.created_by)
        if code is not None and now_ms < code.expires_ms and maker is not None and maker.role.is_at_least(Role.ADMIN):
            return code
        WRONG_CODES.check(failures, now_ms, "wrong provisioning codes")
        await tx.login_failures.upsert(WRONG_CODES.count(failures, subject, now_ms))
        return Unauthenticated(  # one error for all reasons, so that a stranger learns nothing
            "This provisioning code is unknown, expired or revoked, or its maker is no Admin any more. Ask for a new one.",
            code="PROVISIONING_CODE_INVALID",
        )

    async def _claim(
        self, tx: ProvisioningTx, code: ProvisioningCode, request: ProvisioningClaimInput, now_ms: int
    ) -> RevealedCredentials | None:
        claim = await tx.device_claims.find_for_update(code.code_id, request.hardware_id)
        if claim is not None and claim.status is ClaimStatus.DENIED:
            raise PermissionDenied("An Admin has denied this hardware id. Ask an Admin to approve it.", code="CLAIM_DENIED")
        existing = await self._find_registered(tx, code, request.hardware_id)
        if claim is None or claim.status is ClaimStatus.CLAIMED:  # claimed, and the device was deleted since
            await self._check_room(tx, code)
            status = ClaimStatus.WAITING if code.requires_approval else ClaimStatus.APPROVED
            claim = self._new_claim(code, request, status, now_ms, claim)
            if status is ClaimStatus.WAITING:
                await tx.device_claims.upsert(claim)
                self._emit(tx, code, claim, "device_claim_requested", "waits for approval", now_ms)
        if claim.status is ClaimStatus.WAITING:
            return None
        if code.claimed_count >= code.max_devices:  # also for a claim that was approved after others had used the code up
            raise _used_up_error()
        return await self._give_credentials(tx, code, replace(claim, address=request.address), existing, now_ms)

    async def _give_credentials(
        self, tx: ProvisioningTx, code: ProvisioningCode, claim: DeviceProvisioningClaim, existing: Device | None, now_ms: int
    ) -> RevealedCredentials:
        caller = _caller(code, claim)
        if existing is None:
            check_device_capacity(await tx.devices.count(code.account_id))
            device_id = DeviceId(self.ids.new_id(IdPrefix.DEVICE))
            existing = await add_device(tx, caller, device_id, code.registration(claim), now_ms)
        issued = await self.issuer.issue(tx, caller, existing, now_ms)
        done = replace(claim, status=ClaimStatus.CLAIMED, device_id=existing.device_id)
        await tx.device_claims.upsert(done)
        await tx.provisioning_codes.set_claimed_count(code.code_id, code.claimed_count + 1)
        self._emit(tx, code, done, "device_claimed", "got its credentials", now_ms)
        return issued

    async def _find_registered(self, tx: ProvisioningTx, code: ProvisioningCode, hardware_id: str) -> Device | None:
        """A device of the code's project that was registered with this hardware id and has no credentials yet."""
        found = await tx.devices.list_by_external_ids(code.account_id, [hardware_id])
        if not found:
            return None
        if found[0].status is not DeviceStatus.PENDING or found[0].project_id != code.project_id:
            raise Conflict(
                "This hardware id has its credentials already; a code gives them once. Delete the device, then it can claim "
                "again; or give it new credentials by hand.",
                code="ALREADY_CLAIMED",
            )
        return found[0]

    async def _check_room(self, tx: ProvisioningTx, code: ProvisioningCode) -> None:
        open_count = sum([await tx.device_claims.count(code.code_id, one) for one in (ClaimStatus.WAITING, ClaimStatus.APPROVED)])
        denied_count = await tx.device_claims.count(code.code_id, ClaimStatus.DENIED)
        if code.claimed_count + open_count >= code.max_devices or denied_count >= MAX_DENIED_CLAIMS:
            raise _used_up_error()

    def _new_claim(
        self,
        code: ProvisioningCode,
        request: ProvisioningClaimInput,
        status: ClaimStatus,
        now_ms: int,
        before: DeviceProvisioningClaim | None,
    ) -> DeviceProvisioningClaim:
        claim_id = ClaimId(self.ids.new_id(IdPrefix.CLAIM)) if before is None else before.claim_id
        return DeviceProvisioningClaim(
            claim_id, code.code_id, code.account_id, request.hardware_id, request.name, request.address, status, None, now_ms
        )

    def _emit(
        self, tx: ProvisioningTx, code: ProvisioningCode, claim: DeviceProvisioningClaim, kind: EventKind, what: str, now_ms: int
    ) -> None:
        text = f"Device {claim.hardware_id} {what} (provisioning code {code.name})"
        data = {"codeId": code.code_id, "claimId": claim.claim_id, "hardwareId": claim.hardware_id}
        tx.emit(event_of(_caller(code, claim), kind, text, now_ms, claim.device_id, **data))


def _caller(code: ProvisioningCode, claim: DeviceProvisioningClaim) -> SystemCaller:
    return SystemCaller(code.account_id, "provisioning", code.code_id, address=claim.address)


def _used_up_error() -> Conflict:
    return Conflict(
        "This provisioning code was used for as many devices as it is for. Ask an Admin for a new one.",
        code="PROVISIONING_CODE_USED_UP",
    )
