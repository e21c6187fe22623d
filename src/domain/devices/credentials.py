"""A device's MQTT password: generated here, stored encrypted, revealed only after the account password is entered again.

Only the responses of generate and reveal contain the password: no event, log line or error does. Every reveal is logged, denied
ones too, and the log entry is committed before the password is returned. The complete firmware of a device has a placeholder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from domain.devices.catalog import default_config_format
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.firmware import (
    OTA_PLACEHOLDER,
    BrokerEndpoint,
    FirmwareConfigFormat,
    FirmwareConfigValues,
    FirmwareProject,
    FirmwareSourceReader,
    build_project,
    render_config,
    setup_note,
)
from domain.devices.lookup import get_device, get_device_to_cut_off, save_device
from domain.devices.model import Device, DeviceCredentials, DeviceLifecycleAction, DeviceStatus
from domain.devices.ports import DevicesTx
from domain.devices.presence import PresenceService
from domain.kernel.caller import Caller, Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, DomainError, NotFound, PermissionDenied, RateLimited
from domain.kernel.ids import DeviceId, IdAndSecretGenerator
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import LoginFailures
from domain.sign_in.policy import PASSWORD_CONFIRMATIONS, STEP_UP_TTL_MS
from domain.sign_in.ports import PasswordHasher
from domain.sign_in.presence import require_fresh_proof, require_second_factor_if_enabled

PASSWORD_LENGTH = 32
"""190 bits; every firmware's settings page accepts this length."""


@dataclass(frozen=True, slots=True)
class RevealedCredentials:
    device_id: str
    password: str = field(repr=False)
    endpoint: BrokerEndpoint
    config_block: str = field(repr=False)


@service
class CredentialIssuer:
    """Issues a password in a transaction of the caller: made, sealed, stored and recorded."""

    ids: IdAndSecretGenerator
    vault: Vault
    endpoint: BrokerEndpoint

    async def issue(
        self, tx: DevicesTx, caller: Caller, device: Device, now_ms: int, *, rotated: bool = False
    ) -> RevealedCredentials:
        """New credentials in place of any old ones: the device becomes ACTIVE, a disabled one stays so. `device`: as this
        transaction has read it. After the commit the caller syncs the device to the link.

        Raises Conflict; PermissionDenied `STEP_UP_REQUIRED` for a rotation, which shows a password as a reveal does."""
        if rotated:
            await require_fresh_proof(tx, caller, now_ms)
        password = self.ids.random_alphanumeric(PASSWORD_LENGTH)
        await save_device(tx, device.transition(DeviceLifecycleAction.GENERATE), deferred=True)
        await tx.credentials.upsert(DeviceCredentials(device.device_id, self.vault.seal(password, device.device_id), now_ms))
        text = "Credentials rotated" if rotated else "Credentials generated"
        tx.emit(event_of(caller, "credentials_generated", text, now_ms, device, rotated=rotated))
        return self.reveal(device, password)

    def reveal_stored(self, device: Device, stored: DeviceCredentials) -> RevealedCredentials:
        return self.reveal(device, self.vault.open(stored.sealed, device.device_id))

    def reveal(self, device: Device, password: str) -> RevealedCredentials:
        values = FirmwareConfigValues(device.device_id, device.name, self.endpoint, password)
        return RevealedCredentials(device.device_id, password, self.endpoint, render_config(usual_config_format(device), values))


def usual_config_format(device: Device) -> FirmwareConfigFormat:
    """The format that the device's firmware reads."""
    return FirmwareConfigFormat(default_config_format(device.profile, device.board_type))


@dataclass(frozen=True, slots=True)
class RenderedFirmwareConfig:
    config_block: str
    note: str


