"""Every operation lets in whom the contract names, and nobody else; the table below is the contract's.

The caller is settled before a service is touched, so no service is needed to see who is turned away.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Any

import pytest
from quart import Blueprint, Quart

import adapters.http
from adapters.http.app import create_app
from adapters.http.openapi import build_document
from support.http import World

NOBODY, SESSION, KEY = "anyone", "session", "key"

TABLE = {
    NOBODY: """
        POST /auth/login  POST /auth/refresh  POST /auth/logout  GET /catalog/boards  GET /catalog/apps
    """,
    SESSION: """
        GET /auth/me  POST /auth/password/request-otp  POST /auth/change-password
        GET /members  POST /members  PATCH /members/{membershipId}  DELETE /members/{membershipId}
        GET /projects  POST /projects  PATCH /projects/{projectId}  DELETE /projects/{projectId}
        GET /keys  POST /keys  PATCH /keys/{keyId}  DELETE /keys/{keyId}  GET /keys/{keyId}/grants
        POST /devices/register  GET /devices/{deviceId}  PUT /devices/{deviceId}  DELETE /devices/{deviceId}
        POST /devices/{deviceId}/credentials  POST /devices/{deviceId}/credentials/reveal
        POST /devices/{deviceId}/revoke  PATCH /devices/{deviceId}/toggle
        GET /devices/{deviceId}/config  GET /devices/{deviceId}/events
        GET /device-types  POST /device-types
        GET /device-types/{deviceTypeId}  PATCH /device-types/{deviceTypeId}  DELETE /device-types/{deviceTypeId}
        POST /devices/{deviceId}/commands
        PATCH /devices/{deviceId}/commands/{commandId}  DELETE /devices/{deviceId}/commands/{commandId}
        GET /devices/{deviceId}/schedules  POST /devices/{deviceId}/schedules  PUT /devices/{deviceId}/schedules
        PUT /devices/{deviceId}/schedules/{slot}  DELETE /devices/{deviceId}/schedules/{slot}
        GET /devices/{deviceId}/schedules/context  GET /devices/{deviceId}/schedules/history
        GET /devices/{deviceId}/rules  POST /devices/{deviceId}/rules  GET /devices/{deviceId}/rules/context
        PATCH /devices/{deviceId}/rules/{ruleId}  DELETE /devices/{deviceId}/rules/{ruleId}
        POST /devices/{deviceId}/rules/{ruleId}/test
        GET /devices/{deviceId}/grants  POST /devices/{deviceId}/grants
        PATCH /devices/{deviceId}/grants/{grantId}  DELETE /devices/{deviceId}/grants/{grantId}
        GET /devices/{deviceId}/access
        GET /approvals  GET /devices/{deviceId}/approvals
        POST /devices/{deviceId}/approvals/{approvalId}/approve  POST /devices/{deviceId}/approvals/{approvalId}/deny
        GET /events
        GET /webhooks  POST /webhooks  PATCH /webhooks/{webhookId}  DELETE /webhooks/{webhookId}
        POST /webhooks/{webhookId}/rotate-secret  GET /webhooks/{webhookId}/deliveries
        POST /webhooks/{webhookId}/ping  POST /webhooks/{webhookId}/deliveries/{deliveryId}/redeliver
    """,
    KEY: """
        GET /devices
        GET /devices/{deviceId}/commands  POST /devices/{deviceId}/command
        POST /devices/{deviceId}/command/on  POST /devices/{deviceId}/command/off
        GET /devices/{deviceId}/executions  GET /devices/{deviceId}/executions/{executionId}
        GET /devices/{deviceId}/telemetry  GET /devices/{deviceId}/telemetry/latest  GET /devices/{deviceId}/telemetry/export
    """,
}
EXPECTED = {row: access for access, rows in TABLE.items() for row in re.findall(r"[A-Z]+ \S+", rows)}


def every_blueprint() -> list[Blueprint]:
    """The blueprints of all parts, over services that are not there."""
    found = []
    for module in pkgutil.iter_modules(adapters.http.__path__):
        loaded = importlib.import_module(f"adapters.http.{module.name}")
        for name, make in inspect.getmembers(loaded, inspect.isfunction):
            if name.endswith("_blueprint") and make.__module__ == loaded.__name__ and name != "openapi_blueprint":
                wanted = inspect.signature(make).parameters.values()
                nothing: dict[str, Any] = {one.name: "" if one.annotation == "str" else None for one in wanted}
                found.append(make(**nothing))
    return found


def bare_app(world: World) -> Quart:
    return create_app(blueprints=every_blueprint(), authenticator=world.callers)


def operations(app: Quart) -> dict[str, str]:
    """`GET /keys` → who is let in, by the document."""
    paths = build_document(app, version="0")["paths"]
    return {
        f"{method.upper()} {path.removeprefix('/api/v1')}": operation["x-caller"]
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def test_every_operation_has_its_row_and_lets_in_whom_the_row_names() -> None:
    found = operations(bare_app(World()))
    assert found.keys() - EXPECTED.keys() == set()
    assert {row: access for row, access in found.items() if EXPECTED[row] != access} == {}


@pytest.fixture
async def world() -> World:
    made = World()
    await made.account()
    return made


async def answers(world: World, headers: dict[str, str], *kinds: str) -> dict[str, str]:
    """Operation → `status CODE`, for all operations of these kinds."""
    app = bare_app(world)
    client = app.test_client()
    found = {}
    for row, access in operations(app).items():
        if access in kinds:
            method, _, path = row.partition(" ")
            path = re.sub(r"\{slot\}", "1", path)
            answer = await client.open(f"/api/v1{re.sub('{.+?}', 'x', path)}", method=method, headers=headers)
            found[row] = f"{answer.status_code} {(await answer.get_json())['error']}"
    return found


async def test_nobody_is_turned_away_everywhere_but_at_the_door(world: World) -> None:
    found = await answers(world, {}, SESSION, KEY)
    assert {row: answer for row, answer in found.items() if answer != "401 UNAUTHENTICATED"} == {}


@pytest.mark.parametrize("header", ["sk_live_nonsense", "Bearer nonsense", "Basic YTpi"])
async def test_a_stranger_is_nobody(world: World, header: str) -> None:
    headers = {"Authorization": header} if " " in header else {"X-Api-Key": header}
    found = await answers(world, headers, SESSION, KEY)
    assert {row: answer for row, answer in found.items() if answer != "401 UNAUTHENTICATED"} == {}


async def test_a_valid_key_is_told_that_it_needs_a_session(world: World) -> None:
    created = await world.account("eve@example.com", "Other")
    owner = created.owner.membership
    session, _ = await world.callers.by_token(world.tokens.issue(owner, world.clock.now_ms()), "")
    made = await world.keys.create(session, "CI")
    found = await answers(world, {"X-Api-Key": made.secret}, SESSION)
    assert found
    assert {row: answer for row, answer in found.items() if answer != "403 SESSION_REQUIRED"} == {}
