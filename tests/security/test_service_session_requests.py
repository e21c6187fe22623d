"""What a service session asks for: who may approve it, with which permissions it runs, and that it ends with the service session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.team.operator import CreatedAccountWithOwner
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

MINUTE_MS = 60_000


class Gate:
    """An account with an Owner and an Admin, and a device whose command waits for approval."""

    def __init__(self, app: InProcessApp, account: CreatedAccountWithOwner) -> None:
        self.app = app
        self.account = account

    async def prepare(self) -> None:
        self.grace_id = await self.app.create_member(self.account, "grace@example.com", Role.ADMIN)
        self.owner, self.admin = [await self.app.sign_in(f"{name}@example.com") for name in ("ada", "grace")]
        device = {"name": "Gate", "boardType": "ESP32", "appType": "PUMP"}
        self.path = f"/devices/{(await self.owner.send_ok('POST', '/devices/register', device))['deviceId']}"
        await self.owner.send_ok("POST", f"{self.path}/credentials", {})
        await self.owner.send_ok("POST", f"{self.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True})

    async def program(self, maker: ApiCaller, **fields: Any) -> tuple[ApiCaller, str]:
        body = {"name": "ci", "role": "Admin", "operations": ["commands:write", "approvals:read"]}
        body |= {"expiresAt": to_iso(self.app.clock.now_ms() + 60 * MINUTE_MS)} | fields
        made = await maker.send_ok("POST", "/service-sessions", body)
        return self.app.caller(Authorization=f"Bearer {made['token']}"), made["sessionId"]

    async def ask(self, program: ApiCaller) -> str:
        made = await program.send_ok("POST", f"{self.path}/command", {"cmd": "OPEN", "reason": "the nightly delivery"})
        return f"{self.path}/approvals/{made['approvalId']}"

    async def decide(self, caller: ApiCaller, request: str) -> Any:
        answer = await caller.send("POST", f"{request}/approve", {})
        return answer.status_code if answer.is_success else answer.json()["error"]

    async def status(self, request: str) -> str:
        while await self.app.services.approvals.expire_due():
            pass
        return (await self.owner.send_ok("GET", request))["status"]


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    async with in_process_app(tmp_path) as app:
        made = Gate(app, await app.create_account("ada@example.com"))
        await made.prepare()
        yield made


async def test_an_owner_approves_what_their_own_program_asked_for(gate: Gate) -> None:
    """They could send it without approval, and an account of one person has nobody else."""
    program, session_id = await gate.program(gate.owner)
    request = await gate.ask(program)
    assert await gate.decide(program, request) == "OPERATION_NOT_ALLOWED"
    assert await gate.decide(gate.owner, request) == 200
    approval = await program.send_ok("GET", request)
    assert (approval["status"], approval["requestedBy"]["name"]) == ("APPROVED", "ada (service session ci)")
    log = (await gate.owner.send_ok("GET", "/events"))["data"]
    [asked] = [each for each in log if each["eventType"] == "approval_requested"]
    assert f"(service session {session_id})" in asked["description"]


async def test_the_request_of_an_admins_program_is_the_admins_own(gate: Gate) -> None:
    program, _ = await gate.program(gate.admin)
    request = await gate.ask(program)
    refused = (await gate.admin.send("POST", f"{request}/approve", {})).json()
    assert refused["error"] == "OWN_REQUEST"
    assert "The service session that asks is yours" in refused["message"]
    assert await gate.decide(gate.owner, request) == 200


async def test_an_owners_own_request_with_a_lower_role_remains_their_own(gate: Gate) -> None:
    """A person who asks as an Admin and becomes an Owner asked for it in person, without a program."""
    request = await gate.ask(gate.admin)
    await gate.owner.send_ok("PATCH", f"/members/{gate.grace_id}", {"role": "Owner"})
    assert await gate.decide(gate.admin, request) == "OWN_REQUEST"


@pytest.mark.parametrize("ending", ["revoked", "signed out", "expired"])
async def test_what_waits_ends_with_the_service_session(gate: Gate, ending: str) -> None:
    program, session_id = await gate.program(gate.admin)
    request = await gate.ask(program)
    assert await gate.status(request) == "PENDING"
    if ending == "revoked":
        await gate.owner.send_ok("DELETE", f"/service-sessions/{session_id}")
    elif ending == "signed out":
        await gate.admin.send_ok("DELETE", "/auth/sessions")
    else:
        gate.app.clock.forward(60 * MINUTE_MS)
        gate.owner = await gate.app.sign_in("ada@example.com")
    assert await gate.decide(gate.owner, request) == "ALREADY_DECIDED"
    assert await gate.status(request) == "EXPIRED"
    assert (await gate.owner.send_ok("GET", f"{gate.path}/executions"))["data"] == []


async def test_a_persons_own_request_goes_on_after_signing_out_elsewhere(gate: Gate) -> None:
    request = await gate.ask(gate.admin)
    again = await gate.app.sign_in("grace@example.com")
    await again.send_ok("DELETE", "/auth/sessions")
    assert await gate.decide(gate.owner, request) == 200


async def test_it_runs_with_the_role_of_the_service_session_not_of_its_maker(gate: Gate) -> None:
    """As a Member it needs a grant; the grant that was deleted meanwhile is missed, although its maker is an Admin."""
    program, _ = await gate.program(gate.admin, role="Member")
    terms = {"commands": ["OPEN"], "membershipId": gate.grace_id}
    grant_id = (await gate.owner.send_ok("POST", f"{gate.path}/grants", terms))["grantId"]
    request = await gate.ask(program)
    await gate.owner.send_ok("DELETE", f"{gate.path}/grants/{grant_id}")
    assert await gate.decide(gate.owner, request) == "GRANT_MISSING"
    assert await gate.status(request) == "PENDING"


async def test_it_does_not_run_once_its_maker_has_a_lower_role(gate: Gate) -> None:
    program, _ = await gate.program(gate.admin)
    request = await gate.ask(program)
    await gate.owner.send_ok("PATCH", f"/members/{gate.grace_id}", {"role": "Member"})
    assert await gate.decide(gate.owner, request) == "ALREADY_DECIDED"
    assert await gate.status(request) == "EXPIRED"


async def test_what_it_made_stays_when_it_is_revoked(gate: Gate) -> None:
    program, session_id = await gate.program(gate.owner, operations=["devices:write", "api-keys:write"])
    device_id = (await program.send_ok("POST", "/devices/register", {"name": "Lamp", "boardType": "ESP32", "appType": "LAMP"}))[
        "deviceId"
    ]
    key = await program.send_ok("POST", "/keys", {"name": "nightly"})
    await gate.owner.send_ok("DELETE", f"/service-sessions/{session_id}")
    assert (await gate.owner.send_ok("GET", f"/devices/{device_id}"))["name"] == "Lamp"
    assert (await gate.app.caller(X_Api_Key=key["key"]).send("GET", "/devices")).status_code == 200
