"""What the definition of a command may contain."""

from __future__ import annotations

import re

from domain.commands.definition_model import CommandDefinition
from domain.commands.effective_definitions import BUILT_IN_BY_NAME
from domain.commands.ports import ParamsValidator
from domain.kernel.errors import FieldError, ValidationFailed

NAME_PATTERN = re.compile(r"[A-Z0-9_]{1,64}")
MAX_DEFINITIONS = 100


def check_definition(definition: CommandDefinition, validator: ParamsValidator) -> None:
    """Raises ValidationFailed for a bad name, an invalid schema, or a changed kind of a built-in.

    Otherwise a grant that allows only queries would allow ON once somebody defines it as a query."""
    faults: list[FieldError] = []
    if NAME_PATTERN.fullmatch(definition.name) is None:
        faults.append(FieldError("name", "must be 1 to 64 capital letters, digits and underscores, such as SET_LEVEL."))
    built_in = BUILT_IN_BY_NAME.get(definition.name)
    if built_in is not None and built_in.kind is not definition.kind:
        faults.append(FieldError("kind", f"{definition.name} is a built-in {built_in.kind}; an override must keep this kind."))
    if definition.params_schema is not None:
        faults += validator.validate_schema(definition.params_schema)
    if faults:
        raise ValidationFailed(f"Invalid command definition: {faults[0].field} {faults[0].message}", details=faults)
