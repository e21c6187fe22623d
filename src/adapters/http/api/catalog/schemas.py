"""Response models of the catalogue."""

from __future__ import annotations

from adapters.http.core.schemas import ResponseModel
from domain.devices.model import FirmwareProfile


class BoardResponse(ResponseModel):
    board_type: str
    name: str
    profile: FirmwareProfile
    config_format: str


class AppTypeResponse(ResponseModel):
    app_type: str
    name: str
