"""Builds the AsyncAPI 3.0 document: MQTT topics, the live feed and webhooks, as the service sends and receives them.

The topics come from outside, because HTTP knows nothing of MQTT. Host names are the reader's to fill in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel

from adapters.http.core.schemas import REF_TEMPLATE, ApiDocumentSchemaGenerator, ResponseModel
from adapters.http.documents.messages import RECEIVED_MESSAGES, SENT_MESSAGES, WEBHOOK_ENVELOPES, WEBHOOK_HEADERS
from adapters.http.feed.endpoint import FEED_PATH
from domain.events.model import PUBLIC_TYPES

Schema = dict[str, Any]

SECURITY_SCHEMES: Schema = {
    "session": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access token from POST /api/v1/auth/login. Or send it in the first message.",
    },
    "apiKey": {"type": "httpApiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `sk_live_…`."},
    "device": {"type": "userPassword", "description": "The device's id and its MQTT password."},
}


def _server(host: str, protocol: str, description: str, *schemes: str, **more: str) -> Schema:
    return {
        "host": host,
        "protocol": protocol,
        "description": description,
        "variables": {"host": {"default": "localhost", "description": "Where the service runs."}},
        "security": [{"$ref": f"#/components/securitySchemes/{scheme}"} for scheme in schemes],
        **more,
    }


SERVERS: Schema = {
    "http": _server("{host}:8080", "ws", "The live feed; `wss` behind a proxy with TLS.", "session", "apiKey"),
    "mqtt": _server("{host}:1883", "mqtt", "The broker, MQTT 3.1.1 and 5.", "device", protocolVersion="5"),
    "mqttWebSocket": _server("{host}:8083", "ws", "The broker over WebSocket.", "device", pathname="/mqtt"),
    "webhookReceiver": {
        "host": "{receiver}",
        "protocol": "https",
        "description": "Your server.",
        "variables": {"receiver": {"default": "example.com", "description": "The host in the webhook's URL."}},
    },
}

FEED_QUERY: Schema = {
    "type": "object",
    "properties": {
        "token": {"type": "string", "description": "An access token; a header keeps it out of logs."},
        "cursor": {"type": "string", "description": "The newest cursor that the client has; continues after it."},
        "types": {"type": "string", "description": f"Event types, separated by commas: {', '.join(sorted(PUBLIC_TYPES))}."},
        "deviceId": {"type": "string", "description": "Only events of this device."},
        "audit": {"type": "string", "enum": ["false", "true"], "description": "Also the rest of the log, for sessions."},
        "initialState": {"type": "string", "enum": ["devices", "none"], "description": "`none`: without the devices."},
    },
}


@dataclass(frozen=True, slots=True)
class AsyncApiDeviceTopic:
    """A topic below `devices/<deviceId>/`. `messages`: content type and JSON Schema by message name."""

    name: str
    by_device: bool
    qos: int
    retain: bool
    summary: str
    messages: Mapping[str, tuple[str, Schema]]


def build_asyncapi_document(
    topics: Iterable[AsyncApiDeviceTopic], topic_schemas: Mapping[str, Schema], *, version: str
) -> Schema:
    """`topic_schemas`: the component schemas that the topics refer to. Raises ValueError for two schemas of one name."""
    channels: Schema = {"feed": _feed_channel(), "webhook": _webhook_channel()}
    operations: Schema = {**_feed_operations(), "sendWebhook": _webhook_operation()}
    for topic in topics:
        channel = to_camel(f"device_{re.sub('[^a-z]', '_', topic.name)}")
        channels[channel] = _topic_channel(topic)
        action = "receive" if topic.by_device else "send"
        made = _operation(action, channel, topic.summary)
        made["bindings"] = {"mqtt": {"qos": topic.qos, "retain": topic.retain, "bindingVersion": "0.2.0"}}
        operations[f"{action}{channel[0].upper()}{channel[1:]}"] = made
    schemas = _model_schemas()
    if twice := schemas.keys() & topic_schemas.keys():
        raise ValueError(f"two schemas have the same name: {', '.join(sorted(twice))}")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Latchboard",
            "version": version,
            "description": "What the service sends and receives beside REST: MQTT messages of devices, the live feed, webhooks. "
            "`send` and `receive` are the service's; a client does the opposite. /openapi.json describes REST.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": SERVERS,
        "channels": channels,
        "operations": operations,
        "components": {"schemas": {**schemas, **topic_schemas}, "securitySchemes": SECURITY_SCHEMES},
    }


def _model_schemas() -> Schema:
    inputs: list[tuple[str, Any, TypeAdapter[Any]]] = []
    for models in (SENT_MESSAGES, RECEIVED_MESSAGES, WEBHOOK_ENVELOPES):
        for model in models.values():
            mode = "serialization" if issubclass(model, ResponseModel) else "validation"
            inputs.append((model.__name__, mode, TypeAdapter(model)))
    _, definitions = TypeAdapter.json_schemas(inputs, ref_template=REF_TEMPLATE, schema_generator=ApiDocumentSchemaGenerator)
    return dict(sorted(definitions["$defs"].items()))


def _message(model: type[BaseModel], name: str) -> Schema:
    made: Schema = {"name": name, "payload": {"$ref": REF_TEMPLATE.format(model=model.__name__)}}
    return {**made, "summary": model.__doc__} if model.__doc__ else made


def _feed_channel() -> Schema:
    messages = {
        **{to_camel(f"send_{name}"): _message(model, name) for name, model in SENT_MESSAGES.items()},
        **{to_camel(f"receive_{name}"): _message(model, name) for name, model in RECEIVED_MESSAGES.items()},
    }
    return {
        "address": FEED_PATH,
        "title": "Live feed",
        "description": "A WebSocket. The initial state comes first, then events, each with a cursor to resume from.",
        "servers": [{"$ref": "#/servers/http"}],
        "messages": messages,
        "bindings": {"ws": {"method": "GET", "query": FEED_QUERY, "bindingVersion": "0.1.0"}},
    }


def _feed_operations() -> Schema:
    sent = [{"$ref": f"#/channels/feed/messages/{to_camel(f'send_{name}')}"} for name in SENT_MESSAGES]
    received = [{"$ref": f"#/channels/feed/messages/{to_camel(f'receive_{name}')}"} for name in RECEIVED_MESSAGES]
    return {
        "sendFeed": {**_operation("send", "feed", "Send the state and events to a client."), "messages": sent},
        "receiveFeed": {**_operation("receive", "feed", "Read a client's credentials and pings."), "messages": received},
    }


def _webhook_channel() -> Schema:
    headers = {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in WEBHOOK_HEADERS.items()},
        "required": list(WEBHOOK_HEADERS),
    }
    return {
        "address": None,
        "title": "Webhooks",
        "description": "A POST to the URL of the webhook. Any 2xx within 10 seconds accepts it; else it is sent again. A webhook "
        "with a `format` of CloudEvents receives `data` of these messages in a CloudEvent 1.0 (structured or binary).",
        "servers": [{"$ref": "#/servers/webhookReceiver"}],
        "messages": {to_camel(kind): {**_message(model, kind), "headers": headers} for kind, model in WEBHOOK_ENVELOPES.items()},
    }


def _webhook_operation() -> Schema:
    made = _operation("send", "webhook", "Deliver an event to a webhook.")
    return {**made, "bindings": {"http": {"method": "POST", "bindingVersion": "0.3.0"}}}


def _topic_channel(topic: AsyncApiDeviceTopic) -> Schema:
    return {
        "address": f"devices/{{deviceId}}/{topic.name}",
        "title": topic.name,
        "description": topic.summary,
        "servers": [{"$ref": "#/servers/mqtt"}, {"$ref": "#/servers/mqttWebSocket"}],
        "parameters": {"deviceId": {"description": "The device's id, which is also its MQTT username."}},
        "messages": {
            name: {"name": name, "contentType": kind, "payload": schema} for name, (kind, schema) in topic.messages.items()
        },
    }


def _operation(action: str, channel: str, summary: str) -> Schema:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}
