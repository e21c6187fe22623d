"""Builds the OpenAPI 3.1 document from the operations and models that validate requests, so that both always agree.

Its `webhooks` are what the service posts to the URL of a webhook, one entry per event type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from quart import Quart

from adapters.http.core.callers import AllowedCallers
from adapters.http.core.operation import API_DEPENDENCIES, ApiOperation, NonJsonResponse, ObjectReads, openapi_path
from adapters.http.core.schemas import REF_TEMPLATE, ApiDocumentSchemaGenerator, ErrorResponse, without_null
from adapters.http.documents.examples import EXPORT_EXAMPLES, ExampleBuilder
from adapters.http.documents.messages import WEBHOOK_ENVELOPES, WEBHOOK_HEADERS
from domain.webhooks.requests import SPEC_VERSION, TYPE_PREFIX

Schema = dict[str, Any]

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


RATE_LIMIT_HEADERS: Schema = {
    "RateLimit-Policy": {
        "schema": {"type": "string", "examples": ['"grant";q=10;w=60']},
        "description": "Present if a grant's rate limit applied: its quota `q` in any `w` seconds.",
    },
    "RateLimit": {
        "schema": {"type": "string", "examples": ['"grant";r=9;t=42']},
        "description": "The remaining quota (`r`), and the seconds (`t`) until it grows by one.",
    },
}
RATE_LIMIT_HEADER_REFS: Schema = {name: {"$ref": f"#/components/headers/{name}"} for name in RATE_LIMIT_HEADERS}

SECURITY_BY_ACCESS: dict[AllowedCallers, list[dict[str, list[str]]]] = {
    AllowedCallers.ANYONE: [],
    AllowedCallers.SESSION: [{"session": []}],
    AllowedCallers.KEY: [{"session": []}, {"apiKey": []}],
}
SECURITY_SCHEMES = {
    "session": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The access token from POST /api/v1/auth/login. It is valid for 15 minutes.",
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
LINK_HEADER = {
    "schema": {"type": "string", "examples": ['</api/v1/approvals?limit=50&before=apv_6s4q2o0m8k7i5g3e1c9a>; rel="next"']},
    "description": "The next page (RFC 8288); absent on the last one.",
}
REQUEST_ID_HEADER = {"schema": {"type": "string"}, "description": "Identifies this request in the log."}


ETAG_HEADER = {
    "schema": {"type": "string", "examples": ['"5c9e1f0a7b3d2e4f60718293a4b5c6d7"']},
    "description": "Changes with everything that the object shows (RFC 9110, 8.8.3). Send it as `If-Match` with a change.",
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
            _add_precondition(paths[openapi_path(rule)][spec.method.lower()], spec, schemas, objects)
        if objects.shows(spec):
            _add_etag(paths[openapi_path(rule)][spec.method.lower()], spec)
    examples = ExampleBuilder(definitions=definitions)
    _add_examples(paths, examples)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Latchboard",
            "version": version,
            "description": "Self-hosted control plane for relay devices: permissions, schedules, rules and approvals.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This installation."}],
        "tags": [_tag_object(tag) for tag in dict.fromkeys(spec.tag for _, spec in found)],
        "paths": paths,
        "webhooks": _webhook_items(examples),
        "components": {
            "schemas": {name: schema for name, schema in sorted(definitions.items()) if name not in queries},
            "securitySchemes": SECURITY_SCHEMES,
            "headers": {"X-Request-Id": REQUEST_ID_HEADER, "Link": LINK_HEADER, "ETag": ETAG_HEADER, **RATE_LIMIT_HEADERS},
        },
    }


def _tag_object(tag: str) -> dict[str, str]:
    """The tag with its description. A test holds that every tag of the program has one."""
    described = TAG_DESCRIPTIONS.get(tag)
    return {"name": tag} if described is None else {"name": tag, "description": described}


def possible_errors(spec: ApiOperation) -> dict[int, list[str]]:
    """The error codes of an operation by status: those it declares, and those that follow from its properties."""
    codes: dict[int, list[str]] = {400: ["VALIDATION_ERROR"], 500: ["INTERNAL_ERROR"], 503: ["UNAVAILABLE"]}
    if spec.access is not AllowedCallers.ANYONE:
        codes[401] = ["UNAUTHENTICATED", "TOKEN_EXPIRED", "KEY_EXPIRED", "SECRET_REPLACED"]
        codes[403] = ["ADDRESS_NOT_ALLOWED"]
    if spec.access is AllowedCallers.SESSION:
        codes[403].append("SESSION_REQUIRED")
    if spec.authority is not None:
        codes[403].append("STEP_UP_REQUIRED")
    if spec.path_parameters:
        codes[404] = ["NOT_FOUND"]
    if spec.body is not None:
        codes[400].append("INVALID_JSON")
        codes |= {408: ["REQUEST_TIMEOUT"], 413: ["PAYLOAD_TOO_LARGE"], 415: ["UNSUPPORTED_MEDIA_TYPE"]}
    if spec.idempotent:
        codes[409] = ["IDEMPOTENCY_MISMATCH", "IDEMPOTENCY_IN_PROGRESS", "IDEMPOTENCY_ANSWER_LOST"]
    if spec.turn is not None:
        codes[429] = ["RATE_LIMITED"]
    for status, declared in spec.errors.items():
        kept = codes.setdefault(status, [])
        kept += [code for code in declared.split() if code not in kept]
    return dict(sorted(codes.items()))


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
    made: Schema = {
        "operationId": to_camel(spec.handler_name),
        "tags": [spec.tag],
        "summary": spec.summary,
        "security": SECURITY_BY_ACCESS[spec.access],
        "x-caller": spec.access.value,
        "responses": {
            **{str(status): _success_response(rule, spec, status, schemas) for status in spec.returns},
            **{str(status): _error_response(spec, status, codes, schemas) for status, codes in possible_errors(spec).items()},
        },
    }
    if spec.description:
        made["description"] = spec.description
    if spec.authority is not None:
        made["x-authority"] = {"proof": "POST /auth/step-up", "event": spec.authority.event, "end": spec.authority.end}
        made["x-authority"] |= {"when": spec.authority.when} if spec.authority.when else {}
    parameters = [*_path_parameters(spec), *_query_parameters(rule, spec, schemas, definitions), *_header_parameters(spec)]
    if parameters:
        made["parameters"] = parameters
    if spec.body_parameter is not None:
        content = {"application/json": {"schema": schemas[rule, spec.method, "body"]}}
        made["requestBody"] = {"required": spec.body_required, "content": content}
    return made


def _add_precondition(operation: Schema, spec: ApiOperation, schemas: Mapping[SchemaKey, Schema], objects: ObjectReads) -> None:
    """What changes no single object refuses an `If-Match`."""
    if objects.find(spec) is not None:
        operation.setdefault("parameters", []).append(_header_parameter("If-Match", IF_MATCH))
    responses = operation["responses"] | {"412": _error_response(spec, 412, ["PRECONDITION_FAILED"], schemas)}
    operation["responses"] = dict(sorted(responses.items()))


def _add_etag(operation: Schema, spec: ApiOperation) -> None:
    operation["responses"]["200"]["headers"]["ETag"] = {"$ref": "#/components/headers/ETag"}
    if spec.method == "GET":
        operation.setdefault("parameters", []).append(_header_parameter("If-None-Match", IF_NONE_MATCH))
        headers = {"ETag": {"$ref": "#/components/headers/ETag"}}
        responses = operation["responses"] | {"304": {"description": "You have it already.", "headers": headers}}
        operation["responses"] = dict(sorted(responses.items()))


def _add_examples(paths: Schema, examples: ExampleBuilder) -> None:
    """Add an example to every request body and every success response."""
    for call in (call for methods in paths.values() for call in methods.values()):
        for content in call.get("requestBody", {}).get("content", {}).values():
            content["example"] = examples.request_example(content["schema"])
        for status, answer in call["responses"].items():
            for kind, content in answer["content"].items() if status.startswith("2") else ():
                content["example"] = examples.schema_example(content["schema"]) if "schema" in content else EXPORT_EXAMPLES[kind]


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


def _header_parameters(spec: ApiOperation) -> Iterator[Schema]:
    if spec.idempotent:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
            "description": "A repeated request with the same key within 24 hours gets the first response again.",
        }
    for name, description in spec.request_headers.items():
        yield _header_parameter(name, description)


def _header_parameter(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": description}


def _success_response(rule: str, spec: ApiOperation, status: int, schemas: Mapping[SchemaKey, Schema]) -> Schema:
    kind = spec.returns[status]
    headers: Schema = {
        "X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"},
        **(RATE_LIMIT_HEADER_REFS if spec.rate_limited else {}),
        **({"Link": {"$ref": "#/components/headers/Link"}} if spec.paged else {}),
    }
    if isinstance(kind, NonJsonResponse):
        kinds = (kind.content_type, *kind.alternatives)
        return {"description": kind.description, "headers": headers, "content": {name: {} for name in kinds}}
    description = {200: "Success.", 201: "Created.", 202: "Accepted; waits for approval."}.get(status, "Success.")
    content = {"application/json": {"schema": schemas[rule, spec.method, status]}}
    return {"description": description, "headers": headers, "content": content}


def _error_response(spec: ApiOperation, status: int, codes: list[str], schemas: Mapping[SchemaKey, Schema]) -> Schema:
    headers: Schema = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    if status == 429:
        headers["Retry-After"] = {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        headers |= RATE_LIMIT_HEADER_REFS if spec.rate_limited else {}
    examples = {code: {"value": _error_example(status, code)} for code in codes}
    content = {"application/json": {"schema": schemas[ERROR_SCHEMA_KEY], "examples": examples}}
    description = f"{STATUS_DESCRIPTIONS.get(status, 'Error.')} Codes: {', '.join(f'`{code}`' for code in codes)}."
    return {"description": description, "headers": headers, "content": content}


def _error_example(status: int, code: str) -> Schema:
    example: Schema = {"error": code, "message": STATUS_DESCRIPTIONS.get(status, "What is wrong and what to do about it.")}
    if status == 400:
        example["details"] = [{"field": "name", "message": "is required."}]
    if status == 429:
        example["retryAfter"] = 30
    return {**example, "requestId": "req_5f0c9be27a1d43b8e6f2"}


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
