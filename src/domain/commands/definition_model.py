"""The commands that a device understands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.kernel.domain_event import JsonObject
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId


class CommandKind(StrEnum):
    ACTION = "ACTION"
    QUERY = "QUERY"


class CommandWidget(StrEnum):
    """The control that a dashboard shows for a command."""

    BUTTON = "BUTTON"
    TOGGLE = "TOGGLE"
    NUMBER = "NUMBER"
    SELECT = "SELECT"
    MULTI = "MULTI"


@dataclass(frozen=True, slots=True)
class CommandDefinition:
    """`command_id` is None for a built-in. At most one of `device_id` and `device_type_id` is set."""

    command_id: CommandId | None
    account_id: AccountId | None
    device_id: DeviceId | None
    device_type_id: DeviceTypeId | None
    name: str
    label: str
    description: str | None
    kind: CommandKind
    params_schema: JsonObject | None
    shape: CommandWidget
    requires_approval: bool
    created_ms: int = 0
