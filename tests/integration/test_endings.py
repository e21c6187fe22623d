"""Whatever ends says when it ended, with one word: `endedAt`, null while it lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain.kernel.clock import DAY_MS, to_iso
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

PUMP = {"boardType": "ESP32", "appType": "PUMP"}


async def shown(owner: ApiCaller, path: str) -> tuple[Any, Any]:
    """Of the object alone and in its list."""
    alone = await owner.send_ok("GET", path)
    whole, _, last = path.rpartition("/")
    [listed] = [each for each in await owner.send_ok("GET", whole) if last in each.values()]
    return alone["endedAt"], listed["endedAt"]


@pytest.fixture
async def ends(tmp_path: Path) -> Any:
    async with in_process_app(tmp_path) as program:
        await program.create_account("owner@example.com")
        yield program, await program.sign_in("owner@example.com")


async def test_what_expires_has_ended_from_that_moment_on(ends: tuple[InProcessApp, ApiCaller]) -> None:
    app, owner = ends
    end_ms = app.clock.now_ms() + DAY_MS
    end = {"expiresAt": to_iso(end_ms)}
    device = (await owner.send_ok("POST", "/devices/register", {"name": "Pump", **PUMP}))["deviceId"]
    key = (await owner.send_ok("POST", "/keys", {"name": "Bot", **end}))["keyId"]
    eternal = (await owner.send_ok("POST", "/keys", {"name": "Eternal"}))["keyId"]
    grant = {"apiKeyId": key, "commands": ["ON"], **end}
    grant_id = (await owner.send_ok("POST", f"/devices/{device}/grants", grant))["grantId"]
    code = (await owner.send_ok("POST", "/provisioning-codes", {"name": "Hall", **PUMP, "maxDevices": 2, **end}))["codeId"]
    person = {"email": "ada@example.com", "name": "Ada", "role": "Viewer"}
    invitation = await owner.send_ok("POST", "/invitations", person)
    lasting = [f"/keys/{key}", f"/devices/{device}/grants/{grant_id}", f"/provisioning-codes/{code}"]
    for path in [*lasting, f"/keys/{eternal}", f"/invitations/{invitation['invitationId']}"]:
        assert await shown(owner, path) == (None, None), path
    app.clock.ms = end_ms
    owner = await app.sign_in("owner@example.com")
    for path in lasting:
        assert await shown(owner, path) == (end["expiresAt"], end["expiresAt"]), path
    [listed] = await owner.send_ok("GET", f"/keys/{key}/grants")
    assert listed["endedAt"] == end["expiresAt"]
    app.clock.ms = end_ms + 7 * DAY_MS
    owner = await app.sign_in("owner@example.com")
    assert await shown(owner, f"/keys/{eternal}") == (None, None)
    assert await shown(owner, f"/invitations/{invitation['invitationId']}") == (invitation["expiresAt"],) * 2


async def test_what_a_person_ends_has_ended_then(ends: tuple[InProcessApp, ApiCaller]) -> None:
    app, owner = ends
    device = (await owner.send_ok("POST", "/devices/register", {"name": "Pump", **PUMP}))["deviceId"]
    code = {"name": "Hall", **PUMP, "maxDevices": 9, "requiresApproval": True, "expiresAt": to_iso(app.clock.now_ms() + DAY_MS)}
    secret = (await owner.send_ok("POST", "/provisioning-codes", code))["code"]
    for board in ("HW-1", "HW-2"):
        claimed = await app.caller().send("POST", "/provisioning/claim", {"code": secret, "hardwareId": board})
        assert claimed.status_code == 202, claimed.text
    first, second = [each["claimId"] for each in await owner.send_ok("GET", "/provisioning-claims")]
    slot = {"slot": 1, "onTs": app.clock.now_ms() // 1000 + 600, "offTs": app.clock.now_ms() // 1000 + 900}
    assert (await owner.send_ok("POST", f"/devices/{device}/schedules", slot))["endedAt"] is None
    app.clock.ms += 60_000
    now = to_iso(app.clock.ms)
    assert (await owner.send_ok("POST", f"/provisioning-claims/{first}/approve"))["endedAt"] is None, "the board is to fetch them"
    assert (await owner.send_ok("POST", f"/provisioning-claims/{second}/deny"))["endedAt"] == now
    assert await shown(owner, f"/provisioning-claims/{second}") == (now, now)
    await owner.send_ok("DELETE", f"/devices/{device}/schedules/1")
    [ended] = await owner.send_ok("GET", f"/devices/{device}/schedules/history")
    assert (ended["status"], ended["endedAt"]) == ("CANCELLED", now)
