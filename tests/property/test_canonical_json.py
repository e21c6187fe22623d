"""Canonical JSON is what the standard's own library for Python writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from domain.events.hash_chain import record_json
from domain.events.model import Event
from domain.kernel.canonical_json import canonical_json

text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.one_of(st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False, allow_infinity=False))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, text),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text, inner, max_size=4)),
    max_leaves=12,
)


@given(values)
def test_it_is_the_form_of_rfc_8785(value: Any) -> None:
    assert canonical_json(value).encode() == rfc8785.dumps(value)


@given(values)
def test_what_was_stored_and_read_back_has_the_same_form(value: Any) -> None:
    assert canonical_json(json.loads(json.dumps(value))) == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (2**53 + 1, "9007199254740992"),
        (12345678901234567890123, "1.2345678901234568e+22"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (-0.0, "0"),
        (float("nan"), "null"),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'),
    ],
)
def test_rare_numbers_and_the_order_of_names(value: Any, form: str) -> None:
    assert canonical_json(value) == form


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="set is not JSON"):
        canonical_json({"tags": {"a"}})


@given(text, text, st.one_of(st.none(), text), st.dictionaries(text, values, max_size=5), st.integers(0, 2**53 - 1))
def test_a_record_is_written_as_its_object(a: str, b: str, c: Any, payload: Any, number: int) -> None:
    event = Event(number, a, b, c, c, b, a, number, b, a, payload, number)  # type: ignore[arg-type]
    record = {
        "id": event.event_id,
        "accountId": event.account_id,
        "deviceId": event.device_id or "",
        "deviceName": event.device_name or "",
        "eventType": event.kind,
        "description": event.description,
        "timestamp": event.at_ms,
        "source": event.source,
        "address": event.address,
        "data": event.payload,
        "position": event.position,
        "writer": event.writer,
        "sequence": number,
    }
    assert record_json(event, number).encode() == rfc8785.dumps(record)
