"""The document's `webhooks`: what the service posts to the URL of a webhook, one entry per event type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from adapters.http.asyncapi.webhook_requests import WEBHOOK_ENVELOPES, WEBHOOK_HEADERS
from adapters.http.core.json_schemas import REF_TEMPLATE
from adapters.http.openapi.examples import ExampleBuilder

Schema = dict[str, Any]
RESPONSES: Mapping[str, Schema] = {
    "2XX": {"description": "Received. Anything else, or no answer in 10 seconds, is a failure: it is sent again, up to 5 times."},
    "410": {"description": "Not wanted any more: the webhook is disabled."},
}


def webhook_items(examples: ExampleBuilder) -> Schema:
    """By event type."""
    return {
        kind: {"post": _delivery(kind, model.__name__, model.__doc__ or "", examples)}
        for kind, model in WEBHOOK_ENVELOPES.items()
    }


def _delivery(kind: str, model: str, summary: str, examples: ExampleBuilder) -> Schema:
    schema = {"$ref": REF_TEMPLATE.format(model=model)}
    example = examples.schema_example(schema)
    return {
        "operationId": to_camel(f"receive_{kind}"),
        "tags": ["Webhooks"],
        "summary": summary,
        "description": "Check `X-Service-Signature` before you use the body.",
        "security": [],
        "parameters": [
            {"name": name, "in": "header", "required": True, "schema": {"type": "string"}, "description": text}
            for name, text in WEBHOOK_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}},
        "responses": RESPONSES,
    }
