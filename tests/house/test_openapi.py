"""The OpenAPI document of the whole program: valid, complete, and the calls of the wire contract and the routes of the program at
once."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from quart import Quart

from adapters.http.documents.examples import recorded_answers
from app.config.settings import Settings
from app.wiring.compose import compose
from domain.events.model import PUBLIC_TYPES
from support.service import environment, program_command

CONTRACT = """
POST /devices/{deviceId}/executions/cancel /devices/{deviceId}/executions/{executionId}/cancel
POST /auth/login /auth/refresh /auth/logout /auth/password/request-otp /auth/change-password
POST /auth/password/change /auth/unlock/request /auth/unlock
POST /auth/login/second-factor /auth/step-up /auth/second-factor/totp /auth/second-factor/totp/confirm
POST /auth/second-factor/recovery-codes /auth/login/passkey /auth/login/passkey/options /auth/step-up/passkey-options
POST /auth/passkeys /auth/passkeys/options
GET /auth/second-factor /auth/passkeys
DELETE /auth/second-factor /auth/second-factor/totp /auth/passkeys/{passkeyId}
GET /auth/me /auth/sessions
DELETE /auth/sessions /auth/sessions/{sessionId}
GET /members /projects /keys /keys/{keyId}/grants
POST /members /projects /keys
PATCH /members/{membershipId} /projects/{projectId} /keys/{keyId}
POST /keys/{keyId}/rotate
DELETE /members/{membershipId} /projects/{projectId} /keys/{keyId}
GET /members/{membershipId} /projects/{projectId} /keys/{keyId} /invitations/{invitationId} /service-sessions/{sessionId}
GET /auth/sessions/{sessionId} /auth/passkeys/{passkeyId} /auth/notifications/channels/{channelId}
GET /provisioning-codes/{codeId} /provisioning-claims/{claimId} /webhooks/{webhookId} /webhooks/{webhookId}/deliveries/{deliveryId}
GET /devices/{deviceId}/schedules/{slot} /devices/{deviceId}/rules/{ruleId} /devices/{deviceId}/commands/{commandId}
GET /devices/{deviceId}/grants/{grantId} /groups/{groupId}/grants/{grantId}
GET /invitations
POST /invitations /invitations/{invitationId}/resend /invitations/preview /invitations/accept
DELETE /invitations/{invitationId}
GET /auth/notifications /auth/notifications/push-key /auth/notifications/channels
POST /auth/notifications/channels /auth/notifications/channels/{channelId}/test /auth/notifications/channels/{channelId}/confirm
DELETE /auth/notifications/channels/{channelId}
POST /approval-links/preview /approval-links/passkey-options /approval-links/approve /approval-links/deny
PUT /auth/notifications
GET /devices /devices/summary /devices/{deviceId} /devices/{deviceId}/config /devices/{deviceId}/firmware /devices/{deviceId}/events /catalog/boards /catalog/apps
GET /network /cluster
POST /devices/register /devices/register/bulk
GET /provisioning-codes /provisioning-claims
POST /provisioning-codes /provisioning-claims/{claimId}/approve /provisioning-claims/{claimId}/deny /provisioning/claim
DELETE /provisioning-codes/{codeId} /provisioning-claims/{claimId}
GET /fleet
POST /fleet/plan /fleet/apply
GET /service-sessions
POST /service-sessions
DELETE /service-sessions/{sessionId}
GET /groups /groups/{groupId} /groups/{groupId}/grants
POST /groups /groups/{groupId}/command /groups/{groupId}/command/preview /groups/{groupId}/schedules /groups/{groupId}/rules
POST /groups/{groupId}/grants
PATCH /groups/{groupId} /groups/{groupId}/devices /groups/{groupId}/grants/{grantId}
DELETE /groups/{groupId} /groups/{groupId}/schedules/{slot} /groups/{groupId}/grants/{grantId}
POST /devices/{deviceId}/credentials /devices/{deviceId}/credentials/reveal /devices/{deviceId}/revoke
PUT /devices/{deviceId}
PATCH /devices/{deviceId}/toggle
DELETE /devices/{deviceId}
GET /device-types /device-types/{deviceTypeId}
POST /device-types
PATCH /device-types/{deviceTypeId}
DELETE /device-types/{deviceTypeId}
GET /devices/{deviceId}/commands /devices/{deviceId}/executions /devices/{deviceId}/executions/{executionId}
POST /devices/{deviceId}/commands /devices/{deviceId}/command /devices/{deviceId}/command/on /devices/{deviceId}/command/off
PATCH /devices/{deviceId}/commands/{commandId}
DELETE /devices/{deviceId}/commands/{commandId}
GET /devices/{deviceId}/schedules /devices/{deviceId}/schedules/context /devices/{deviceId}/schedules/history /schedules/occurrences
POST /devices/{deviceId}/schedules
PUT /devices/{deviceId}/schedules/{slot} /devices/{deviceId}/schedules
DELETE /devices/{deviceId}/schedules/{slot}
GET /devices/{deviceId}/rules /devices/{deviceId}/rules/context
POST /devices/{deviceId}/metrics /devices/{deviceId}/rules /devices/{deviceId}/rules/test /devices/{deviceId}/rules/{ruleId}/test
PATCH /devices/{deviceId}/rules/{ruleId}
DELETE /devices/{deviceId}/rules/{ruleId}
GET /devices/{deviceId}/grants /devices/{deviceId}/access
POST /devices/{deviceId}/grants
PATCH /devices/{deviceId}/grants/{grantId}
DELETE /devices/{deviceId}/grants/{grantId}
GET /devices/{deviceId}/approvals /approvals /devices/{deviceId}/approvals/{approvalId}
POST /devices/{deviceId}/approvals/{approvalId}/approve /devices/{deviceId}/approvals/{approvalId}/deny /devices/{deviceId}/approvals/{approvalId}/withdraw
GET /devices/{deviceId}/telemetry /devices/{deviceId}/telemetry/latest /devices/{deviceId}/telemetry/export /telemetry/series
GET /events /events/{eventId} /events/export /webhooks /webhooks/{webhookId}/deliveries
POST /webhooks /webhooks/{webhookId}/rotate-secret /webhooks/{webhookId}/ping
POST /webhooks/{webhookId}/deliveries/{deliveryId}/redeliver /webhooks/{webhookId}/recover
PATCH /webhooks/{webhookId}
DELETE /webhooks/{webhookId}
"""
UNDESCRIBED = {"/api/v1/ws"}
"""A WebSocket; OpenAPI has no word for it."""
METHODS = {"get", "post", "put", "patch", "delete"}
VERBS = (
    "accept|apply|approve|cancel|change|claim|confirm|create|declare|delete|deny|explain|export|generate|get|list|login|logout|ping|plan|preview|"
    "recover|redeliver|refresh|register|request|resend|reveal|revoke|rotate|send|summarize|switch|test|toggle|unlock|update|"
    "withdraw"
)
"""What an operation's name begins with; a noun follows."""
ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """As the command line prints it."""
    printed = subprocess.run(
        [*program_command(), "openapi"],
        env=environment(),
        cwd=tmp_path_factory.mktemp("openapi"),
        capture_output=True,
        check=True,
        timeout=300,
    )
    found: dict[str, Any] = json.loads(printed.stdout)
    return found


