"""Definitions of commands, the request for a command, and its execution. The device's answer decides how an execution ends.

For one name, the device's definition overrides its type's, which overrides the built-in: an owner who requires approval for ON on
one pump can rely on it. For the same reason a command is judged by its effect: TOGGLE needs the approval that ON and OFF need.

QUEUED (not yet sent) → SENT → ACKED → DONE or FAILED. At its deadline an execution becomes EXPIRED if it was never sent, and
TIMED_OUT if it was sent and not answered. What is called off before it was sent, by a person or because the authority that asked
has ended, is CANCELLED. `ALLOWED_TRANSITIONS` lists the transitions; a row in QUEUED or SENT is itself
the outbox entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from domain.devices.channels import RELAY_CHANNEL, ChannelKind, find_channel, on_channel
from domain.devices.model import Device
from domain.grants.checks import channels_of, effects_of
from domain.grants.model import Grant
from domain.kernel.caller import ApiKeyCaller, SessionCaller, SystemCaller
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.domain_event import Json, JsonObject
from domain.kernel.errors import FieldError, ValidationFailed
from domain.kernel.ids import (
    AccountId,
    ApprovalId,
    CommandId,
    DeviceId,
    DeviceTypeId,
    ExecutionId,
    GrantId,
    KeyId,
    MembershipId,
    SessionId,
)


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
    channels: tuple[int, ...] = ()
    """The channels that it is for; empty: all."""

    def applies_to(self, channel: int) -> bool:
        return not self.channels or channel in self.channels


def _built_in(
    name: str,
    label: str,
    kind: CommandKind,
    shape: CommandWidget,
    description: str,
    params: Mapping[str, JsonObject] | None = None,
    required: Sequence[str] = (),
) -> CommandDefinition:
    schema: JsonObject | None = None
    if params is not None:
        schema = {"type": "object", "properties": {**params}, "additionalProperties": False}
        schema |= {"required": [*required]} if required else {"minProperties": 1}
    return CommandDefinition(None, None, None, None, name, label, description, kind, schema, shape, requires_approval=False)


def _action(
    name: str, label: str, description: str, params: Mapping[str, JsonObject] | None = None, required: Sequence[str] = ()
) -> CommandDefinition:
    shape = CommandWidget.BUTTON if params is None else CommandWidget.MULTI
    return _built_in(name, label, CommandKind.ACTION, shape, description, params, required)


BUILT_IN_COMMANDS: tuple[CommandDefinition, ...] = (
    _built_in("ON", "Switch on", CommandKind.ACTION, CommandWidget.TOGGLE, "Switch the relay on."),
    _built_in("OFF", "Switch off", CommandKind.ACTION, CommandWidget.TOGGLE, "Switch the relay off."),
    _built_in("TOGGLE", "Toggle", CommandKind.ACTION, CommandWidget.BUTTON, "Switch the relay to its other state."),
    _built_in("STATUS", "Status", CommandKind.QUERY, CommandWidget.BUTTON, "Ask the device for its state."),
    _built_in(
        "GET_SCHEDULES", "Stored schedules", CommandKind.QUERY, CommandWidget.BUTTON, "Ask which schedules the device stores."
    ),
)
_PERCENT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 100}
_SECONDS: JsonObject = {"type": "number", "minimum": 0, "maximum": 3600}
CLIMATE_MODES = ("OFF", "HEAT", "COOL", "AUTO", "DRY", "FAN_ONLY")
CHANNEL_COMMANDS: tuple[CommandDefinition, ...] = (
    _action(
        "SET_LEVEL",
        "Set level",
        "Switch on with this level, 0 to 100; 0 switches off. `seconds`: how long the change takes, where the firmware can.",
        {"level": _PERCENT, "seconds": _SECONDS},
        ["level"],
    ),
    _action(
        "SET_COLOR",
        "Set colour",
        "Switch on with this colour, or white of this colour temperature in kelvin.",
        {
            "color": {"type": "string", "pattern": "^#[0-9a-fA-F]{6}$"},
            "kelvin": {"type": "integer", "minimum": 1000, "maximum": 12000},
            "level": _PERCENT,
        },
    ),
    _action("OPEN", "Open", "Open the cover."),
    _action("CLOSE", "Close", "Close the cover."),
    _action("STOP", "Stop", "Stop the cover where it is."),
    _action("SET_POSITION", "Set position", "Move the cover: 0 is closed, 100 is open.", {"position": _PERCENT}, ["position"]),
    _action(
        "SET_TARGET",
        "Set target",
        "The temperature to keep, in degrees Celsius.",
        {"celsius": {"type": "number", "minimum": -50, "maximum": 100}},
        ["celsius"],
    ),
    _action("SET_MODE", "Set mode", "How it heats or cools.", {"mode": {"enum": [*CLIMATE_MODES]}}, ["mode"]),
)
"""Beside those that every device has: for kinds of channels other than a relay."""
BUILT_IN_BY_NAME = {definition.name: definition for definition in (*BUILT_IN_COMMANDS, *CHANNEL_COMMANDS)}
_SWITCHES = frozenset({"ON", "OFF", "TOGGLE"})
_COMMANDS_BY_KIND: Mapping[ChannelKind, frozenset[str]] = {
    ChannelKind.RELAY: _SWITCHES,
    ChannelKind.LEVEL: _SWITCHES | {"SET_LEVEL"},
    ChannelKind.COLOR: _SWITCHES | {"SET_LEVEL", "SET_COLOR"},
    ChannelKind.COVER: frozenset({"OPEN", "CLOSE", "STOP", "SET_POSITION"}),
    ChannelKind.CLIMATE: frozenset({"SET_TARGET", "SET_MODE"}),
    ChannelKind.INPUT: frozenset(),
}
DEVICE_QUERIES = frozenset({"STATUS", "GET_SCHEDULES"})
"""They ask the device, whatever channels it has."""


def built_in_for(name: str, kind: ChannelKind) -> CommandDefinition | None:
    """The built-in command of this name, if a channel of this kind has it."""
    return BUILT_IN_BY_NAME.get(name) if name in _COMMANDS_BY_KIND[kind] or name in DEVICE_QUERIES else None


DEFAULT_TTL_MS = 60_000
MAX_TTL_MS = 24 * 3_600_000


class ExecutionStatus(StrEnum):
    QUEUED = "QUEUED"
    SENT = "SENT"
    ACKED = "ACKED"
    DONE = "DONE"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return not ALLOWED_TRANSITIONS[self]


ALLOWED_TRANSITIONS: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    ExecutionStatus.QUEUED: frozenset(
        {
            ExecutionStatus.SENT,
            ExecutionStatus.ACKED,
            ExecutionStatus.DONE,
            ExecutionStatus.FAILED,
            ExecutionStatus.EXPIRED,
            ExecutionStatus.CANCELLED,
        }
    ),
    ExecutionStatus.SENT: frozenset(
        {ExecutionStatus.ACKED, ExecutionStatus.DONE, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.EXPIRED}
    ),
    ExecutionStatus.ACKED: frozenset({ExecutionStatus.DONE, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT}),
    ExecutionStatus.DONE: frozenset(),
    ExecutionStatus.FAILED: frozenset(),
    ExecutionStatus.TIMED_OUT: frozenset(),
    ExecutionStatus.EXPIRED: frozenset(),
    ExecutionStatus.CANCELLED: frozenset(),
}
"""QUEUED may go straight to ACKED or DONE: after a crash between sending and writing SENT, the device's answer still counts."""


