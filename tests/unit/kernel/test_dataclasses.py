"""A value made quickly is the same value: only its making differs."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import msgspec
import pytest

from domain.kernel.dataclasses import fast_frozen, fast_replace


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    number: int = 5
    more: dict[str, int] = field(default_factory=dict)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Fast:
    name: str
    number: int = 5
    more: dict[str, int] = field(default_factory=dict)

    @property
    def twice(self) -> int:
        return 2 * self.number


def test_an_instance_is_frozen() -> None:
    made = Fast("a")
    for name in ("name", "other"):
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            setattr(made, name, "b")
    with pytest.raises(FrozenInstanceError):
        del made.name  # type: ignore[misc]
    assert made == Fast("a", 5, {})


def test_equality_repr_hash_copy_and_replace_work_as_for_a_plain_dataclass() -> None:
    made = Fast("a", more={"x": 1})
    assert (type(made), made.twice, repr(made)) == (Fast, 10, "Fast(name='a', number=5, more={'x': 1})")
    assert replace(made, number=6) == Fast("a", 6, {"x": 1})
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert msgspec.json.encode(made) == msgspec.json.encode(Plain("a", more={"x": 1}))
    assert [one.name for one in fields(made)] == ["name", "number", "more"]


def test_fast_replace_equals_replace_and_takes_the_values_in_the_order_of_its_names() -> None:
    made = Fast("a", 1, {"x": 1})
    assert fast_replace(Fast, "more", "name")(made, {}, "b") == replace(made, more={}, name="b") == Fast("b", 1, {})
    with pytest.raises(TypeError, match="no field numbr"):
        fast_replace(Fast, "numbr")


def test_each_instance_gets_its_own_default() -> None:
    first, second = Fast("a"), Fast("b")
    first.more["x"] = 1
    assert second.more == {}


@pytest.mark.parametrize("given", [{}, {"name": "a", "other": 1}, {"number": 1}])
def test_invalid_arguments_raise_as_for_a_plain_dataclass(given: dict[str, Any]) -> None:
    for kind in (Plain, Fast):
        with pytest.raises(TypeError):
            kind(**given)


def test_an_unsupported_class_raises_when_it_is_defined() -> None:
    with pytest.raises(TypeError, match="must be a frozen dataclass"):

        @fast_frozen
        @dataclass(frozen=True)
        class WithoutSlots:
            name: str
