"""Response models of the catalogue."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.schemas import ResponseModel
from domain.devices.model import FirmwareProfile


class BoardResponse(ResponseModel):
    id: str = Field(description="The same as `boardType`.")
    board_type: str
    name: str
    description: str
    profile: FirmwareProfile
    config_format: str


class AppTypeResponse(ResponseModel):
    id: str = Field(description="The same as `appType`.")
    app_type: str
    name: str
    description: str
