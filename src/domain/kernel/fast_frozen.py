"""Frozen values that are made by the thousand, made quickly.

A frozen dataclass sets each field by a call, since its own assignment refuses. With twenty fields that takes four times as long
as plain assignment, and was a third of what the event loop does for a due slot; with three it does not matter. `swift` gives the
class an `__init__` that fills a twin of it which is not frozen, by plain assignment, and turns that into the value at the end.
The value is as frozen as before, and equal, hashable, copied and shown as before; only its making differs.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def fast_frozen(kind: type[T]) -> type[T]:
    """Put above `@dataclass(frozen=True, slots=True)` of a class without a base, `init=False` fields or `__post_init__`."""
    own = fields(kind)  # type: ignore[arg-type]
    names = tuple(field.name for field in own)
    if kind.__bases__ != (object,) or kind.__dict__.get("__slots__") != names or hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} must be a frozen dataclass with slots and nothing else")
    twin = type(f"{kind.__name__}InTheMaking", (), {"__slots__": names})
    scope: dict[str, Any] = {"_kind": kind, "_twin": twin, "_turn": object.__setattr__, "_MISSING": MISSING}
    scope |= {f"_default_{field.name}": field.default for field in own}
    scope |= {f"_make_{field.name}": field.default_factory for field in own}
    given = ", ".join(_parameter_declaration(field) for field in own)
    lines = [f"def __init__(self, {given}):", " _turn(self, '__class__', _twin)"]
    for field in own:
        if field.default_factory is not MISSING:
            lines.append(f" if {field.name} is _MISSING: {field.name} = _make_{field.name}()")
        lines.append(f" self.{field.name} = {field.name}")
    lines.append(" self.__class__ = _kind")
    exec("\n".join(lines), scope)  # noqa: S102 - as dataclasses themselves do, with names of our own fields
    made = scope["__init__"]
    made.__annotations__ = dict(kind.__init__.__annotations__)
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    kind.__init__ = made  # type: ignore[method-assign]
    return kind


def _parameter_declaration(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=_default_{field.name}"
    return f"{field.name}=_MISSING" if field.default_factory is not MISSING else field.name
