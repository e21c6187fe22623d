"""A device's firmware: its configuration alone, and the complete files for the board."""

from __future__ import annotations

from adapters.http.api.device_firmware import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.devices.credentials import DeviceCredentialService, FirmwareProjectService
from domain.kernel.ids import DeviceId


def add_firmware_route(bp: ApiBlueprint, firmware: FirmwareProjectService) -> None:
    @bp.operation("GET /devices/<device_id>/firmware", AllowedCallers.SESSION, "Get the complete firmware")
    async def get_device_firmware(
        device_id: DeviceId, query: schema.DeviceConfigQueryParameters
    ) -> schema.FirmwareProjectResponse:
        """All files for the board, ready but for three placeholders: the device's password, the network's name and password."""
        project = await firmware.get_project(current_session(), device_id, query.format)
        return schema.FirmwareProjectResponse.from_domain(project)


def add_config_route(bp: ApiBlueprint, credentials: DeviceCredentialService) -> None:
    @bp.operation("GET /devices/<device_id>/config", AllowedCallers.SESSION, "Get the firmware configuration")
    async def get_device_config(device_id: DeviceId, query: schema.DeviceConfigQueryParameters) -> schema.DeviceConfigResponse:
        """Contains a placeholder instead of the password."""
        config = await credentials.get_config(current_session(), device_id, query.format)
        return schema.DeviceConfigResponse.of(config)
