"""JSON Schemas of parameters: every fault with its path, and nothing that costs seconds."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.params_validator import MAX_FAULTS, MAX_PATTERNS, MAX_SCHEMA_BYTES, JsonSchemaParamsValidator

LEVEL = {
    "type": "object",
    "properties": {"level": {"type": "integer", "minimum": 0, "maximum": 100}},
    "required": ["level"],
    "additionalProperties": False,
}


@pytest.fixture
def checker() -> JsonSchemaParamsValidator:
    return JsonSchemaParamsValidator()


def test_every_fault_names_its_path(checker: JsonSchemaParamsValidator) -> None:
    assert [fault.field for fault in checker.validate(LEVEL, {"level": 500})] == ["params.level"]
    assert [fault.field for fault in checker.validate(LEVEL, {})] == ["params.level"]
    assert {fault.field for fault in checker.validate(LEVEL, {"level": 1, "lvel": 2})} == {"params.lvel"}
    assert [fault.field for fault in checker.validate(LEVEL, None)] == ["params"]
    nested: dict[str, Any] = {"properties": {"a": {"items": {"type": "string"}}}}
    assert [fault.field for fault in checker.validate(nested, {"a": ["x", 1]})] == ["params.a.1"]


def test_valid_parameters_have_no_fault(checker: JsonSchemaParamsValidator) -> None:
    assert checker.validate(LEVEL, {"level": 100}) == []


def test_a_schema_is_compiled_once(checker: JsonSchemaParamsValidator) -> None:
    for level in range(5):
        checker.validate(dict(LEVEL), {"level": level})
    assert checker.compilation_count == 1


def test_compiled_schemas_are_bounded() -> None:
    checker = JsonSchemaParamsValidator(cache_size=2)
    for bound in (1, 2, 3, 1):
        checker.validate({"maximum": bound}, 0)
    assert checker.compilation_count == 4


def test_faults_are_bounded(checker: JsonSchemaParamsValidator) -> None:
    assert len(checker.validate({"items": {"type": "string"}}, list(range(1000)))) == MAX_FAULTS


def chain(links: int) -> dict[str, Any]:
    places = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(links)}
    return {"$ref": "#/$defs/a0", "$defs": places | {f"a{links}": {"type": "string"}}}


def doubling(links: int) -> dict[str, Any]:
    places = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 8} for i in range(links)}
    return {"$ref": "#/$defs/a0", "$defs": places | {f"a{links}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#anchor"},
        {"$ref": "#/$defs/nothing"},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"child": {"$ref": "#"}}},
        {"$defs": {"a": {"$id": "https://elsewhere.example/"}}},
        {"$dynamicRef": "#x"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"type": "colour"},
        {"minimum": "1"},
        {"properties": {"a": {"pattern": "("}}},
        {"pattern": "(a+)+\\1"},
        {"pattern": "(((x{1000}){1000}){1000})"},
        {"pattern": "x" * 300},
        {"patternProperties": {"x" * 300: {}}},
        {"description": "x" * MAX_SCHEMA_BYTES},
        {"const": float("nan")},
        chain(500),
        doubling(6),
    ],
)
def test_a_schema_that_is_wrong_or_costs_too_much_is_refused_with_its_place(
    checker: JsonSchemaParamsValidator, schema: dict[str, Any]
) -> None:
    (fault,) = checker.validate_schema(schema)
    assert fault.field.startswith("paramsSchema") or fault.field.startswith("…")
    assert fault.message


def test_a_schema_nested_without_end_is_refused(checker: JsonSchemaParamsValidator) -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"not": schema}
    assert checker.validate_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        LEVEL,
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "enum": ["low", "high"]},
        {"$ref": "#/$defs/level", "$defs": {"level": {"type": "integer"}}},
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}, "pattern": {"type": "string"}}},
        {"enum": [{"$ref": "https://elsewhere.example/"}]},
        chain(3),
    ],
)
def test_a_valid_schema_is_accepted(checker: JsonSchemaParamsValidator, schema: dict[str, Any]) -> None:
    assert checker.validate_schema(schema) == ()


def test_the_patterns_of_a_schema_share_what_they_may_be_compiled_to(checker: JsonSchemaParamsValidator) -> None:
    """Otherwise sixty of them keep the event loop, and so every account, for as long as sixty schemas."""
    large = r"\p{L}{10}"
    assert not checker.validate_schema({"properties": {"a": {"pattern": large}}})
    many = {"properties": {f"a{number}": {"pattern": f"{large}{number}"} for number in range(10)}}
    assert "share a limit" in checker.validate_schema(many)[0].message
    usual = {"properties": {f"a{number}": {"pattern": f"^[a-z0-9-]{{1,32}}_{number}$"} for number in range(MAX_PATTERNS)}}
    assert not checker.validate_schema(usual)


def test_the_number_of_patterns_is_bounded(checker: JsonSchemaParamsValidator) -> None:
    properties = {f"a{number}": {"pattern": "^x$"} for number in range(MAX_PATTERNS)}
    assert not checker.validate_schema({"properties": properties})
    (fault,) = checker.validate_schema({"properties": properties, "patternProperties": {"^y": {}}})
    assert f"has {MAX_PATTERNS + 1} patterns; at most {MAX_PATTERNS} are allowed" in fault.message


def test_a_pattern_with_catastrophic_backtracking_is_checked_quickly(checker: JsonSchemaParamsValidator) -> None:
    assert checker.validate({"pattern": "^(a+)+$"}, "a" * 50_000 + "b")


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"allOf": [{"not": {"const": 9}}] * 600}},
        {"items": {"enum": list(range(10, 3000))}},
        {"items": {"anyOf": [{"type": "string", "minLength": least} for least in range(400)]}},
        {"allOf": [{"contains": {"const": number}} for number in range(400)]},
        {"$defs": {"a": {"allOf": [{"type": "number"}] * 60}}, "items": {"allOf": [{"$ref": "#/$defs/a"}] * 20}},
    ],
)
def test_a_check_that_would_take_seconds_is_refused(checker: JsonSchemaParamsValidator, schema: dict[str, Any]) -> None:
    assert not checker.validate_schema(schema)
    [fault] = checker.validate(schema, [1] * 8_000)
    assert fault.field == "params"
    assert "more values" in fault.message
    assert not any("more values" in fault.message for fault in checker.validate(schema, [1] * 20))
