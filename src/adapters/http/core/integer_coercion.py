"""What counts as an integer.

JSON has one kind of number, and JSON Schema, the language of the OpenAPI document, treats 10, 10.0 and 1e1 as the same integer;
request bodies follow it. A query string is text: there an integer is written in digits only.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError

INTEGER_TEXT = re.compile(r"-?[0-9]+")


def coerce_integral_floats(value: Any, error: ValidationError) -> bool:
    """Replace `10.0` by `10` wherever the model expected an integer, in place. Returns whether anything was replaced."""
    replaced = False
    for item in error.errors(include_url=False, include_context=False):
        if item["type"] == "int_type" and isinstance(item["input"], float) and item["input"].is_integer():
            replaced |= _replace_at_path(value, item["loc"], int(item["input"]))
    return replaced


def _replace_at_path(value: Any, path: tuple[int | str, ...], number: int) -> bool:
    *steps, last = path
    try:
        for step in steps:
            value = value[step]
        if not isinstance(value[last], float):
            return False
    except (KeyError, IndexError, TypeError):
        return False  # the path contains the name of a union member, which is not a place in the body
    value[last] = number
    return True


@cache
def integer_fields(model: type[BaseModel]) -> frozenset[str]:
    """The names of the query parameters that are integers. A field with a `BeforeValidator` reads its text itself."""
    return frozenset(
        field.alias or name
        for name, field in model.model_fields.items()
        if int in (field.annotation, *get_args(field.annotation))
        and not any(isinstance(each, BeforeValidator) for each in field.metadata)
    )
