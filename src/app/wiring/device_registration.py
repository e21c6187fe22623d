"""Constructs the services that act on many devices."""

from __future__ import annotations

from typing import Any

from app.wiring.adapters import ServiceAdapters
from domain.devices.bulk_registration import BulkRegistrationService
from domain.devices.credential_issuer import CredentialIssuer
from domain.devices.credential_sync import CredentialSync
from domain.provisioning.claiming import DeviceClaimService
from domain.provisioning.codes import ProvisioningCodeService


class DeviceRegistrationServices:
    def __init__(self, uow: Any, adapters: ServiceAdapters, issuer: CredentialIssuer, credential_sync: CredentialSync) -> None:
        shared: dict[str, Any] = {"uow": uow, "clock": adapters.clock, "ids": adapters.ids}
        making: dict[str, Any] = {**shared, "issuer": issuer, "credential_sync": credential_sync}
        self.bulk_registration = BulkRegistrationService(**making)
        self.provisioning_codes = ProvisioningCodeService(**shared, digest=adapters.digest)
        self.device_claims = DeviceClaimService(**making, digest=adapters.digest)