@service
class DeviceCredentialService:
    uow: UnitOfWork[DevicesTx]
    clock: Clock
    issuer: CredentialIssuer
    vault: Vault
    hasher: PasswordHasher
    credential_sync: CredentialSyncService
    presence: PresenceService

    async def generate(self, caller: SessionCaller, device_id: DeviceId, *, rotate: bool = False) -> RevealedCredentials:
        """Raises Conflict `CREDENTIALS_EXIST` unless `rotate`; a rotation closes connections that used the old password."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            existing = await tx.credentials.get_for_update(device_id)
            if existing is not None and not rotate:
                raise Conflict(
                    'This device has credentials. Reveal them, or send {"rotate": true} to replace them.',
                    code="CREDENTIALS_EXIST",
                )
            issued = await self.issuer.issue(tx, caller, device, now_ms, rotated=existing is not None)
        await self.credential_sync.sync(device_id)
        return issued

    async def reveal(self, caller: SessionCaller, device_id: DeviceId, account_password: str) -> RevealedCredentials:
        """A user with a second factor also needs a recent step-up.

        Raises PermissionDenied `ROLE_REQUIRED`, `STEP_UP_REQUIRED` or `PASSWORD_MISMATCH`, RateLimited after too many wrong
        passwords, NotFound without credentials, Conflict `CREDENTIALS_REVOKED`. Each of these is logged."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            user = await tx.users.get(caller.user_id)
            failures = await tx.login_failures.get_for_update(_throttle_subject(caller))
        try:
            require_role(caller, Role.MEMBER)
            self._check_throttle(failures)
            if user is None or not await self.hasher.verify(user.password_hash, account_password):
                raise PermissionDenied(
                    "The account password is wrong. Enter the password you log in with.", code="PASSWORD_MISMATCH"
                )
            sealed = await self._authorize_reveal(caller, device_id)
        except DomainError as error:
            refusal = await self._log_denied_reveal(caller, device, error)
            refusal.already_logged = True
            raise refusal from None
        return self.issuer.reveal(device, self.vault.open(sealed, device_id))

    async def revoke(self, caller: SessionCaller, device_id: DeviceId) -> Device:
        """Delete the secret and disconnect the device, whether or not it had credentials."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device_to_cut_off(tx, caller.account_id, device_id)
            device = await save_device(tx, device.transition(DeviceLifecycleAction.REVOKE))
            await tx.credentials.delete(device_id)
            tx.emit(event_of(caller, "credentials_revoked", "Credentials revoked", now_ms, device))
            await self.presence.mark_revoked(tx, device, now_ms)
        await self.credential_sync.sync(device_id)
        return device

    async def get_config(
        self, caller: SessionCaller, device_id: DeviceId, config_format: FirmwareConfigFormat | None = None
    ) -> RenderedFirmwareConfig:
        """The config block with a placeholder instead of the password."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
        chosen = config_format or usual_config_format(device)
        return RenderedFirmwareConfig(
            render_config(chosen, FirmwareConfigValues(device_id, device.name, self.issuer.endpoint)),
            setup_note(chosen, self.issuer.endpoint),
        )

    async def _authorize_reveal(self, caller: SessionCaller, device_id: DeviceId) -> bytes:
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            self._check_throttle(await tx.login_failures.get_for_update(_throttle_subject(caller)))
            await require_second_factor_if_enabled(tx, caller, now_ms, STEP_UP_TTL_MS)
            device = await get_device(tx, caller.account_id, device_id)
            credentials = await tx.credentials.get_for_update(device_id)
            if device.status is DeviceStatus.REVOKED:
                raise Conflict("The credentials are revoked. Generate new ones.", code="CREDENTIALS_REVOKED")
            if credentials is None:
                raise NotFound("This device has no credentials yet. Generate them first.")
            tx.emit(event_of(caller, "credentials_revealed", "Credentials revealed", now_ms, device))
            await tx.login_failures.delete(_throttle_subject(caller))
        return credentials.sealed

    async def _log_denied_reveal(self, caller: SessionCaller, device: Device, refusal: DomainError) -> DomainError:
        """Count and log the denial in one transaction and return the error to raise, so that concurrent guesses learn no more
        than consecutive ones."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:  # on record, whatever the caller may do by now
            if refusal.code == "PASSWORD_MISMATCH":
                failures = await tx.login_failures.get_for_update(_throttle_subject(caller))
                try:
                    self._check_throttle(failures)
                except RateLimited as error:
                    refusal = error
                else:
                    await tx.login_failures.upsert(PASSWORD_CONFIRMATIONS.count(failures, _throttle_subject(caller), now_ms))
            text = f"Reveal of credentials denied ({refusal.code})"
            tx.emit(event_of(caller, "credentials_reveal_refused", text, now_ms, device.device_id, code=refusal.code))
        return refusal

    def _check_throttle(self, failures: LoginFailures | None) -> None:
        PASSWORD_CONFIRMATIONS.check(failures, self.clock.now_ms(), "wrong passwords")


def _throttle_subject(caller: SessionCaller) -> str:
    return f"reveal:{caller.user_id}"


@service
class FirmwareProjectService:
    """The complete firmware of a device, joined from its configuration and the sources."""

    uow: UnitOfWork[DevicesTx]
    endpoint: BrokerEndpoint
    sources: FirmwareSourceReader
    ota_password: Callable[[DeviceId], str] = field(repr=False)
    """The password by which ESPHome takes an update: the same each time, and of no other device."""

    async def get_project(
        self, caller: SessionCaller, device_id: DeviceId, config_format: FirmwareConfigFormat | None = None
    ) -> FirmwareProject:
        """Without the secret for updates for a Viewer, who reads everything but secrets. Raises NotFound."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
        secret = self.ota_password(device_id) if caller.role.is_at_least(Role.MEMBER) else OTA_PLACEHOLDER
        values = FirmwareConfigValues(device_id, device.name, self.endpoint, ota_password=secret)
        return build_project(config_format or usual_config_format(device), values, self.sources)
