"""Which definition of a command applies to a device.

For one name, the device's definition overrides its type's, which overrides the built-in: an owner who requires approval for ON on
one pump can rely on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from domain.commands.definition_model import CommandDefinition, CommandKind, CommandWidget
from domain.commands.model import CommandContext
from domain.kernel.errors import FieldError, ValidationFailed


def _built_in(name: str, label: str, kind: CommandKind, shape: CommandWidget, description: str) -> CommandDefinition:
    return CommandDefinition(None, None, None, None, name, label, description, kind, None, shape, requires_approval=False)


BUILT_IN_COMMANDS: tuple[CommandDefinition, ...] = (
    _built_in("ON", "Switch on", CommandKind.ACTION, CommandWidget.TOGGLE, "Switch the relay on."),
    _built_in("OFF", "Switch off", CommandKind.ACTION, CommandWidget.TOGGLE, "Switch the relay off."),
    _built_in("TOGGLE", "Toggle", CommandKind.ACTION, CommandWidget.BUTTON, "Switch the relay to its other state."),
    _built_in("STATUS", "Status", CommandKind.QUERY, CommandWidget.BUTTON, "Ask the device for its state."),
    _built_in(
        "GET_SCHEDULES", "Stored schedules", CommandKind.QUERY, CommandWidget.BUTTON, "Ask which schedules the device stores."
    ),
)


BUILT_IN_BY_NAME = {definition.name: definition for definition in BUILT_IN_COMMANDS}


def effective_definitions(
    of_type: Iterable[CommandDefinition], of_device: Iterable[CommandDefinition]
) -> tuple[CommandDefinition, ...]:
    """One definition per name: built-ins in their order, then the others by name."""
    effective = dict(BUILT_IN_BY_NAME)
    for definition in (*of_type, *of_device):
        effective[definition.name] = definition
    own = sorted(name for name in effective if name not in BUILT_IN_BY_NAME)
    return tuple(effective[name] for name in (*BUILT_IN_BY_NAME, *own))


def find_definition(context: CommandContext, cmd: str) -> CommandDefinition | None:
    """The definition that applies to the device under this name."""
    return context.device_definitions.get(cmd) or context.type_definitions.get(cmd) or BUILT_IN_BY_NAME.get(cmd)


def require_definition(context: CommandContext, cmd: str) -> CommandDefinition:
    """`find_definition`. Raises ValidationFailed `UNKNOWN_COMMAND`."""
    found = find_definition(context, cmd)
    if found is not None:
        return found
    listed = f"GET /devices/{context.device.device_id}/commands lists them"  # for those who may read the device
    raise ValidationFailed(
        f"This device has no command {cmd[:64]!r}. Names are in capitals; {listed}.",
        code="UNKNOWN_COMMAND",
        details=(FieldError("cmd", "is not a command of this device."),),
    )
