"""Issue a device's MQTT password in a transaction of the caller: made, sealed, stored and recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from domain.devices.board_and_application_catalog import default_config_format
from domain.devices.firmware_config import BrokerEndpoint, FirmwareConfigFormat, FirmwareConfigValues, render_config
from domain.devices.load_and_save_device import save_device
from domain.devices.model import Device, DeviceCredentials, DeviceLifecycleAction
from domain.devices.ports import HasDeviceCredentials, HasDevices
from domain.kernel.caller import Caller
from domain.kernel.domain_event import DomainEvent, Json
from domain.kernel.ids import IdAndSecretGenerator
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import Transaction

PASSWORD_LENGTH = 32
"""190 bits; every firmware's settings page accepts this length."""


class CredentialIssueTx(Transaction, HasDeviceCredentials, HasDevices, Protocol): ...


@dataclass(frozen=True, slots=True)
class RevealedCredentials:
    device_id: str
    password: str = field(repr=False)
    endpoint: BrokerEndpoint
    config_block: str = field(repr=False)


class CredentialIssuer:
    def __init__(self, *, ids: IdAndSecretGenerator, vault: Vault, endpoint: BrokerEndpoint) -> None:
        self._ids = ids
        self._vault = vault
        self.endpoint = endpoint

    async def issue(
        self, tx: CredentialIssueTx, caller: Caller, device: Device, now_ms: int, *, rotated: bool = False
    ) -> RevealedCredentials:
        """New credentials in place of any old ones: the device becomes ACTIVE, a disabled one stays so. After the commit the
        caller syncs the device to the link. Raises Conflict."""
        password = self._ids.random_alphanumeric(PASSWORD_LENGTH)
        await save_device(tx, device.transition(DeviceLifecycleAction.GENERATE))
        await tx.credentials.upsert(DeviceCredentials(device.device_id, self._vault.seal(password, device.device_id), now_ms))
        text = "Credentials rotated" if rotated else "Credentials generated"
        data: dict[str, Json] = {"rotated": rotated}
        await tx.emit(
            DomainEvent.from_caller(
                caller, "credentials_generated", text, now_ms, device_id=device.device_id, device_name=device.name, data=data
            )
        )
        return self.reveal(device, password)

    def reveal(self, device: Device, password: str) -> RevealedCredentials:
        values = FirmwareConfigValues(device.device_id, device.name, self.endpoint, password)
        return RevealedCredentials(device.device_id, password, self.endpoint, render_config(usual_config_format(device), values))


def usual_config_format(device: Device) -> FirmwareConfigFormat:
    """The format that the device's firmware reads."""
    return FirmwareConfigFormat(default_config_format(device.profile, device.board_type))
