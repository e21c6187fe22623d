"""Two decorators on dataclasses: for services, and for values that are created by the thousand.

`service` is the one way to keep what a constructor is given.

The generated `__init__` of a frozen dataclass sets each field by a call of `object.__setattr__`. With twenty fields that takes
four times as long as plain assignment, and took a third of the event loop's time for a due slot; with three fields it does not
matter. `fast_frozen` replaces `__init__`: it assigns the fields on a mutable twin class and then sets `__class__` to the frozen
one. Only the construction changes: the value is still frozen, and equality, hash, copy and repr are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def fast_frozen(kind: type[T]) -> type[T]:
    """Decorate a `@dataclass(frozen=True, slots=True)` that has no base class, no `init=False` fields and no `__post_init__`.

    Raises TypeError for any other class."""
    dataclass_fields = fields(kind)  # type: ignore[arg-type]
    names = tuple(field.name for field in dataclass_fields)
    if kind.__bases__ != (object,) or kind.__dict__.get("__slots__") != names or hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} must be a frozen dataclass with slots, without a base class or __post_init__")
    twin = type(f"{kind.__name__}Mutable", (), {"__slots__": names})
    scope: dict[str, Any] = {"_kind": kind, "_twin": twin, "_set_class": object.__setattr__, "_MISSING": MISSING}
    scope |= {f"_default_{field.name}": field.default for field in dataclass_fields}
    scope |= {f"_make_{field.name}": field.default_factory for field in dataclass_fields}
    parameters = ", ".join(_parameter_declaration(field) for field in dataclass_fields)
    lines = [f"def __init__(self, {parameters}):", " _set_class(self, '__class__', _twin)"]
    for each in dataclass_fields:
        if each.default_factory is not MISSING:
            lines.append(f" if {each.name} is _MISSING: {each.name} = _make_{each.name}()")
        lines.append(f" self.{each.name} = {each.name}")
    lines.append(" self.__class__ = _kind")
    exec("\n".join(lines), scope)  # noqa: S102 - as dataclasses does; the names are those of the fields
    init = scope["__init__"]
    init.__annotations__ = dict(kind.__init__.__annotations__)
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    kind.__init__ = init  # type: ignore[method-assign]
    return kind


def fast_replace(kind: type[T], *changed: str) -> Callable[..., T]:
    """A function that copies an instance with other values of the fields `changed`, which follow the instance by position.

    `dataclasses.replace` takes three times as long: it looks at the fields of every instance again. Raises TypeError for a name
    that is no field."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := set(changed).difference(names):
        raise TypeError(f"{kind.__name__} has no field {min(unknown)}")
    values = ", ".join(name if name in changed else f"_before.{name}" for name in names)
    copy: Callable[..., T] = eval(f"lambda _before, {', '.join(changed)}: _kind({values})", {"_kind": kind})  # noqa: S307 - as above
    return copy


def _parameter_declaration(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=_default_{field.name}"
    return f"{field.name}=_MISSING" if field.default_factory is not MISSING else field.name


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def service(kind: type[T]) -> type[T]:
    """The annotated fields are the parameters of the constructor, each given by its name; what an instance keeps beside them is
    a `field(..., init=False)`. Instances are equal to themselves alone, and their repr shows no field, because one may hold a
    secret."""
    return dataclass(kw_only=True, eq=False, repr=False)(kind)
