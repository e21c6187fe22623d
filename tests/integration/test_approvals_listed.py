"""Approvals and ended schedules are listed in pages, and a requester that is deleted takes its waiting requests along."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from security.people import a_key
from support import postgres
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]
NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
GUARDED = {"name": "FLUSH", "label": "Flush", "requiresApproval": True}


@pytest.fixture(params=DATABASES)
async def program(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcessApp]:
    chosen = {"database_url": await empty_postgres()} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        yield program


async def guarded_device(owner: ApiCaller) -> str:
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
    await owner.send_ok("POST", f"{device}/credentials", {})
    await owner.send_ok("POST", f"{device}/commands", GUARDED)
    return device


async def robot(owner: ApiCaller, device: str) -> tuple[ApiCaller, str]:
    key, key_id = await a_key(owner)
    await owner.send_ok("POST", f"{device}/grants", {"commands": ["*"], "apiKeyId": key_id})
    return key, key_id


async def request_approval(caller: ApiCaller, device: str) -> str:
    return str((await caller.send_ok("POST", f"{device}/command", {"cmd": "FLUSH"}))["approvalId"])


async def pages(caller: ApiCaller, path: str) -> list[list[Any]]:
    """Follow the `Link` headers to the last page."""
    found = []
    while path:
        answer = await caller.send("GET", path)
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        link = re.fullmatch(r'</api/v1([^>]+)>; rel="next"', answer.headers.get("Link", ""))
        path = link[1] if link else ""
    return found


async def test_a_full_page_of_approvals_names_the_next_one(program: InProcessApp) -> None:
    await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = await guarded_device(owner)
    key, _ = await robot(owner, device)
    requested = [await request_approval(key, device) for _ in range(5)]
    await owner.send_ok("POST", f"{device}/approvals/{requested[2]}/deny")
    for path in ("/approvals", f"{device}/approvals"):
        read = await pages(owner, f"{path}?limit=2")
        assert [[each["approvalId"] for each in page] for page in read] == [requested[:2:-1], requested[2:0:-1], requested[:1]]
        waiting = await pages(owner, f"{path}?status=PENDING&limit=2")
        assert [len(page) for page in waiting] == [2, 2]
        assert requested[2] not in {each["approvalId"] for page in waiting for each in page}
    assert (await owner.send("GET", "/approvals?limit=0")).status_code == 400


async def test_a_full_page_of_ended_schedules_names_the_next_one(program: InProcessApp) -> None:
    await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = await guarded_device(owner)
    now_s = program.clock.now_ms() // 1000
    ended = []
    for number in range(5):
        slot = {"slot": 0, "onTs": now_s + 1_000 + number, "offTs": now_s + 9_000}
        ended.append((await owner.send_ok("POST", f"{device}/schedules", slot))["scheduleId"])
        await owner.send_ok("DELETE", f"{device}/schedules/0")
    read = await pages(owner, f"{device}/schedules/history?limit=2")
    assert [[each["scheduleId"] for each in page] for page in read] == [ended[:2:-1], ended[2:0:-1], ended[:1]]


async def test_a_deleted_key_ends_its_waiting_requests(program: InProcessApp) -> None:
    await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = await guarded_device(owner)
    (key, key_id), (other, _) = await robot(owner, device), await robot(owner, device)
    ours, others = await request_approval(key, device), await request_approval(other, device)
    await owner.send_ok("DELETE", f"/keys/{key_id}")
    ended = await owner.send_ok("GET", f"{device}/approvals/{ours}")
    assert (ended["status"], ended["decidedBy"][:5]) == ("DENIED", "user:")
    assert (await owner.send_ok("GET", f"{device}/approvals/{others}"))["status"] == "PENDING"
    [event] = (await owner.send_ok("GET", "/events?type=approval_decided"))["data"]
    assert event["description"].endswith("DENIED, because the API key was deleted")
    assert (await owner.send("POST", f"{device}/approvals/{ours}/approve")).status_code == 409


async def test_a_removed_member_ends_their_waiting_requests(program: InProcessApp) -> None:
    account = await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = await guarded_device(owner)
    membership_id = await program.create_member(account, "admin@example.com", Role.ADMIN)
    requested = await request_approval(await program.sign_in("admin@example.com"), device)
    await owner.send_ok("DELETE", f"/members/{membership_id}")
    assert (await owner.send_ok("GET", f"{device}/approvals/{requested}"))["status"] == "DENIED"


async def test_people_see_every_approval_and_a_key_only_its_own(program: InProcessApp) -> None:
    account = await program.create_account("owner@example.com")
    owner = await program.sign_in("owner@example.com")
    device = await guarded_device(owner)
    await program.create_member(account, "member@example.com", Role.MEMBER)
    member = await program.sign_in("member@example.com")
    await program.create_member(account, "viewer@example.com", Role.VIEWER)
    viewer = await program.sign_in("viewer@example.com")
    (key, key_id), (other, _) = await robot(owner, device), await robot(owner, device)
    path = f"{device}/approvals/{await request_approval(key, device)}"
    statuses = {}
    for name, caller in (("owner", owner), ("key", key), ("other", other), ("member", member), ("viewer", viewer)):
        statuses[name] = (await caller.send("GET", path)).status_code
    assert statuses == {"owner": 200, "key": 200, "other": 404, "member": 200, "viewer": 200}
    for person in (member, viewer):
        [listed] = await person.send_ok("GET", "/approvals")
        assert listed == await person.send_ok("GET", path)
        assert listed["requestedBy"]["id"] == key_id
