"""Builds an example for every request body and every success response of the document from the same schemas.

A request example shows what a client typically sends, so it is written out whole; a response example has every field. A test
validates each example against its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.http.openapi.example_values_by_field import FIELD_EXAMPLES, REQUEST_EXAMPLES
from adapters.http.openapi.example_values_by_model import MODEL_FIELD_EXAMPLES

Schema = Mapping[str, Any]


class ExampleBuilder:
    """`definitions`: the document's schemas by name."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def request_example(self, schema: Schema) -> Any:
        name = _referenced_name(schema)
        return REQUEST_EXAMPLES[name] if name in REQUEST_EXAMPLES else self.schema_example(schema)

    def schema_example(self, schema: Schema) -> Any:
        name = _referenced_name(schema)
        if name:
            found = self._definitions[name]
            return self._object_example(found, name) if "properties" in found else self.schema_example(found)
        for word in ("const", "default"):
            if schema.get(word) is not None:
                return schema[word]
        for word in ("enum", "examples"):
            if schema.get(word):
                return schema[word][0]
        kinds = [one for one in schema.get("anyOf", schema.get("oneOf", [])) if one != {"type": "null"}]
        if kinds:
            return self.schema_example(kinds[0])
        if schema.get("type") == "array":
            return [self.schema_example(schema["items"])] if schema.get("items") else []
        words: dict[Any, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "object": {}}
        return words.get(schema.get("type"))

    def _object_example(self, schema: Schema, name: str) -> dict[str, Any]:
        return {field: self._field_example(name, field, of) for field, of in schema["properties"].items()}

    def _field_example(self, model: str, field: str, schema: Schema) -> Any:
        place = f"{model}.{field}"
        if place in MODEL_FIELD_EXAMPLES:
            return MODEL_FIELD_EXAMPLES[place]
        if schema.get("examples") and schema.get("format") != "date-time":  # every time has the same one
            return schema["examples"][0]
        if field in FIELD_EXAMPLES and not _referenced_name(schema) and "enum" not in schema and "const" not in schema:
            value = FIELD_EXAMPLES[field]
            if schema.get("type") != "array" or "$ref" not in schema["items"]:
                return value
        return self.schema_example(schema)


def _referenced_name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
