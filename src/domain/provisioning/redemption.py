"""A device without credentials trades a provisioning code for its own.

One transaction decides and makes the device, with the code locked: a code never gives more than it is for. The hardware id
becomes the device's `externalId`, which is unique in the account, so a hardware id becomes one device, with whatever code. A
device that was registered with this `externalId` before, and has no credentials yet, is the one that gets them.

A claim is its token's: the first request brings one or is given one, and its hash is stored. With it the same request is answered
as before, the credentials too, until the device has connected with them; so a lost answer costs nothing to who chose the token.
Without it nobody gets anything of this claim, whatever an Admin has decided about it.

Who claims is a stranger: wrong codes are counted by address, in the transaction that finds them wrong. A right code is never
refused for the wrong ones of its neighbours: one board with an old code would keep out all others of its network.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace

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
from domain.provisioning.model import ClaimStatus, DeviceProvisioningClaim, ProvisioningCode, stored_hardware_id
from domain.provisioning.ports import ProvisioningTx
from domain.sign_in.policy import AttemptLimit, client_network
from domain.sign_in.ports import TokenHasher

MAX_DENIED_CLAIMS = 200
"""Denied hardware ids of one code; more of them mean that somebody plays with it."""
WRONG_CODES = AttemptLimit(20, 15 * MINUTE_MS)
"""Wrong codes from one block of addresses."""
REPEATED_ANSWERS = AttemptLimit(20, 15 * MINUTE_MS)
"""Answers with the credentials after the first one; each is an event."""
TOKEN_PREFIX = "lbt_"  # noqa: S105 - the same in each
TOKEN_RANDOM_LENGTH = 40
"""Letters and digits: 238 bits."""


@dataclass(frozen=True, slots=True)
class ProvisioningClaimInput:
    secret: str = field(repr=False)
    hardware_id: str
    name: str | None
    address: str
    token: str | None = field(default=None, repr=False)
    """None in a first request of a device that chooses none."""


@dataclass(frozen=True, slots=True)
class ProvisioningClaimAnswer:
    """`credentials`: None while the claim waits for approval."""

    token: str = field(repr=False)
    credentials: RevealedCredentials | None


@service
class ProvisioningCodeRedemptionService:
    uow: UnitOfWork[ProvisioningTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    issuer: CredentialIssuer
    credential_sync: CredentialSyncService

    async def claim(self, request: ProvisioningClaimInput) -> ProvisioningClaimAnswer:
        """Raises Unauthenticated `PROVISIONING_CODE_INVALID`, RateLimited `LOGIN_THROTTLED`, PermissionDenied `CLAIM_DENIED` or
        `HARDWARE_NOT_LISTED`, Conflict `ALREADY_CLAIMED`, `PROVISIONING_CODE_USED_UP` or `TOO_MANY_DEVICES`."""
        now_ms = self.clock.now_ms()
        token = request.token or f"{TOKEN_PREFIX}{self.ids.random_alphanumeric(TOKEN_RANDOM_LENGTH)}"
        request = replace(request, hardware_id=stored_hardware_id(request.hardware_id), token=token)
        async with self.uow.write(caller=None) as tx:
            found = await self._find_code(tx, request, now_ms)
            issued = None if isinstance(found, Unauthenticated) else await self._claim(tx, found, request, now_ms)
        if isinstance(found, Unauthenticated):
            raise found
        if issued is not None:
            await self.credential_sync.sync(DeviceId(issued.device_id))
        return ProvisioningClaimAnswer(token, issued)

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
        if not code.admits(request.hardware_id):
            raise PermissionDenied(
                "This provisioning code is for listed hardware ids, and this one is not among them. Ask an Admin for a code that "
                "lists it.",
                code="HARDWARE_NOT_LISTED",
            )
        claim = await tx.device_claims.find_for_update(code.code_id, request.hardware_id)
        if claim is not None and not claim.is_over:
            return await self._go_on(tx, code, claim, request, now_ms)
        existing = await self._find_registered(tx, code, request.hardware_id)
        await self._check_room(tx, code)
        status = ClaimStatus.PENDING if code.requires_approval else ClaimStatus.APPROVED
        claim = self._new_claim(code, request, status, now_ms, claim)
        if status is ClaimStatus.APPROVED:
            return await self._give_credentials(tx, code, claim, existing, now_ms)
        await tx.device_claims.upsert(claim)
        self._emit(tx, code, claim, "device_claim_requested", "waits for approval", now_ms)
        return None

    async def _go_on(
        self,
        tx: ProvisioningTx,
        code: ProvisioningCode,
        claim: DeviceProvisioningClaim,
        request: ProvisioningClaimInput,
        now_ms: int,
    ) -> RevealedCredentials | None:
        """With a claim that is there already: only for who holds its token."""
        if not hmac.compare_digest(claim.token_hash, self._hash(request)):
            raise Conflict(
                "A board with this hardware id has claimed before, and the claimToken is not that of its claim. Send the token "
                "of the first request; if it is lost, ask an Admin to forget the claim, or to delete the device.",
                code="ALREADY_CLAIMED",
            )
        claim = replace(claim, address=request.address)
        if claim.status is ClaimStatus.PENDING:
            return None
        if claim.status is ClaimStatus.DENIED:
            raise PermissionDenied("An Admin has denied this claim. Ask an Admin to forget it.", code="CLAIM_DENIED")
        if claim.device_id is not None:
            return await self._repeat_credentials(tx, code, claim, claim.device_id, now_ms)
        existing = await self._find_registered(tx, code, request.hardware_id)
        if code.claimed_count >= code.max_devices:  # others came in place of devices that were deleted
            raise _used_up_error()
        return await self._give_credentials(tx, code, claim, existing, now_ms)

    async def _repeat_credentials(
        self, tx: ProvisioningTx, code: ProvisioningCode, claim: DeviceProvisioningClaim, device_id: DeviceId, now_ms: int
    ) -> RevealedCredentials:
        """Those of the claim, while nobody has connected with them or made other ones."""
        device = await tx.devices.get_for_update(code.account_id, device_id)
        stored = await tx.credentials.get_for_update(device_id)
        if device is None or stored is None or stored.created_ms != claim.claimed_ms or not device.has_unused_credentials:
            raise _has_credentials_error()
        subject = f"claim:{claim.claim_id}"
        answers = await tx.login_failures.get_for_update(subject)
        REPEATED_ANSWERS.check(answers, now_ms, "requests for the same credentials")
        await tx.login_failures.upsert(REPEATED_ANSWERS.count(answers, subject, now_ms))
        self._emit(tx, code, claim, "device_claimed", "got its credentials again", now_ms)
        return self.issuer.reveal_stored(device, stored)

    async def _give_credentials(
        self, tx: ProvisioningTx, code: ProvisioningCode, claim: DeviceProvisioningClaim, existing: Device | None, now_ms: int
    ) -> RevealedCredentials:
        caller = _caller(code, claim)
        if existing is None:
            check_device_capacity(await tx.devices.count(code.account_id))
            device_id = DeviceId(self.ids.new_id(IdPrefix.DEVICE))
            existing = await add_device(tx, caller, device_id, code.registration(claim), now_ms)
        issued = await self.issuer.issue(tx, caller, existing, now_ms)
        done = replace(claim, status=ClaimStatus.CLAIMED, device_id=existing.device_id, claimed_ms=now_ms)
        await tx.device_claims.upsert(done)
        await tx.provisioning_codes.set_claimed_count(code.code_id, code.claimed_count + 1)
        self._emit(tx, code, done, "device_claimed", "got its credentials", now_ms)
        return issued

    async def _find_registered(self, tx: ProvisioningTx, code: ProvisioningCode, hardware_id: str) -> Device | None:
        """A device of the code's project that was registered with this hardware id and has no credentials yet."""
        found = await tx.devices.list_by_hardware_id(code.account_id, hardware_id)
        if not found:
            return None
        if len(found) > 1 or found[0].status is not DeviceStatus.PENDING or found[0].project_id != code.project_id:
            raise _has_credentials_error()
        return found[0]

    async def _check_room(self, tx: ProvisioningTx, code: ProvisioningCode) -> None:
        open_count = sum([await tx.device_claims.count(code.code_id, one) for one in (ClaimStatus.PENDING, ClaimStatus.APPROVED)])
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
            claim_id=claim_id,
            code_id=code.code_id,
            account_id=code.account_id,
            hardware_id=request.hardware_id,
            name=request.name,
            address=request.address,
            status=status,
            device_id=None,
            created_ms=now_ms,
            token_hash=self._hash(request),
        )

    def _hash(self, request: ProvisioningClaimInput) -> bytes:
        return self.digest.sha256(request.token or "")

    def _emit(
        self, tx: ProvisioningTx, code: ProvisioningCode, claim: DeviceProvisioningClaim, kind: EventKind, what: str, now_ms: int
    ) -> None:
        text = f"Device {claim.hardware_id} {what} (provisioning code {code.name})"
        data = {"codeId": code.code_id, "claimId": claim.claim_id, "hardwareId": claim.hardware_id}
        tx.emit(event_of(_caller(code, claim), kind, text, now_ms, claim.device_id, **data))


def _caller(code: ProvisioningCode, claim: DeviceProvisioningClaim) -> SystemCaller:
    return SystemCaller(code.account_id, "provisioning", code.code_id, address=claim.address)


def _has_credentials_error() -> Conflict:
    return Conflict(
        "This hardware id has its credentials already; a code gives them until the device has connected with them. Delete the "
        "device, then it can claim again; or give it new credentials by hand.",
        code="ALREADY_CLAIMED",
    )


def _used_up_error() -> Conflict:
    return Conflict(
        "This provisioning code was used for as many devices as it is for. Ask an Admin for a new one.",
        code="PROVISIONING_CODE_USED_UP",
    )
