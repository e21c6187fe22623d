"""The AsyncAPI document, joined from the topics of the MQTT adapter and the messages of the HTTP adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.http.documents.asyncapi import AsyncApiDeviceTopic, build_asyncapi_document
from adapters.mqtt.profiles.native import TOPICS, NativeTopicDefinition
from app.version import VERSION


def create_asyncapi_document() -> dict[str, Any]:
    types = [topic.payload for topic in TOPICS if isinstance(topic.payload, type)]
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(types, references, strict=True))
    topics = [_device_topic(topic, by_type) for topic in TOPICS]
    return build_asyncapi_document(topics, {name: _without_null_defaults(one) for name, one in schemas.items()}, version=VERSION)


def _device_topic(topic: NativeTopicDefinition, by_type: Mapping[Any, dict[str, Any]]) -> AsyncApiDeviceTopic:
    messages: dict[str, tuple[str, dict[str, Any]]] = {}
    if topic.payload is not None:
        schema = by_type[topic.payload] if isinstance(topic.payload, type) else dict(topic.payload)
        messages["json"] = ("application/json", schema)
    if topic.text:
        messages["text"] = ("text/plain", {"type": "string", "enum": list(topic.text)})
    return AsyncApiDeviceTopic(topic.name, topic.by_device, topic.qos, topic.retain, topic.summary, messages)


def _without_null_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """A field that may be omitted: `"default": null` would tell generators that it is null."""
    properties = {
        name: {key: value for key, value in field.items() if (key, value) != ("default", None)}
        for name, field in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}
