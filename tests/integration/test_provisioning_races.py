"""A device trades its code while what the code needs is deleted: one of the two is first, and nobody is told to try again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.team.operator import CreatedAccountWithOwner
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

ROUNDS = 4
DEVICES = 4
"""Together fewer than the wrong codes that one address may try."""


@pytest.fixture(params=DATABASES)
async def app(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[InProcessApp]:
    chosen = {"database_url": await empty_postgres(), "secret_keys": KEY_RING} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        yield program


@pytest.fixture
async def account(app: InProcessApp) -> CreatedAccountWithOwner:
    return await app.create_account("ada@example.com")


@pytest.fixture
async def ada(app: InProcessApp, account: CreatedAccountWithOwner) -> ApiCaller:
    return await app.sign_in("ada@example.com")


async def make_code(app: InProcessApp, maker: ApiCaller, **fields: Any) -> str:
    body = {"name": "Batch", "boardType": "ESP32", "appType": "PUMP", "maxDevices": 50, "requiresApproval": False}
    expires = {"expiresAt": to_iso(app.clock.now_ms() + 3_600_000)}
    return str((await maker.send_ok("POST", "/provisioning-codes", body | expires | fields))["code"])


async def race(app: InProcessApp, code: str, deleter: ApiCaller, path: str) -> tuple[list[int], int]:
    """The statuses of the claims, and that of the deletion."""

    async def claim(number: int) -> int:
        body = {"code": code, "hardwareId": f"{code[-6:]}-{number}"}
        return (await app.caller().send("POST", "/provisioning/claim", body)).status_code

    *claims, deletion = await asyncio.gather(*(claim(number) for number in range(DEVICES)), deleter.send("DELETE", path))
    return claims, deletion.status_code


async def test_a_project_is_deleted_while_its_code_is_claimed(app: InProcessApp, ada: ApiCaller) -> None:
    """Either it has devices then and stays, or the code is gone with it."""
    for number in range(ROUNDS):
        project_id = (await ada.send_ok("POST", "/projects", {"name": f"Site {number}"}))["projectId"]
        code = await make_code(app, ada, projectId=project_id)
        claims, deletion = await race(app, code, ada, f"/projects/{project_id}")
        assert (deletion, set(claims)) in ((200, {401}), (409, {201})), (claims, deletion)
        kept = [each for each in await ada.send_ok("GET", "/devices") if each["project"]["projectId"] == project_id]
        assert len(kept) == claims.count(201)


async def test_a_device_type_is_deleted_while_a_code_with_it_is_claimed(app: InProcessApp, ada: ApiCaller) -> None:
    for number in range(ROUNDS):
        made = await ada.send_ok("POST", "/device-types", {"name": f"Type {number}"})
        code = await make_code(app, ada, deviceTypeId=made["deviceTypeId"])
        claims, deletion = await race(app, code, ada, f"/device-types/{made['deviceTypeId']}")
        assert claims == [201] * DEVICES
        assert deletion in (200, 409)


async def test_a_member_is_removed_while_their_code_is_claimed(
    app: InProcessApp, account: CreatedAccountWithOwner, ada: ApiCaller
) -> None:
    for number in range(ROUNDS):
        membership_id = await app.create_member(account, f"bob{number}@example.com", Role.ADMIN)
        code = await make_code(app, await app.sign_in(f"bob{number}@example.com"))
        claims, deletion = await race(app, code, ada, f"/members/{membership_id}")
        assert deletion == 200
        assert set(claims) <= {201, 401}
