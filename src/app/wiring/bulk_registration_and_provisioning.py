"""Constructs the services that act on many devices."""

from __future__ import annotations

from typing import Any

from app.wiring.adapters import ServiceAdapters
from app.wiring.shared_ports import creating_ports, secret_ports
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.credentials import CredentialIssuer
from domain.devices.registration import BulkRegistrationService
from domain.provisioning.codes import ProvisioningCodeAndClaimAdminService
from domain.provisioning.redemption import ProvisioningCodeRedemptionService


class DeviceRegistrationServices:
    def __init__(
        self, uow: Any, adapters: ServiceAdapters, issuer: CredentialIssuer, credential_sync: CredentialSyncService
    ) -> None:
        creating, secret = creating_ports(uow, adapters), secret_ports(uow, adapters)
        self.bulk_registration = BulkRegistrationService(**creating, issuer=issuer, credential_sync=credential_sync)
        self.provisioning_codes = ProvisioningCodeAndClaimAdminService(**secret)
        self.device_claims = ProvisioningCodeRedemptionService(**secret, issuer=issuer, credential_sync=credential_sync)
