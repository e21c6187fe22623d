"""The shapes of devices on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from adapters.http.schema import LINE, SEEN, Body, Change, OneLine, Query, Reply
from domain.devices.configblock import ConfigFormat
from domain.devices.credentials import Config, Revealed
from domain.devices.model import About, DeviceStatus, Profile
from domain.devices.service import Registered, Registration
from domain.kernel.clock import iso
from domain.kernel.ids import DeviceTypeId, ProjectId

MAX_TAGS = 20

_SHOWN, _MAYBE = Field(json_schema_extra=SEEN), Field(json_schema_extra=LINE)
DeviceName = Annotated[str, StringConstraints(min_length=1, max_length=128, strip_whitespace=True), OneLine, _SHOWN]
Word = Annotated[str, StringConstraints(min_length=1, max_length=64, strip_whitespace=True), OneLine, _SHOWN]
Line = Annotated[str, StringConstraints(max_length=256, strip_whitespace=True), OneLine, _MAYBE]
Text = Annotated[str, StringConstraints(max_length=2000)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Tags = Annotated[list[Word], Field(max_length=MAX_TAGS)]

_ABOUT = ("description", "location", "manufacturer", "model", "industry")


class NewDevice(Body):
    name: DeviceName
    board_type: Word = Field(examples=["ESP32"])
    app_type: Word = Field(examples=["PUMP"])
    app_type_other: Line | None = None
    project_id: Id | None = Field(default=None, description="The account's default project without one.")
    device_type_id: Id | None = None
    profile: Profile | None = Field(default=None, description="Which firmware speaks; found from board and application.")
    description: Text | None = None
    location: Line | None = None
    manufacturer: Line | None = None
    model: Line | None = None
    industry: Line | None = None
    tags: Tags | None = None

    def registration(self) -> Registration:
        return Registration(
            name=self.name,
            board_type=self.board_type,
            app_type=self.app_type,
            app_type_other=self.app_type_other,
            project_id=ProjectId(self.project_id) if self.project_id is not None else None,
            device_type_id=DeviceTypeId(self.device_type_id) if self.device_type_id is not None else None,
            profile=self.profile,
            about=About(
                **{name: getattr(self, name) for name in _ABOUT}, tags=tuple(dict.fromkeys(self.tags or ()))
            ),
        )


class DeviceChanges(Change):
    """What is left out stays; `null` empties what may be empty."""

    nullable = frozenset({"app_type_other", "device_type_id", "tags", *_ABOUT})

    name: DeviceName | None = None
    board_type: Word | None = None
    app_type: Word | None = None
    app_type_other: Line | None = None
    project_id: Id | None = None
    device_type_id: Id | None = None
    profile: Profile | None = None
    description: Text | None = None
    location: Line | None = None
    manufacturer: Line | None = None
    model: Line | None = None
    industry: Line | None = None
    tags: Tags | None = None

    def changes(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if "tags" in given:
            given["tags"] = tuple(dict.fromkeys(given["tags"] or ()))
        return given


class DevicesQuery(Query):
    project_id: Id | None = None


class ConfigQuery(Query):
    format: ConfigFormat | None = Field(default=None, description="Without it, the form that the device's firmware takes.")


class NewCredentials(Body):
    rotate: bool = Field(default=False, description="Replace credentials that exist; their connection is cut.")


class Reveal(Body):
    password: str = Field(min_length=1, max_length=256, description="The account password of whoever calls.")


class DeviceId(Reply):
    device_id: str


class DeviceProject(Reply):
    project_id: str
    name: str


class DeviceReply(Reply):
    device_id: str
    name: str
    board_type: str
    app_type: str
    app_type_other: str | None
    device_status: DeviceStatus
    enabled: bool
    device_type_id: str | None
    relay_state: bool | None = Field(description="null until the device has said.")
    is_online: bool
    last_seen: str | None
    created_at: str
    project: DeviceProject
    profile: Profile
    description: str | None
    location: str | None
    manufacturer: str | None
    model: str | None
    industry: str | None
    tags: list[str]

    @classmethod
    def of(cls, registered: Registered) -> DeviceReply:
        device, project = registered.device, registered.project
        return cls(
            device_id=device.device_id,
            name=device.name,
            board_type=device.board_type,
            app_type=device.app_type,
            app_type_other=device.app_type_other,
            device_status=device.status,
            enabled=device.enabled,
            device_type_id=device.device_type_id,
            relay_state=device.relay,
            is_online=device.is_online,
            last_seen=iso(device.last_seen_ms) if device.last_seen_ms is not None else None,
            created_at=iso(device.created_ms),
            project=DeviceProject(project_id=project.project_id, name=project.name),
            profile=device.profile,
            **{name: getattr(device.about, name) for name in _ABOUT},
            tags=list(device.about.tags),
        )


class CredentialsReply(Reply):
    mqtt_username: str
    mqtt_password: str = Field(json_schema_extra={"format": "password"})
    mqtt_host: str
    mqtt_port: int
    ws_port: int
    config_block: str

    @classmethod
    def of(cls, revealed: Revealed) -> CredentialsReply:
        return cls(
            mqtt_username=revealed.device_id,
            mqtt_password=revealed.password,
            mqtt_host=revealed.endpoint.host,
            mqtt_port=revealed.endpoint.port,
            ws_port=revealed.endpoint.ws_port,
            config_block=revealed.config_block,
        )


class RevokedReply(Reply):
    ok: bool = True
    device_status: DeviceStatus


class ToggledReply(Reply):
    ok: bool = True
    enabled: bool
    device_status: DeviceStatus


class ConfigReply(Reply):
    config_block: str
    note: str

    @classmethod
    def of(cls, config: Config) -> ConfigReply:
        return cls(config_block=config.config_block, note=config.note)
