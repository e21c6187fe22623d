"""A value made quickly is the same value: only its making differs."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import msgspec
import pytest

from domain.kernel.fast_frozen import fast_frozen


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    number: int = 5
    more: dict[str, int] = field(default_factory=dict)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Swift:
    name: str
    number: int = 5
    more: dict[str, int] = field(default_factory=dict)

    @property
    def twice(self) -> int:
        return 2 * self.number


def test_it_is_frozen_once_it_is_made() -> None:
    made = Swift("a")
    for name in ("name", "other"):
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            setattr(made, name, "b")
    with pytest.raises(FrozenInstanceError):
        del made.name  # type: ignore[misc]
    assert made == Swift("a", 5, {})


def test_it_is_equal_shown_hashed_copied_and_changed_as_any_other() -> None:
    made = Swift("a", more={"x": 1})
    assert (type(made), made.twice, repr(made)) == (Swift, 10, "Swift(name='a', number=5, more={'x': 1})")
    assert replace(made, number=6) == Swift("a", 6, {"x": 1})
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert msgspec.json.encode(made) == msgspec.json.encode(Plain("a", more={"x": 1}))
    assert [one.name for one in fields(made)] == ["name", "number", "more"]


def test_each_has_a_default_of_its_own() -> None:
    first, second = Swift("a"), Swift("b")
    first.more["x"] = 1
    assert second.more == {}


@pytest.mark.parametrize("given", [{}, {"name": "a", "other": 1}, {"number": 1}])
def test_it_refuses_what_the_plain_one_refuses(given: dict[str, Any]) -> None:
    for kind in (Plain, Swift):
        with pytest.raises(TypeError):
            kind(**given)


def test_what_it_cannot_make_is_refused_when_the_class_is_defined() -> None:
    with pytest.raises(TypeError, match="must be a frozen dataclass"):

        @fast_frozen
        @dataclass(frozen=True)
        class WithoutSlots:
            name: str
