"""What counts as a whole number. JSON has one kind of number, and JSON Schema, by which our document speaks, calls 10, 10.0 and
1e1 the same integer; so do we. A query string is text, and there a whole number is its digits and nothing else."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

INTEGER_TEXT = re.compile(r"-?[0-9]+")


def coerce_integral_floats(value: Any, error: ValidationError) -> bool:
    """Write `10.0` as `10` wherever the model missed an integer, in place; whether there was any."""
    found = False
    for item in error.errors(include_url=False, include_context=False):
        if item["type"] == "int_type" and isinstance(item["input"], float) and item["input"].is_integer():
            found |= _replace_at_path(value, item["loc"], int(item["input"]))
    return found


def _replace_at_path(value: Any, path: tuple[int | str, ...], number: int) -> bool:
    *steps, last = path
    try:
        for step in steps:
            value = value[step]
        if not isinstance(value[last], float):
            return False
    except (KeyError, IndexError, TypeError):
        return False  # the path names a choice between types, which is no place in the body
    value[last] = number
    return True


@cache
def integer_fields(model: type[BaseModel]) -> frozenset[str]:
    """The query parameters that are whole numbers."""
    fields = model.model_fields.items()
    return frozenset(field.alias or name for name, field in fields if int in (field.annotation, *get_args(field.annotation)))
