"""Valid and invalid requests are answered as the OpenAPI document says, never with a 5xx.

The running program as a process, native engine and broker included. `LATCHBOARD_TEST_EXAMPLES=200` tries more; the
default is a fixed set of examples that takes less than a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.service import EMAIL, PASSWORD, Service
from support.thoroughness import usual_or_thorough

pytestmark = pytest.mark.thorough

EXAMPLES = int(os.environ.get("LATCHBOARD_TEST_EXAMPLES", "0"))
FEW = usual_or_thorough(2, 10)
SECONDS = 15
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
NOBODYS_ID = ("delete", "/revoke", "/toggle")
"""Operations that delete an object are called with unknown ids, so that other operations find theirs; the access matrix uses
real ones."""
NOWHERE = "http://127.0.0.1:9/hook"
TRIES = settings(
    max_examples=EXAMPLES or FEW, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@dataclass
class Running:
    url: str
    ids: dict[str, str]
    owner: dict[str, str]
    key: dict[str, str]

    def answer(self, case: Any, headers: dict[str, str]) -> None:
        where = f"{case.operation.method.lower()} {case.operation.path}"
        if not any(word in where for word in NOBODYS_ID):
            known = {name: value for name, value in self.ids.items() if name in (case.path_parameters or {})}
            case.path_parameters = {**(case.path_parameters or {}), **known}
        if isinstance(case.body, dict) and "url" in case.body and _leads_somewhere(case.body["url"]):
            case.body["url"] = NOWHERE  # tests connect to this machine only
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=SECONDS)


def _leads_somewhere(url: Any) -> bool:
    return isinstance(url, str) and url.strip().lower().startswith("http")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        Service(tmp_path_factory.mktemp("document")) as service,
        httpx.Client(base_url=f"{service.url}/api/v1", timeout=20) as http,
    ):
        signed_in = http.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
        http.headers["Authorization"] = f"Bearer {signed_in['accessToken']}"
        ids, key = objects(http)
        yield Running(service.url, ids, dict(http.headers), {"X-Api-Key": key})
        assert '"level": "error"' not in service.log(1_000_000)


def objects(http: httpx.Client) -> tuple[dict[str, str], str]:
    """One object of each kind, and a key with every grant."""

    def made(path: str, **body: Any) -> Any:
        answer = http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    ids: dict[str, str] = {"slot": "1"}
    ids |= made("/devices/register", name="Pump", boardType="ESP32", appType="PUMP")
    device = f"/devices/{ids['deviceId']}"
    made(f"{device}/credentials")
    key, spare = made("/keys", name="Robot"), made("/keys", name="Spare")
    ids["keyId"] = spare["keyId"]
    ids |= made(f"{device}/grants", commands=["ON"], apiKeyId=spare["keyId"])
    made(f"{device}/grants", commands=["*"], apiKeyId=key["keyId"], appliesVia="project")
    member = {"email": "member@example.com", "name": "M", "role": "Viewer", "password": PASSWORD}
    ids["membershipId"] = made("/members", **member)["membershipId"]
    ids["projectId"] = made("/projects", name="Greenhouse")["projectId"]
    ids["deviceTypeId"] = made("/device-types", name="Fan", commands=[])["deviceTypeId"]
    ids |= made(f"{device}/commands", name="SPIN", label="Spin", requiresApproval=True)
    ids["executionId"] = made(f"{device}/command", cmd="STATUS", ttlSeconds=86_400)["executionId"]
    requested = http.post(f"{device}/command", json={"cmd": "SPIN"}, headers={"X-Api-Key": key["key"], "Authorization": ""})
    ids["approvalId"] = requested.json()["approvalId"]
    made(f"{device}/schedules", slot=1, onTs=4_000_000_000, offTs=4_000_003_600)
    ids["webhookId"] = made("/webhooks", keyId=spare["keyId"], url=NOWHERE)["webhookId"]
    ids["deliveryId"] = made(f"/webhooks/{ids['webhookId']}/ping")["deliveryId"]
    ids["groupId"] = made("/groups", name="Pumps", deviceIds=[ids["deviceId"]])["groupId"]
    return ids, key["key"]


def disagreements(running: Running, headers: dict[str, str], callers: tuple[str, ...]) -> list[str]:
    """The responses that differ from the document, one for each operation and mode."""
    found: list[str] = []
    for result in schemathesis.openapi.from_url(f"{running.url}/openapi.json").get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # a document that cannot be read fails here
        if operation.definition.raw["x-caller"] not in callers:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @TRIES
            @given(case=operation.as_strategy(generation_mode=mode))
            def attempt(case: Any) -> None:
                running.answer(case, headers)

            try:
                attempt()
            except Unsatisfiable:
                continue  # an operation without input has no invalid input
            except (FailureGroup, Failure) as failure:
                found.append(f"{operation.label}, {mode.value}: {failure}")
    return found


def test_responses_to_an_owner_match_the_openapi_document(running: Running) -> None:
    assert "\n\n".join(disagreements(running, running.owner, ("anyone", "session", "key"))) == ""


def test_responses_to_a_key_match_the_openapi_document(running: Running) -> None:
    assert "\n\n".join(disagreements(running, running.key, ("key",))) == ""
