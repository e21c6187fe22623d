"""JSON Schemas of the models, in the form that generators of client libraries read well.

Generators make a field with a default required or nullable, and name types after titles. So a field that may be omitted has no
`"default": null`, a field of a response that is omitted instead of null is not nullable, and fields have no titles.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from adapters.http.core.schemas import without_null

REF_TEMPLATE = "#/components/schemas/{model}"


class ApiDocumentSchemaGenerator(GenerateJsonSchema):
    """The schema generator of the OpenAPI and AsyncAPI documents."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        made = super().default_schema(schema)
        return {key: value for key, value in made.items() if (key, value) != ("default", None)}

    def model_field_schema(self, schema: core_schema.ModelField) -> dict[str, Any]:
        made = super().model_field_schema(schema)
        is_omitted = self.mode == "serialization" and schema.get("serialization_exclude_if") is not None
        return without_null(made) if is_omitted else made
