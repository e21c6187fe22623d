"""Commands as entities of Home Assistant: a button, a number or a select each, by the `shape` of their definition.

MQTT discovery has an entity with one value at most. So a command is shown if it needs no parameter (button), or exactly one: a
number with limits, or a choice of texts. Other commands stay with the dashboard and the API.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from domain.commands.model import BUILT_IN_BY_NAME, CommandDefinition, CommandWidget
from domain.kernel.domain_event import Json, JsonObject

PRESS: Final = "PRESS"
MAX_OPTIONS: Final = 64
MIN_STEP: Final = 0.001
"""Of Home Assistant."""
MAX_ENTITIES: Final = 32
"""Per device; the first ones by name."""


@dataclass(frozen=True, slots=True)
class HomeAssistantCommandEntity:
    """`component`: of Home Assistant. `parameter`: the name of the only parameter; None for a button."""

    definition: CommandDefinition
    component: str
    parameter: str | None = None
    config: Mapping[str, Json] = field(default_factory=dict)

    def parse_params(self, payload: str) -> JsonObject | None:
        """The command's parameters. Raises ValueError for what Home Assistant does not send."""
        if self.parameter is None:
            if payload != PRESS:
                raise ValueError(f"a button sends {PRESS}")
            return None
        if self.component == "select":
            return {self.parameter: payload}
        number = float(payload)
        if not math.isfinite(number):
            raise ValueError("not a finite number")
        return {self.parameter: int(number) if number.is_integer() else number}


def command_entities(definitions: Iterable[CommandDefinition]) -> list[HomeAssistantCommandEntity]:
    """Of a device's definitions. The built-in commands are not among them: the relay is a switch."""
    own = sorted((each for each in definitions if each.name not in BUILT_IN_BY_NAME), key=lambda each: each.name)
    return [entity for entity in map(_entity, own) if entity is not None][:MAX_ENTITIES]


def _entity(definition: CommandDefinition) -> HomeAssistantCommandEntity | None:
    schema = definition.params_schema or {}
    match definition.shape:
        case CommandWidget.BUTTON if not schema.get("required"):
            return HomeAssistantCommandEntity(definition, "button", None, {"payload_press": PRESS})
        case CommandWidget.NUMBER:
            return _number(definition, *_only_property(schema))
        case CommandWidget.SELECT:
            return _select(definition, *_only_property(schema))
        case _:
            return None


def _only_property(schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and schema of the only parameter; an empty name if there is not exactly one, or another one is required."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 1:
        return "", {}
    [(name, found)] = properties.items()
    required = schema.get("required")
    others = set(required) - {name} if isinstance(required, list) else set()
    return (name, found) if isinstance(found, dict) and not others else ("", {})


def _number(definition: CommandDefinition, name: str, schema: Mapping[str, Any]) -> HomeAssistantCommandEntity | None:
    """Home Assistant shows 1 to 100 where a limit is missing, so both are needed."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not name or not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        return None
    whole = schema.get("type") == "integer"
    step = schema.get("multipleOf", 1 if whole else 0.1)
    config: dict[str, Json] = {"min": low, "max": high, "mode": "box"}
    if isinstance(step, int | float) and step >= MIN_STEP:
        config["step"] = step
    return HomeAssistantCommandEntity(definition, "number", name, config)


def _select(definition: CommandDefinition, name: str, schema: Mapping[str, Any]) -> HomeAssistantCommandEntity | None:
    options = schema.get("enum")
    if not name or not isinstance(options, list) or not 0 < len(options) <= MAX_OPTIONS:
        return None
    if not all(isinstance(option, str) and option for option in options):
        return None
    return HomeAssistantCommandEntity(definition, "select", name, {"options": options})
