"""Checks of a command: parameters, lifetime, the device, its queue of open commands."""

from __future__ import annotations

import json
from collections.abc import Sequence

from domain.commands.definition_model import CommandDefinition
from domain.commands.model import MAX_TTL_MS, CommandContext
from domain.commands.ports import ParamsValidator
from domain.devices.model import Device
from domain.kernel.checks import is_nested_deeper_than
from domain.kernel.domain_event import Json
from domain.kernel.errors import Conflict, FieldError, PermissionDenied, ValidationFailed

MAX_OPEN_EXECUTIONS = 100
"""Unfinished commands of one device: more than anyone queues on purpose, few enough to send at once."""
MAX_PARAMS_BYTES = 16 * 1024
"""A quarter of the largest message a device link carries."""
MAX_PARAMS_DEPTH = 32


def action_fault(field: str, error: ValidationFailed) -> ValidationFailed:
    """The fault of a command that is the action of a slot or rule, with the field names of its body: `field` holds `command` and
    `params`."""
    inner = [FieldError("command" if fault.field == "cmd" else fault.field, fault.message) for fault in error.details]
    named = [FieldError(f"{field}.{fault.field}", fault.message) for fault in inner or [FieldError("command", error.message)]]
    return ValidationFailed(f"{field}: {error.message}", code=error.code, details=named)


def is_queue_full(context: CommandContext) -> bool:
    return context.open_count >= MAX_OPEN_EXECUTIONS


def reserve_slot(context: CommandContext) -> None:
    """Count one more open command of the device. Raises Conflict `TOO_MANY_QUEUED`."""
    if is_queue_full(context):
        raise Conflict(
            f"{MAX_OPEN_EXECUTIONS} commands of this device have not ended yet. Wait for them, or set a shorter ttlSeconds.",
            code="TOO_MANY_QUEUED",
        )
    context.open_count += 1


def release_slot(context: CommandContext) -> None:
    """Undo `reserve_slot` for a command that is not queued after all."""
    context.open_count -= 1


def check_params(definition: CommandDefinition, params: Json, validator: ParamsValidator) -> None:
    """Raises ValidationFailed `INVALID_PARAMS` with a path per fault."""
    fault = json_size_error(params, "params", MAX_PARAMS_BYTES, MAX_PARAMS_DEPTH)
    faults: Sequence[FieldError] = (fault,) if fault else ()
    if not faults and definition.params_schema is not None:
        faults = validator.validate(definition.params_schema, params)
    elif not faults and definition.command_id is None and params not in (None, {}):
        faults = (FieldError("params", "this command takes no parameters; leave them out."),)
    if faults:
        raise ValidationFailed(
            f"The parameters do not fit the command {definition.name}: {faults[0].field}: {faults[0].message}",
            code="INVALID_PARAMS",
            details=faults,
        )


def json_size_error(value: Json, field: str, max_bytes: int, max_depth: int) -> FieldError | None:
    """Why a JSON value is too large, or None."""
    if value is None:
        return None
    if is_nested_deeper_than(value, max_depth):
        return FieldError(field, f"is nested deeper than {max_depth} levels; flatten it.")
    try:
        size = len(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())
    except ValueError:
        return FieldError(field, "contains a number that JSON does not have (NaN or infinity).")
    return FieldError(field, f"takes more than {max_bytes} bytes as JSON; shorten it.") if size > max_bytes else None


def check_needs_no_approval(definition: CommandDefinition) -> None:
    """For schedules and rules. Raises ValidationFailed `COMMAND_NEEDS_APPROVAL`."""
    if definition.requires_approval:
        raise ValidationFailed(
            f"{definition.name} needs approval, so it cannot run unattended. Choose another command, or remove the approval.",
            code="COMMAND_NEEDS_APPROVAL",
        )


def check_ttl(ttl_ms: int) -> None:
    if not 1_000 <= ttl_ms <= MAX_TTL_MS:
        raise ValidationFailed.for_field("ttlSeconds", "must be 1 to 86400 seconds.")


def check_accepts_commands(device: Device) -> None:
    """Raises PermissionDenied `DEVICE_DISABLED` unless the device is ACTIVE."""
    if not device.is_active:
        todo = "Enable it" if device.status == "DISABLED" else "Generate credentials"
        raise PermissionDenied(f"The device is {device.status} and takes no commands. {todo} first.", code="DEVICE_DISABLED")
