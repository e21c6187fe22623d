"""Request and response models of device types."""

from __future__ import annotations

from pydantic import Field

from adapters.http.api.commands.schemas import CommandDefinitionCreateRequest, CommandDefinitionResponse, Label
from adapters.http.core.schemas import PatchBody, RequestBodyModel, ResponseModel


class DeviceTypeCreateRequest(RequestBodyModel):
    name: Label
    commands: list[CommandDefinitionCreateRequest] = Field(default_factory=list, max_length=100)


class DeviceTypeUpdateRequest(PatchBody):
    """`commands` replaces the whole list; a command whose name is unchanged keeps its id."""

    name: Label | None = None
    commands: list[CommandDefinitionCreateRequest] | None = Field(default=None, max_length=100)


class DeviceTypeResponse(ResponseModel):
    device_type_id: str
    name: str
    commands: list[CommandDefinitionResponse]
