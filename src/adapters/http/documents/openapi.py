"""Builds the OpenAPI 3.1 document from the operations and models that validate requests, so that both always agree.

Its `webhooks` are what the service posts to the URL of a webhook, one entry per event type.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from quart import Quart

from adapters.http.core.callers import AllowedCallers
from adapters.http.core.headers import BY_STATUS, REQUEST_HEADERS, RESPONSE_HEADERS, headers_of
from adapters.http.core.idempotency import REPLAYED_HEADER
from adapters.http.core.operation import API_DEPENDENCIES, ApiOperation, NonJsonResponse, ObjectReads, openapi_path
from adapters.http.core.schemas import REF_TEMPLATE, ApiDocumentSchemaGenerator, ErrorResponse, without_null
from adapters.http.documents.examples import ExampleBuilder, recorded_answers
from adapters.http.documents.guides import GUIDES
from adapters.http.documents.messages import WEBHOOK_ENVELOPES, WEBHOOK_HEADERS
from domain.team.service_sessions import is_open_to_service_sessions, needed_operations
from domain.webhooks.requests import SPEC_VERSION, TYPE_PREFIX

Schema = dict[str, Any]

REQUEST_ID = "X-Request-Id"
TAG_DESCRIPTIONS = {
    "Authentication": "Log in, renew and end sessions, change a password.",
    "Service sessions": "Credentials with which programs manage the account, for named operations.",
    "Team": "The members of the account and their roles.",
    "Projects": "Parts of the account; each device is in one. A grant can cover a whole project.",
    "API keys": "Credentials of programs. A key can do nothing until a grant allows it.",
    "Catalog": "The boards and applications that a device can be registered with.",
    "Network": "How phones and devices reach this service.",
    "Cluster": "The instances that share the devices, and which of them owns which partition.",
    "Devices": "Register devices, read their state, manage their MQTT credentials.",
    "Provisioning": "Codes that devices trade for credentials of their own, and the claims that wait for approval.",
    "Groups": "Sets of devices of a project: as a filter, and to command, schedule and grant at once.",
    "Device types": "Command definitions that several devices share.",
    "Commands": "Send a command, follow its execution, define commands of your own.",
    "Schedules": "Five slots per device that switch at set times, once or by a recurrence rule.",
    "Rules": "Conditions on telemetry that send a command when they begin to hold.",
    "Grants": "What a key or member may do with a device, when, and how often.",
    "Notifications": "What you want to be told, and where: mail, browsers, ntfy, Telegram.",
    "Approvals": "Commands that wait for an Owner or Admin to decide.",
    "Telemetry": "What devices measure: history, intervals, latest values, export.",
    "Events": "The log of everything that happened in the account.",
    "Fleet": "The account as a document: export it, plan a change, apply it.",
    "Webhooks": "Send events to a URL of yours, signed, with retries.",
}


SECURITY_SCHEMES = {
    "session": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The access token from POST /api/v1/auth/login. It is valid for 15 minutes.",
    },
    "serviceSession": {
        "type": "http",
        "scheme": "bearer",
        "description": "A service session, `lbs_…`, from POST /api/v1/service-sessions. An operation names what the session must "
        "be allowed, such as `devices:write`; a write includes the read. Without it: 403 `OPERATION_NOT_ALLOWED`.",
    },
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Api-Key",
        "description": "An API key, `sk_live_…`; also accepted as a bearer token. Its grants decide what it may do.",
    },
}
STATUS_DESCRIPTIONS = {
    400: "Invalid request; `details` names the fields.",
    401: "Authentication required.",
    403: "Permission denied.",
    404: "Not found, or not visible to this caller.",
    408: "The request body did not arrive in time.",
    409: "Conflicts with the present state.",
    410: "The cursor is of another life of the database: begin the list again.",
    412: "The version in `If-Match` is not the present one.",
    413: "The request body is larger than 256 KiB.",
    415: "The request body is not application/json in UTF-8.",
    429: "Too many requests.",
    500: "Internal error.",
    503: "Temporarily unavailable; try again.",
}

IF_NONE_MATCH = "The `ETag` that you have: 304 without a body if the object shows the same."
IF_MATCH = "The `ETag` of the object that you read: 412, and nothing is done, if it shows something else now."


def iterate_operations(app: Quart) -> Iterator[tuple[str, ApiOperation]]:
    """Every operation with its complete path, in the order of the blueprints."""
    for rule in app.url_map.iter_rules():
        spec = getattr(app.view_functions.get(rule.endpoint), "operation", None)
        if isinstance(spec, ApiOperation):
            yield rule.rule, spec


def build_document(app: Quart, *, version: str) -> Schema:
    """The complete document. Raises TypeError or ValueError for a type without a schema; a test would find it."""
    found = list(iterate_operations(app))
    twice = [name for name, count in Counter(spec.handler_name for _, spec in found).items() if count > 1]
    if twice:
        raise ValueError(
            f"two operations have the same name: {', '.join(twice)}. A handler's name is its operationId; rename one"
        )
    schemas, definitions = _build_schemas(found)
    objects: ObjectReads = app.extensions[API_DEPENDENCIES].objects
    queries = {spec.query.__name__ for _, spec in found if spec.query is not None}
    paths: Schema = {}
    for rule, spec in found:
        paths.setdefault(openapi_path(rule), {})[spec.method.lower()] = _operation_object(rule, spec, schemas, definitions)
        if spec.method != "GET" and spec.access is not AllowedCallers.ANYONE:
            _add_precondition(paths[openapi_path(rule)][spec.method.lower()], spec, objects)
        if objects.shows(spec):
            _add_etag(paths[openapi_path(rule)][spec.method.lower()], spec)
    examples = ExampleBuilder(definitions=definitions)
    shared = _add_examples(paths, examples)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Latchboard",
            "version": version,
            "description": GUIDES,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This installation."}],
        "tags": [_tag_object(tag) for tag in dict.fromkeys(spec.tag for _, spec in found)],
        "paths": paths,
        "webhooks": _webhook_items(examples),
        "components": {
            "schemas": {name: schema for name, schema in sorted(definitions.items()) if name not in queries},
            "securitySchemes": SECURITY_SCHEMES,
            "headers": {name: {"required": name == REQUEST_ID, **header} for name, header in RESPONSE_HEADERS.items()},
            "examples": shared,
        },
    }


def _tag_object(tag: str) -> dict[str, str]:
    """The tag with its description. A test holds that every tag of the program has one."""
    described = TAG_DESCRIPTIONS.get(tag)
    return {"name": tag} if described is None else {"name": tag, "description": described}


SchemaKey = tuple[str, str, int | str]
"""Path, method, and a status, `body` or `query`."""
ERROR_SCHEMA_KEY: SchemaKey = ("", "", "problem")


def _build_schemas(found: list[tuple[str, ApiOperation]]) -> tuple[Mapping[SchemaKey, Schema], Schema]:
    inputs: list[tuple[SchemaKey, Any, TypeAdapter[Any]]] = [(ERROR_SCHEMA_KEY, "serialization", TypeAdapter(ErrorResponse))]
    for rule, spec in found:
        inputs += [
            ((rule, spec.method, status), "serialization", spec.type_adapters[status]) for status in spec.type_adapters.types
        ]
        if spec.body is not None and spec.body_parameter is not None:
            inputs.append(((rule, spec.method, "body"), "validation", TypeAdapter(spec.body)))
        if spec.query is not None:
            inputs.append(((rule, spec.method, "query"), "validation", TypeAdapter(spec.query)))
    for kind, model in WEBHOOK_ENVELOPES.items():
        inputs.append((("", "webhook", kind), "serialization", TypeAdapter(model)))
    made, definitions = TypeAdapter.json_schemas(inputs, ref_template=REF_TEMPLATE, schema_generator=ApiDocumentSchemaGenerator)
    return {key: schema for (key, _), schema in made.items()}, dict(definitions.get("$defs", {}))


def _operation_object(rule: str, spec: ApiOperation, schemas: Mapping[SchemaKey, Schema], definitions: Schema) -> Schema:
    headers = headers_of(spec.handler)
    made: Schema = {
        "operationId": to_camel(spec.handler_name),
        "tags": [spec.tag],
        "summary": spec.summary,
        "security": _security(spec),
        "x-caller": spec.access.value,
        "responses": {
            **{str(status): _success_response(rule, spec, status, schemas, headers) for status in spec.returns},
            **({"304": _not_modified(headers)} if "If-None-Match" in headers else {}),
            **{str(status): _error_response(status, codes, schemas) for status, codes in spec.codes.items()},
        },
    }
    if spec.description:
        made["description"] = spec.description
    if spec.authority is not None:
        made["x-authority"] = {"proof": "POST /auth/step-up", "event": spec.authority.event, "end": spec.authority.end}
        made["x-authority"] |= {"when": spec.authority.when} if spec.authority.when else {}
    parameters = [
        *_path_parameters(spec),
        *_query_parameters(rule, spec, schemas, definitions),
        *_header_parameters(spec, headers),
    ]
    if parameters:
        made["parameters"] = parameters
    if spec.body_parameter is not None:
        content = {"application/json": {"schema": schemas[rule, spec.method, "body"]}}
        made["requestBody"] = {"required": spec.body_required, "content": content}
    return made


def _security(spec: ApiOperation) -> list[dict[str, list[str]]]:
    """Alternatives. That of service sessions names the operations that one must be allowed."""
    if spec.access is AllowedCallers.ANYONE:
        return []
    found: list[dict[str, list[str]]] = [{"session": []}]
    needed = needed_operations(spec.tag, is_read=spec.method == "GET", affects=spec.affects)
    if is_open_to_service_sessions(needed):
        found.append({"serviceSession": [*needed]})
    if spec.access is AllowedCallers.KEY:
        found.append({"apiKey": []})
    return found


def _add_precondition(operation: Schema, spec: ApiOperation, objects: ObjectReads) -> None:
    """What changes no single object refuses an `If-Match`."""
    if objects.find(spec) is not None:
        operation.setdefault("parameters", []).append(_header_parameter("If-Match", IF_MATCH))


def _add_etag(operation: Schema, spec: ApiOperation) -> None:
    operation["responses"]["200"]["headers"]["ETag"] = {"$ref": "#/components/headers/ETag"}
    if spec.method == "GET":
        operation.setdefault("parameters", []).append(_header_parameter("If-None-Match", IF_NONE_MATCH))
        headers = {name: {"$ref": f"#/components/headers/{name}"} for name in (REQUEST_ID, "ETag")}
        responses = operation["responses"] | {"304": {"description": "You have it already.", "headers": headers}}
        operation["responses"] = dict(sorted(responses.items()))


def _add_examples(paths: Schema, examples: ExampleBuilder) -> Schema:
    """Add an example to every request body, and those of the recorded run to the responses. Returns those that several share."""
    recorded = recorded_answers()
    count = Counter(json.dumps(body) for answers in recorded.values() for body in answers.values())
    shared: Schema = {}
    for path, methods in paths.items():
        for method, call in methods.items():
            for content in call.get("requestBody", {}).get("content", {}).values():
                content["example"] = examples.request_example(content["schema"])
            answers = recorded.get(f"{method.upper()} {path}", {})
            for status, answer in call["responses"].items():
                for kind, content in answer.get("content", {}).items():
                    if status.startswith("2"):
                        key = status if kind == "application/json" else f"{status} {kind}"
                        content |= {"example": answers[key]} if key in answers else {}
                    else:
                        _add_error_examples(content, status, answers, count, shared)
    return dict(sorted(shared.items()))


def _add_error_examples(content: Schema, status: str, answers: Mapping[str, Any], count: Counter[str], shared: Schema) -> None:
    """By code, as far as the recorded run has met them."""
    found: Schema = {}
    for key, body in answers.items():
        code = key.partition(" ")[2]
        if key.partition(" ")[0] != status:
            continue
        if count[json.dumps(body)] > 1 and shared.setdefault(code, {"value": body}) == {"value": body}:
            found[code] = {"$ref": f"#/components/examples/{code}"}
        else:
            found[code] = {"value": body}
    if found:
        content["examples"] = found


def _path_parameters(spec: ApiOperation) -> Iterator[Schema]:
    for name, kind in spec.path_parameters.items():
        schema: Schema = {"type": "integer", "minimum": 0} if kind is int else {"type": "string", "minLength": 1}
        yield {"name": to_camel(name), "in": "path", "required": True, "schema": schema}


def _query_parameters(
    rule: str, spec: ApiOperation, schemas: Mapping[SchemaKey, Schema], definitions: Schema
) -> Iterator[Schema]:
    if spec.query is None:
        return
    schema = schemas[rule, spec.method, "query"]
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", [])
    for name, of in schema.get("properties", {}).items():
        of = without_null({key: value for key, value in of.items() if key != "title"})
        parameter = {"name": name, "in": "query", "required": name in required, "schema": of}
        if "description" in of:
            parameter["description"] = of.pop("description")
        yield parameter


def _header_parameters(spec: ApiOperation, headers: Sequence[str]) -> Iterator[Schema]:
    if spec.idempotent:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
            "description": "A repeated request with the same key within 24 hours gets the first response again.",
        }
    found = {name: text for name, text in REQUEST_HEADERS.items() if name in headers} | dict(spec.request_headers)
    for name, description in found.items():
        yield _header_parameter(name, description)


def _header_parameter(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": description}


def _header_refs(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (REQUEST_ID, *names) if name in RESPONSE_HEADERS}


def _success_response(
    rule: str, spec: ApiOperation, status: int, schemas: Mapping[SchemaKey, Schema], names: Sequence[str]
) -> Schema:
    kind = spec.returns[status]
    headers = _header_refs(*names, *([REPLAYED_HEADER] if spec.idempotent else []))
    if isinstance(kind, NonJsonResponse):
        kinds = (kind.content_type, *kind.alternatives)
        return {"description": kind.description, "headers": headers, "content": {name: {} for name in kinds}}
    description = {200: "Success.", 201: "Created.", 202: "Accepted; waits for approval."}.get(status, "Success.")
    content = {"application/json": {"schema": schemas[rule, spec.method, status]}}
    return {"description": description, "headers": headers, "content": content}


def _not_modified(names: Sequence[str]) -> Schema:
    return {"description": "What you have is still the present version.", "headers": _header_refs(*names)}


def _error_response(status: int, codes: list[str], schemas: Mapping[SchemaKey, Schema]) -> Schema:
    """The general body, with the codes of this operation and status."""
    headers = _header_refs(*BY_STATUS.get(status, ()))
    schema = {"allOf": [schemas[ERROR_SCHEMA_KEY], {"type": "object", "properties": {"error": {"enum": codes}}}]}
    description = f"{STATUS_DESCRIPTIONS.get(status, 'Error.')} Codes: {', '.join(f'`{code}`' for code in codes)}."
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}


WEBHOOK_RESPONSES: Mapping[str, Schema] = {
    "2XX": {"description": "Received. Anything else, or no answer in 10 seconds, is a failure: it is sent again, up to 5 times."},
    "410": {"description": "Not wanted any more: the webhook is disabled."},
}
WEBHOOK_DESCRIPTION = (
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


def _webhook_items(examples: ExampleBuilder) -> Schema:
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
        "description": WEBHOOK_DESCRIPTION,
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
        "responses": WEBHOOK_RESPONSES,
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