class TriggeredBy(StrEnum):
    """`relay_changed.triggeredBy` in the API, and the `source` of an execution."""

    DEVICE = "device"
    USER = "user"
    APIKEY = "apikey"
    SCHEDULE = "schedule"
    RULE = "rule"

    @classmethod
    def of(cls, caller: SessionCaller | ApiKeyCaller) -> TriggeredBy:
        return cls.APIKEY if isinstance(caller, ApiKeyCaller) else cls.USER


@fast_frozen
@dataclass(frozen=True, slots=True)
class Execution:
    """`seq` orders the executions of a device (0 until stored). `result` is the device's answer: `{code, relay, data}`.
    `sent_ms` of a QUEUED one: it may have been sent at that time or before, and nobody has confirmed it."""

    execution_id: ExecutionId
    seq: int
    account_id: AccountId
    device_id: DeviceId
    device_no: int
    cmd: str
    params: Json
    status: ExecutionStatus
    source: TriggeredBy
    requested_by: str
    grant_id: GrantId | None
    created_ms: int
    expires_ms: int
    sent_ms: int | None = None
    finished_ms: int | None = None
    result: Json = None
    approval_id: ApprovalId | None = None
    """The approval that the command waited for."""
    key_id: KeyId | None = None
    """The API key that asked, and under whose authority the command waits."""
    membership_id: MembershipId | None = None
    """The membership that asked, or for which a schedule or rule ran. None for both: the service itself."""
    session_id: SessionId | None = None
    """The service session that asked for the membership; the command waits no longer than it lasts."""
    channel: int = RELAY_CHANNEL


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command that a caller asks a device to run; nothing is stored yet."""

    device: Device
    cmd: str
    params: Json
    ttl_ms: int
    reason: str | None = None
    """Why the caller wants it: shown to who approves, and kept in the log."""
    channel: int = RELAY_CHANNEL


@dataclass(frozen=True, slots=True)
class AutomationCommand:
    """A command of a schedule or rule, which runs while nobody is signed in."""

    caller: SystemCaller
    request: CommandRequest
    triggered_by: TriggeredBy


@dataclass(slots=True)
class CommandContext:
    """Everything that decides whether a device's command is accepted, read once.

    `open_count`: QUEUED and SENT executions of the device, plus those that this transaction adds. `grants`: what the requesting
    subject holds on the device, oldest first, expired ones included.
    """

    device: Device
    device_definitions: Mapping[str, CommandDefinition]
    type_definitions: Mapping[str, CommandDefinition]
    open_count: int
    grants: Sequence[Grant] = ()

    @classmethod
    def from_definitions(
        cls, device: Device, definitions: Sequence[CommandDefinition], open_count: int, grants: Sequence[Grant]
    ) -> CommandContext:
        """`definitions`: those of the device and those of its type, together."""
        own = {definition.name: definition for definition in definitions if definition.device_id is not None}
        of_type = {definition.name: definition for definition in definitions if definition.device_id is None}
        return cls(device, own, of_type, open_count, grants)


def effective_definitions(
    of_type: Iterable[CommandDefinition], of_device: Iterable[CommandDefinition], device: Device
) -> tuple[CommandDefinition, ...]:
    """The commands of all channels: built-ins in their order, then the others by name. Of one name there may be several, each
    for its own `channels` (empty: all that have none of their own). One that stands for others needs their approval."""
    context = CommandContext.from_definitions(device, [*of_type, *of_device], 0, ())
    channels = device.all_channels
    found: dict[tuple[str, CommandId | None, bool], tuple[CommandDefinition, list[int]]] = {}
    own = sorted({*context.device_definitions, *context.type_definitions} - BUILT_IN_BY_NAME.keys())
    for name in (*BUILT_IN_BY_NAME, *own):
        for each in channels:
            definition = find_definition(context, name, each.channel)
            if definition is not None:
                key = (name, definition.command_id, definition.requires_approval)
                found.setdefault(key, (definition, []))[1].append(each.channel)
    return tuple(
        definition if len(numbers) == len(channels) else replace(definition, channels=tuple(numbers))
        for definition, numbers in found.values()
    )


def place_among_built_in(name: str) -> int:
    """In their order; the same for all that are none of them."""
    return next((place for place, each in enumerate(BUILT_IN_BY_NAME) if each == name), len(BUILT_IN_BY_NAME))


def find_definition(context: CommandContext, cmd: str, channel: int = RELAY_CHANNEL) -> CommandDefinition | None:
    """The definition of this name for the channel; it needs the approval of the commands that it stands for, on any channel that
    it may switch."""
    found = _find_plain(context, cmd, channel)
    if found is None or found.requires_approval:
        return found
    profile = context.device.profile
    wanted = channels_of(profile, cmd, channel)
    for each in [one.channel for one in context.device.all_channels] if wanted is None else wanted:
        effects = (_find_plain(context, name, each) for name in effects_of(profile, cmd))
        if any(effect is not None and effect.requires_approval for effect in effects):
            return replace(found, requires_approval=True)
    return found


def _find_plain(context: CommandContext, name: str, channel: int) -> CommandDefinition | None:
    for defined in (context.device_definitions.get(name), context.type_definitions.get(name)):
        if defined is not None and defined.applies_to(channel):
            return defined
    known = context.device.channel(channel)
    return None if known is None else built_in_for(name, known.kind)


def require_definition(context: CommandContext, cmd: str, channel: int = RELAY_CHANNEL) -> CommandDefinition:
    """`find_definition`. Raises ValidationFailed `UNKNOWN_CHANNEL`, `UNKNOWN_COMMAND`."""
    if find_channel(context.device.channels, channel) is None:
        raise ValidationFailed(
            f"This device has no channel {channel}. Its channels are in GET /devices/{context.device.device_id}.",
            code="UNKNOWN_CHANNEL",
            details=(FieldError("channel", "is not a channel of this device."),),
        )
    found = find_definition(context, cmd, channel)
    if found is not None:
        return found
    listed = f"GET /devices/{context.device.device_id}/commands lists them"  # for those who may read the device
    raise ValidationFailed(
        f"This device has no command {on_channel(repr(cmd[:64]), channel)}. Names are in capitals; {listed}.",
        code="UNKNOWN_COMMAND",
        details=(FieldError("cmd", "is not a command of this device."),),
    )
