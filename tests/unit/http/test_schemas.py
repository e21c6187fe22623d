"""Responses are read from domain objects by name, and requests become them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from adapters.http.core.schemas import QueryParametersModel, ResponseModel, Timestamp, TimestampText


@dataclass(frozen=True)
class Part:
    name: str
    last_seen_ms: int | None


@dataclass(frozen=True)
class Whole:
    name: str
    created_ms: int
    parts: tuple[Part, ...]
    size: int = 7


class PartReply(ResponseModel):
    name: str
    last_seen: Timestamp | None


class WholeReply(ResponseModel):
    name: str
    created_at: Timestamp
    parts: list[PartReply]
    size: int


class WholeQuery(QueryParametersModel):
    name: str = "n"
    expires_at: TimestampText | None = None


WHOLE = Whole("w", 1, (Part("p", 2), Part("q", None)))


def test_fields_are_read_by_name_and_instants_from_their_milliseconds_in_nested_models_too() -> None:
    shown = WholeReply.of(WHOLE)
    assert (shown.name, shown.created_at, shown.size) == ("w", "1970-01-01T00:00:00.001Z", 7)
    assert shown.parts == [PartReply(name="p", last_seen="1970-01-01T00:00:00.002Z"), PartReply(name="q", last_seen=None)]


def test_what_is_given_counts_most_and_then_the_first_object_that_has_it() -> None:
    shown = WholeReply.of(Part("p", 3), WHOLE, size=1)
    assert (shown.name, shown.created_at, shown.size) == ("p", "1970-01-01T00:00:00.001Z", 1)


def test_a_field_that_no_object_has_is_an_error() -> None:
    with pytest.raises(ValidationError, match="created_at"):
        WholeReply.of(Part("p", 3), parts=(), size=1)


def test_what_is_given_and_no_field_of_the_response_is_an_error() -> None:
    with pytest.raises(ValidationError, match="weight"):
        WholeReply.of(WHOLE, weight=1)


def test_a_request_fills_a_data_class_with_its_fields_and_what_is_given() -> None:
    assert WholeQuery(name="x").to_domain(Whole, created_ms=5, parts=()) == Whole("x", 5, ())


def test_milliseconds_are_no_timestamp_in_a_request() -> None:
    with pytest.raises(ValidationError):
        WholeQuery.model_validate({"expiresAt": 5})
