"""The engine's hasher of the event log equals its definition, whatever the events hold."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engine import native as native_chain_hasher
from domain.events.hash_chain import EventChainHead, chain_events, heads_after
from domain.events.model import Event
from domain.kernel.ids import AccountId, DeviceId, EventId


class Word(enum.StrEnum):
    ON = "on"


class Number(enum.IntEnum):
    SEVEN = 7


text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text, st.sampled_from([Word.ON, Number.SEVEN]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(text, inner, max_size=5),
        st.dictionaries(text, inner, max_size=5).map(MappingProxyType),
    ),
    max_leaves=15,
)
accounts = st.sampled_from(["acc_1", "acc_2", "acc_é", ""])
integers = st.integers(-(2**63), 2**63 - 1)
events = st.builds(
    Event,
    position=integers,
    event_id=text,
    account_id=accounts,
    device_id=st.one_of(st.none(), text),
    device_name=st.one_of(st.none(), text),
    kind=text,
    description=text,
    at_ms=integers,
    source=text,
    address=text,
    payload=st.dictionaries(text, values, max_size=5),
    writer=integers,
)
heads = st.dictionaries(
    accounts,
    st.builds(EventChainHead, st.integers(0, 2**62), st.binary(min_size=32, max_size=32).map(bytes.hex), st.integers(0, 2**62)),
    max_size=3,
)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (OverflowError, ValueError, TypeError) as error:
        return type(error)


@given(st.lists(events, max_size=6), heads)
def test_the_engine_links_events_as_the_definition_does(batch: list[Event], before: dict[AccountId, EventChainHead]) -> None:
    assert outcome(lambda: native_chain_hasher.chain_events(batch, before)) == outcome(lambda: chain_events(batch, before))


@given(st.lists(events, min_size=1, max_size=6), heads, st.integers(0, 6))
def test_two_batches_are_one_chain(batch: list[Event], before: dict[AccountId, EventChainHead], cut: int) -> None:
    """With huge integers, of which JSON has none, both ways fail."""

    def in_two() -> Any:
        first = native_chain_hasher.chain_events(batch[:cut], before)
        between = before | heads_after(batch[:cut], first)
        return first + native_chain_hasher.chain_events(batch[cut:], between)

    assert outcome(in_two) == outcome(lambda: native_chain_hasher.chain_events(batch, before))


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_double_has_the_same_form(value: float) -> None:
    made = [event({"value": value})]
    assert native_chain_hasher.chain_events(made, {}) == chain_events(made, {})


@pytest.mark.parametrize(
    "bad", [{"a": {1}}, {"a": b"x"}, {1: 2}, {"a": object()}, {"a": "\ud800"}, {"\udfff": 1}, {"a": 10**400}]
)
def test_what_json_does_not_have_is_refused_alike(bad: Any) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError, OverflowError)) as native:
        native_chain_hasher.chain_events([event(bad)], {})
    with pytest.raises((TypeError, UnicodeEncodeError, OverflowError)) as reference:
        chain_events([event(bad)], {})
    assert native.type is reference.type


def test_data_that_is_nested_without_end_is_an_error_and_no_crash() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for hasher in (native_chain_hasher.chain_events, chain_events):
        with pytest.raises(RecursionError):
            hasher([event({"value": nested})], {})


@pytest.mark.parametrize("damaged", ["", "0" * 63, "g" * 64, "é" * 32])
def test_a_damaged_head_is_an_error(damaged: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        native_chain_hasher.chain_events([event({})], {AccountId("acc_1"): EventChainHead(1, damaged, 1)})


def event(payload: Any) -> Event:
    return Event(
        1, EventId("evt_1"), AccountId("acc_1"), DeviceId("dev_1"), "Pump", "login", "Signed in", 5, "web", "::1", payload, 3
    )
