"""Classes whose constructor keeps what it is given: services and what they are put together from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def service(kind: type[T]) -> type[T]:
    """The annotated fields are the parameters of the constructor, each given by its name; what an instance keeps beside them is
    a `field(..., init=False)`. Instances are equal to themselves alone, and their repr shows no field, because one may hold a
    secret."""
    return dataclass(kw_only=True, eq=False, repr=False)(kind)
