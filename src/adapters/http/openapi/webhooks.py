"""The document's `webhooks`: what the service posts to the URL of a webhook, one entry per event type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.alias_generators import to_camel

from adapters.http.asyncapi.webhook_requests import WEBHOOK_ENVELOPES, WEBHOOK_HEADERS
from adapters.http.core.document_schema_generator import REF_TEMPLATE
from adapters.http.openapi.example_builder import ExampleBuilder
from domain.webhooks.requests import SPEC_VERSION, TYPE_PREFIX

Schema = dict[str, Any]
RESPONSES: Mapping[str, Schema] = {
    "2XX": {"description": "Received. Anything else, or no answer in 10 seconds, is a failure: it is sent again, up to 5 times."},
    "410": {"description": "Not wanted any more: the webhook is disabled."},
}
DESCRIPTION = (
    "Check a signature before you use the body. With the format `cloudevents-structured` the body is a CloudEvent; with "
    "`cloudevents-binary` it is `data` alone, and the attributes are in headers `ce-id`, `ce-source`, `ce-type`, `ce-time`, "
    "`ce-subject` and `ce-specversion`."
)
CLOUD_EVENT: Schema = {
    "type": "object",
    "properties": {
        "specversion": {"const": SPEC_VERSION},
        "id": {"type": "string", "description": "The event's id, the same for every attempt."},
        "source": {"type": "string", "format": "uri-reference", "description": "The account."},
        "type": {"type": "string", "description": f"`{TYPE_PREFIX}` and the event type."},
        "time": {"type": "string", "format": "date-time", "description": "When the service stored the event."},
        "subject": {"type": "string", "description": "The device; absent where there is none."},
        "datacontenttype": {"const": "application/json"},
        "data": {"type": "object", "description": "As in the standard format.", "additionalProperties": True},
    },
    "required": ["specversion", "id", "source", "type", "time", "datacontenttype", "data"],
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
        "description": DESCRIPTION,
        "security": [],
        "parameters": [
            {"name": name, "in": "header", "required": True, "schema": {"type": "string"}, "description": text}
            for name, text in WEBHOOK_HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema, "example": example},
                "application/cloudevents+json": {"schema": CLOUD_EVENT, "example": _cloud_event(kind, example)},
            },
        },
        "responses": RESPONSES,
    }


def _cloud_event(kind: str, example: Any) -> Schema:
    """The same event as in the example of the standard format."""
    data = example["data"]
    return {
        "specversion": SPEC_VERSION,
        "id": data["eventId"],
        "source": f"/accounts/{data['accountId']}",
        "type": TYPE_PREFIX + kind,
        "time": example["createdAt"],
        "datacontenttype": "application/json",
        "data": data,
    }