@pytest.fixture
async def app(tmp_path: Path) -> Quart:
    settings = Settings.model_construct(data_dir=tmp_path, engine="reference", broker="mqtt://127.0.0.1")
    composed = compose(settings)
    await composed.adapters.courier.close()
    composed.adapters.hasher.close()
    composed.adapters.login_hasher.close()
    return composed.http_app


def calls(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods.keys() & METHODS}


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert "jsonSchemaDialect" not in document, (
        "the page of Swagger UI warns about any but the default, which is 2020-12 and more"
    )


def test_every_call_of_the_contract_is_in_it_and_no_other(document: dict[str, Any]) -> None:
    promised = {f"{row.split()[0]} /api/v1{path}" for row in CONTRACT.strip().splitlines() for path in row.split()[1:]}
    described = {call for call in calls(document) if " /api/v1/" in call}
    assert described - promised == set()
    assert promised - described == set()


async def test_every_route_is_in_it_and_nothing_that_is_not_routed(document: dict[str, Any], app: Quart) -> None:
    routed = {
        f"{method} {camel(rule.rule)}"
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.rule.startswith("/api/v1/") and rule.rule not in UNDESCRIBED
    }
    described = {call for call in calls(document) if " /api/v1/" in call}
    assert {anonymous(call) for call in routed} == {anonymous(call) for call in described}


def camel(rule: str) -> str:
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule)


def anonymous(call: str) -> str:
    """Routes name their variables as Python does; the document as the contract does."""
    return re.sub(r"\{\w+\}", "{}", call)


def test_every_operation_has_its_own_name_a_summary_and_the_shape_of_its_errors(document: dict[str, Any]) -> None:
    operations = [methods[name] for methods in document["paths"].values() for name in methods.keys() & METHODS]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert not [operation["operationId"] for operation in operations if not operation.get("summary")]
    assert not [
        operation["operationId"]
        for operation in operations
        if not any(status.startswith("2") for status in operation["responses"])
    ]


def test_every_operation_is_named_by_a_verb_and_a_noun(document: dict[str, Any]) -> None:
    """A generated client has a method of this name."""
    names = [methods[name]["operationId"] for methods in document["paths"].values() for name in methods.keys() & METHODS]
    wanted = re.compile(f"({VERBS})([A-Z][a-z]+)+")
    assert [name for name in names if not wanted.fullmatch(name)] == []


def test_every_tag_says_what_it_is_for(document: dict[str, Any]) -> None:
    assert [tag["name"] for tag in document["tags"] if not tag.get("description")] == []


def schemas(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every property of every model."""
    for name, model in document["components"]["schemas"].items():
        for field, schema in model.get("properties", {}).items():
            yield name, field, schema


def test_a_field_that_may_be_omitted_has_no_default_of_null(document: dict[str, Any]) -> None:
    """Generators would make it required, or nullable."""
    assert [f"{name}.{field}" for name, field, schema in schemas(document) if schema.get("default", "") is None] == []
    assert [f"{name}.{field}" for name, field, schema in schemas(document) if "title" in schema] == []


def test_every_field_of_a_response_is_required_unless_it_is_left_out(document: dict[str, Any]) -> None:
    optional = {
        f"{name}.{field}"
        for name, model in document["components"]["schemas"].items()
        if name.endswith("Response")
        for field in model["properties"].keys() - set(model.get("required", []))
    }
    warnings = {"GrantCreatedResponse.details", "GrantChangedResponse.details"}
    assert optional == {"ErrorResponse.details", "ErrorResponse.retryAfter", "ReadingResponse.reportedAt", *warnings}
    nullable = [field for field in optional if {"type": "null"} in one_schema(document, field).get("anyOf", [])]
    assert nullable == []


def one_schema(document: dict[str, Any], place: str) -> dict[str, Any]:
    return next(schema for name, field, schema in schemas(document) if f"{name}.{field}" == place)


def test_every_time_in_text_is_a_date_time(document: dict[str, Any]) -> None:
    wrong: list[str] = []
    for name, field, schema in schemas(document):
        kinds = [schema, *schema.get("anyOf", [])]
        texts = [one for kind in kinds for one in (kind, kind.get("items", {})) if one.get("type") == "string"]
        if re.search(r"(At|^at|^lastSeen)$", field) and not all(one.get("format") == "date-time" for one in texts):
            wrong.append(f"{name}.{field}")
    times = {
        field
        for content in contents(document).values()
        for one in examples_of(document, content)
        for field in fields_of_time(one)
    }
    dated = {field for _, field, schema in schemas(document) if '"date-time"' in json.dumps(schema)}
    assert (wrong, times - dated) == ([], set())


def fields_of_time(example: Any) -> Iterator[str]:
    """The names of the fields that have an ISO time."""
    if isinstance(example, list):
        for one in example:
            yield from fields_of_time(one)
    for field, value in example.items() if isinstance(example, dict) else ():
        if isinstance(value, str) and ISO_TIME.fullmatch(value):
            yield field
        yield from fields_of_time(value)


def contents(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every body and answer, by its call, its status and its type."""
    found: dict[str, dict[str, Any]] = {}
    for path, methods in document["paths"].items():
        for method in methods.keys() & METHODS:
            parts = {"body": methods[method].get("requestBody", {}), **methods[method]["responses"]}
            for part, one in parts.items():
                found |= {f"{method} {path} {part} {kind}": content for kind, content in one.get("content", {}).items()}
    return found


def examples_of(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    named = [one.get("$ref", "").rpartition("/")[2] for one in content.get("examples", {}).values()]
    shared = document["components"]["examples"]
    found = [
        shared[name]["value"] if name else one["value"]
        for name, one in zip(named, content.get("examples", {}).values(), strict=True)
    ]
    return found + ([content["example"]] if "example" in content else [])


def test_every_body_and_every_success_has_an_example_and_each_is_of_its_schema(document: dict[str, Any]) -> None:
    wrong: list[str] = []
    for name, content in contents(document).items():
        examples = examples_of(document, content)
        schema = {**content.get("schema", {}), "components": document["components"]}
        check = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        wrong += [f"{name}: none" for _ in range(1) if not examples and re.search(" (body|2..) ", name)]
        wrong += [f"{name}: {error.message[:200]}" for example in examples for error in check.iter_errors(example)]
    assert wrong == []


def test_every_success_has_the_example_of_a_real_run(document: dict[str, Any]) -> None:
    """`make examples` records them."""
    recorded = recorded_answers()
    missing: list[str] = []
    for name in contents(document):
        method, path, status, kind = name.split(" ", 3)
        key = status if kind == "application/json" else f"{status} {kind}"
        if status.startswith("2") and key not in recorded.get(f"{method.upper()} {path}", {}):
            missing.append(name)
    assert missing == []


def test_no_example_is_a_filler(document: dict[str, Any]) -> None:
    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from texts(child)

    found = [name for name, content in contents(document).items() if "text" in texts(examples_of(document, content))]
    assert [name for name in found if "/firmware " not in name] == [], "a setting of a firmware is of the kind `text`"


def test_every_error_lists_its_codes_and_a_service_session_is_told_no(document: dict[str, Any]) -> None:
    wrong: list[str] = []
    for path, methods in document["paths"].items():
        for method in methods.keys() & METHODS:
            operation = methods[method]
            codes: dict[str, list[str]] = {
                status: answer["content"]["application/json"]["schema"]["allOf"][1]["properties"]["error"]["enum"]
                for status, answer in operation["responses"].items()
                if status >= "4"
            }
            wrong += [
                f"{method} {path} {status}" for status, names in codes.items() if not names or len(names) != len(set(names))
            ]
            if operation["x-caller"] != "anyone" and "OPERATION_NOT_ALLOWED" not in codes["403"]:
                wrong.append(f"{method} {path}: OPERATION_NOT_ALLOWED")
            headers = {status: answer["headers"].keys() for status, answer in operation["responses"].items()}
            wrong += [
                f"{method} {path} {status}: {name}"
                for status, name in (("401", "WWW-Authenticate"), ("429", "Retry-After"), ("503", "Retry-After"))
                if status in headers and name not in headers[status]
            ]
    assert wrong == []


NOT_ANSWERED = {
    "ACCOUNT_EXISTS": "the command line",
    "EDGE_RECORDED": "the scheduler",
    "IDENTITY_TAKEN": "the way back from a provider: a page",
    "RULE_EXISTS": "an entry of a group's answer",
    "SCHEDULE_STATE": "the scheduler",
}
"""Conflicts that no operation answers with, and who gets them instead."""


def test_every_conflict_that_is_raised_is_a_code_of_an_operation(document: dict[str, Any]) -> None:
    raised: set[str] = set()
    for path in (Path(__file__).resolve().parents[2] / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Conflict":
                raised |= {ast.literal_eval(one.value) for one in node.keywords if isinstance(one.value, ast.Constant)}
    shown = json.dumps(document["paths"])
    assert len(raised) > 20
    assert {code for code in raised if f'"{code}"' not in shown} == set(NOT_ANSWERED)


IN_A_FLEET_FILE = """
POST /projects /device-types /devices/register /devices/{deviceId}/commands /devices/{deviceId}/schedules /devices/{deviceId}/rules
POST /devices/{deviceId}/metrics /groups /groups/{groupId}/grants /devices/{deviceId}/grants /keys /webhooks
PATCH /device-types/{deviceTypeId} /devices/{deviceId}/commands/{commandId} /devices/{deviceId}/rules/{ruleId} /groups/{groupId}
PATCH /groups/{groupId}/devices /groups/{groupId}/grants/{grantId} /devices/{deviceId}/grants/{grantId} /keys/{keyId}
PATCH /webhooks/{webhookId}
PUT /devices/{deviceId} /devices/{deviceId}/schedules/{slot}
DELETE /projects/{projectId} /device-types/{deviceTypeId} /devices/{deviceId} /devices/{deviceId}/commands/{commandId}
DELETE /devices/{deviceId}/schedules/{slot} /devices/{deviceId}/rules/{ruleId} /groups/{groupId} /groups/{groupId}/grants/{grantId}
DELETE /devices/{deviceId}/grants/{grantId} /keys/{keyId} /webhooks/{webhookId}
"""
"""The single calls that the entries of a file stand for."""


def test_a_fleet_file_is_refused_with_the_codes_of_the_calls_that_it_stands_for(document: dict[str, Any]) -> None:
    def codes(method: str, path: str) -> set[str]:
        answers = document["paths"][f"/api/v1{path}"][method]["responses"]
        found = {
            status: answers[status]["content"]["application/json"]["schema"]
            for status in ("400", "403", "409")
            if status in answers
        }
        return {code for schema in found.values() for code in re.findall(r"[A-Z]+(?:_[A-Z]+)+", json.dumps(schema))}

    single = {
        code
        for row in IN_A_FLEET_FILE.split("\n")
        if row
        for path in row.split()[1:]
        for code in codes(row.split()[0].lower(), path)
    }
    assert len(single) > 25
    only_single = {code for code in single if code.startswith("IDEMPOTENCY_")}
    for step in ("plan", "apply"):
        assert single - only_single - codes("post", f"/fleet/{step}") == set(), step


def test_a_response_is_open_and_a_request_is_closed(document: dict[str, Any]) -> None:
    """A later version may add fields to responses; a field of a request that nobody knows is a mistake."""
    models = document["components"]["schemas"]
    closed = {name for name, model in models.items() if model.get("additionalProperties") is False}
    assert {name for name in closed if name.endswith("Response")} == set()
    assert {name for name, model in models.items() if name.endswith("Request") and "properties" in model} - closed == set()


EVENT_TYPES = "event types, which the specification writes so"
OTHER_CASES = {
    "Role": "roles, which the specification writes so",
    "ServiceSessionRequest.role": "roles",
    "TriggeredBy": "`triggeredBy` of the specification",
    "AppliesVia": "`appliesVia` of the specification",
    "GrantCreateRequest.appliesVia": "the same",
    "GrantSubjectResponse.type": "`subject.type` of the specification",
    "RuleConditionRequest.comparator": "the operators of the specification, and `silent` of the contract beside them",
    "SwitchEdge": "`edge` of the event `schedule_fired` in the contract",
    "DeviceOnlineEvent.reason": "`reason` of the event in the contract",
    "DeviceOfflineEvent.reason": "the same",
    "FirmwareProfile": "profiles, which the contract writes so",
    "FirmwareConfigFormat": "`format` of the contract",
    "GET /devices/{deviceId}/telemetry/export ?format": "`format` of the contract",
    "GET /events ?type": EVENT_TYPES,
    "FleetWebhook.types": EVENT_TYPES,
    "WebhookCreateRequest.types": EVENT_TYPES,
    "WebhookUpdateRequest.types": EVENT_TYPES,
    "PingPayload.type": EVENT_TYPES,
    "PingWebhook.type": EVENT_TYPES,
    "ApprovalByLinkResponse.secondFactors": "names of the fields in the decision that follows",
    "WebhookFormat": "the content modes of CloudEvents",
    "GET /devices/{deviceId}/telemetry ?order": "the directions of SQL",
    "FleetKind": "the names of the sections in a fleet's file",
    "DeviceSort": "names of fields",
    "NotificationSettingsRequest.language": "language tags of BCP 47",
}
"""Where a value is not in capitals, and why. Each has to be needed."""
WORD = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


def enumerated(node: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every value of an enumeration below here, by the schema, field or parameter that has it."""
    if isinstance(node, list):
        for each in node:
            yield from enumerated(each, place)
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "enum":
            yield from ((place, each) for each in value if isinstance(each, str))
        elif key == "const" and isinstance(value, str):
            yield place, value
        elif key not in {"example", "examples", "default"}:
            yield from enumerated(value, place)


def all_enumerated(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, model in document["components"]["schemas"].items():
        for field, schema in model.get("properties", {}).items():
            yield from enumerated(schema, f"{name}.{field}")
        yield from enumerated({key: value for key, value in model.items() if key != "properties"}, name)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            call = f"{method.upper()} {path.removeprefix('/api/v1')}"
            for one in operation.get("parameters", []):
                yield from enumerated(one, f"{call} ?{one.get('name')}")
            yield from enumerated({key: operation.get(key) for key in ("requestBody", "responses")}, call)


def test_every_value_of_an_enumeration_is_in_capitals(document: dict[str, Any]) -> None:
    found = list(all_enumerated(document))
    assert len(found) > 200
    other = {place for place, value in found if not WORD.fullmatch(value)}
    events = {place for place in other if re.fullmatch(r"[A-Z]\w+(Event|Webhook)\.type", place)} - OTHER_CASES.keys()
    assert len(events) == 2 * len(PUBLIC_TYPES)
    assert other - events == set(OTHER_CASES)


def test_the_head_has_guides(document: dict[str, Any]) -> None:
    guides = re.findall(r"^## (.+)$", document["info"]["description"], re.MULTILINE)
    assert guides == ["Authentication", "Errors", "Paging", "Conditional requests", "Idempotency", "Time"]


def test_every_event_type_has_a_webhook_with_an_example(document: dict[str, Any]) -> None:
    assert document["webhooks"].keys() == PUBLIC_TYPES | {"ping"}
    for kind, item in document["webhooks"].items():
        content = item["post"]["requestBody"]["content"]["application/json"]
        check = Draft202012Validator({**content["schema"], "components": document["components"]})
        assert [error.message for error in check.iter_errors(content["example"])] == []
        assert content["example"]["type"] == content["example"]["data"]["type"] == kind


def test_every_operation_says_who_may_call_it_and_what_it_is(document: dict[str, Any]) -> None:
    wrong: list[str] = []
    for path, methods in document["paths"].items():
        for method in methods.keys() & METHODS:
            call = methods[method]
            named = [name for one in call.get("security", [{"none": []}]) for name in one]
            named = [name for name in named if name != "serviceSession"]
            expected = {"anyone": [], "session": ["session"], "key": ["session", "apiKey"]}[call["x-caller"]]
            if named != expected or not call.get("description") or not call.get("tags"):
                wrong.append(f"{method} {path}")
    assert wrong == []


def test_a_service_session_is_named_where_it_may_call_with_what_it_must_be_allowed(document: dict[str, Any]) -> None:
    def needed(method: str, path: str) -> Any:
        schemes = document["paths"][f"/api/v1{path}"][method]["security"]
        return next((one["serviceSession"] for one in schemes if "serviceSession" in one), None)

    assert document["components"]["securitySchemes"]["serviceSession"]["scheme"] == "bearer"
    assert needed("get", "/devices") == ["devices:read"]
    assert needed("post", "/groups/{groupId}/command") == ["groups:read", "commands:write"]
    assert needed("post", "/fleet/plan") == [], "it asks for the parts of the document"
    assert needed("post", "/members") is None
    assert needed("post", "/devices/{deviceId}/approvals/{approvalId}/approve") is None


def test_a_header_is_described_where_it_is_sent_and_nowhere_else(document: dict[str, Any]) -> None:
    found: dict[str, set[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for name in operation["responses"].get("200", {}).get("headers", {}):
                found.setdefault(name, set()).add(f"{method.upper()} {path.removeprefix('/api/v1')}")
    assert "GET /devices" in found["X-Total-Count"] & found["Link"]
    assert {"GET /devices/{deviceId}", "PUT /devices/{deviceId}"} <= found["ETag"]
    assert found["Content-Disposition"] == {"GET /devices/{deviceId}/telemetry/export", "GET /events/export"}
    assert "POST /auth/login" not in found["ETag"] | found["Link"] | found["X-Total-Count"]


def test_a_limit_is_reported_where_one_may_be_counted_and_nowhere_else(document: dict[str, Any]) -> None:
    found = {
        f"{method.upper()} {path.removeprefix('/api/v1')} {status}"
        for path, item in document["paths"].items()
        for method, operation in item.items()
        for status, answer in operation["responses"].items()
        if {"RateLimit", "RateLimit-Policy"} <= answer.get("headers", {}).keys() and status < "4"
    }
    sending = ("/command", "/command/on", "/command/off")
    assert found == {f"POST /devices/{{deviceId}}{path} {status}" for path in sending for status in (200, 202)}
