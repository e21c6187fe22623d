"""A command that waits for its device does not outlive the authority that asked for it: it is called off at once, and who waits for
it is told. Whoever may, calls it off by hand."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.kernel.ids import DeviceId
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING
from support.waiting import TIMEOUT_S

PUMP = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
LATER = {"cmd": "ON", "ttlSeconds": 86_400}


@dataclass
class Site:
    """An Owner, and an offline pump in a project of its own, which is in a group."""

    app: InProcessApp
    owner: ApiCaller
    account: Any
    project: str
    group: str
    pump: str

    @property
    def pump_id(self) -> str:
        return self.pump.rpartition("/")[2]

    async def key(self) -> tuple[ApiCaller, str]:
        made = await self.owner.send_ok("POST", "/keys", {"name": "agent"})
        return self.app.caller(X_Api_Key=made["key"]), made["keyId"]

    async def grant(self, place: str, **terms: Any) -> str:
        made = await self.owner.send_ok("POST", f"{place}/grants", {"commands": ["ON"], **terms})
        return f"{place}/grants/{made['grantId']}"

    async def member(self, role: Role) -> tuple[ApiCaller, str]:
        email = f"{role.lower()}@example.com"
        membership_id = await self.app.create_member(self.account, email, role)
        return await self.app.sign_in(email), membership_id

    async def queue(self, caller: ApiCaller, **more: Any) -> str:
        sent = await caller.send_ok("POST", f"{self.pump}/command", LATER | more)
        assert sent["status"] == "QUEUED"
        return f"{self.pump}/executions/{sent['executionId']}"

    async def plan(self) -> tuple[int, list[Any]]:
        """The revision and the rows that the device is sent."""
        services = self.app.services
        async with services.uow.read() as tx:
            device = await tx.devices.find(DeviceId(self.pump_id))
            assert device is not None
            return device.sched_rev, list(await services.device_plans.plan_rows(tx, device))

    async def ended(self, execution: str) -> tuple[str, Any]:
        found = await self.owner.send_ok("GET", execution)
        return found["status"], (found["result"] or {}).get("code")

    async def comes_online(self) -> list[str]:
        """The topics that the device is sent to, once it has subscribed."""
        link: Any = self.app.program.adapters.link
        if hasattr(link, "activate"):  # that of an instance that may become the leader
            link.activate()
            link = link._link
        await self.owner.send("POST", f"{self.pump}/credentials", {})
        link.listening.add(self.pump_id)
        link.sent.clear()
        self.app.services.dispatch.rescan()
        while await self.app.services.dispatch.send_queued():
            pass
        return [sent.topic for sent in link.sent]


@pytest.fixture(params=DATABASES)
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    settings: dict[str, Any] = {}
    if request.param == "postgres":
        settings = {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), **settings) as program:
            account = await program.create_account("owner@example.com")
            owner = await program.sign_in("owner@example.com")
            project = (await owner.send_ok("POST", "/projects", {"name": "Cellar"}))["projectId"]
            device_id = (await owner.send_ok("POST", "/devices/register", PUMP | {"projectId": project}))["deviceId"]
            await owner.send_ok("POST", f"/devices/{device_id}/credentials", {})
            new = {"name": "Pumps", "projectId": project, "deviceIds": [device_id]}
            group = (await owner.send_ok("POST", "/groups", new))["groupId"]
            yield Site(program, owner, account, project, f"/groups/{group}", f"/devices/{device_id}")


Loss = Callable[[Site], Awaitable[tuple[ApiCaller, Callable[[], Awaitable[Any]]]]]


def on_device(method: str, path: str) -> Loss:
    async def lose(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
        return site.owner, lambda: site.owner.send_ok(method, f"{site.pump}{path}")

    return lose


def on_key(method: str, body: Any = None) -> Loss:
    async def lose(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
        caller, key_id = await site.key()
        await site.grant(site.pump, apiKeyId=key_id)
        return caller, lambda: site.owner.send_ok(method, f"/keys/{key_id}", body)

    return lose


def on_grant(method: str, body: Any = None) -> Loss:
    async def lose(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
        caller, key_id = await site.key()
        grant = await site.grant(site.pump, apiKeyId=key_id)
        return caller, lambda: site.owner.send_ok(method, grant, body)

    return lose


def on_group(method: str, path: str, **body: Any) -> Loss:
    async def lose(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
        caller, key_id = await site.key()
        await site.grant(site.group, apiKeyId=key_id)
        wanted = {"remove": [site.pump_id]} if "remove" in body else None
        return caller, lambda: site.owner.send_ok(method, f"{site.group}{path}", wanted)

    return lose


async def device_moved(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
    caller, key_id = await site.key()
    await site.grant(site.pump, apiKeyId=key_id, appliesVia="project")
    other = (await site.owner.send_ok("POST", "/projects", {"name": "Attic"}))["projectId"]
    return caller, lambda: site.owner.send_ok("PUT", site.pump, {"projectId": other})


async def member_removed(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
    caller, membership_id = await site.member(Role.MEMBER)
    await site.grant(site.pump, membershipId=membership_id)
    return caller, lambda: site.owner.send_ok("DELETE", f"/members/{membership_id}")


async def role_lowered(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
    caller, membership_id = await site.member(Role.ADMIN)
    return caller, lambda: site.owner.send_ok("PATCH", f"/members/{membership_id}", {"role": "Member"})


async def service_session_revoked(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
    new = {"name": "ci", "role": "Admin", "operations": ["commands:write"], "expiresAt": "2027-02-01T00:00:00Z"}
    made = await site.owner.send_ok("POST", "/service-sessions", new)
    caller = site.app.caller(Authorization=f"Bearer {made['token']}")
    return caller, lambda: site.owner.send_ok("DELETE", f"/service-sessions/{made['sessionId']}")


async def approval_asked(site: Site) -> tuple[ApiCaller, Callable[[], Awaitable[Any]]]:
    caller, key_id = await site.key()
    await site.grant(site.pump, apiKeyId=key_id)
    guarded = {"name": "ON", "label": "On", "requiresApproval": True}
    return caller, lambda: site.owner.send_ok("POST", f"{site.pump}/commands", guarded)


LOSSES: dict[str, tuple[Loss, str]] = {
    "device revoked": (on_device("POST", "/revoke"), "DEVICE_REVOKED"),
    "device disabled": (on_device("PATCH", "/toggle"), "DEVICE_DISABLED"),
    "key deleted": (on_key("DELETE"), "KEY_DELETED"),
    "key disabled": (on_key("PATCH", {"enabled": False}), "KEY_DISABLED"),
    "grant deleted": (on_grant("DELETE"), "GRANT_MISSING"),
    "grant narrowed": (on_grant("PATCH", {"commands": ["OFF"]}), "COMMAND_NOT_GRANTED"),
    "grant made read-only": (on_grant("PATCH", {"scope": "READ"}), "SCOPE_TOO_NARROW"),
    "device left the group": (on_group("PATCH", "/devices", remove=True), "GRANT_MISSING"),
    "group deleted": (on_group("DELETE", ""), "GRANT_MISSING"),
    "device moved": (device_moved, "GRANT_MISSING"),
    "member removed": (member_removed, "MEMBER_REMOVED"),
    "role lowered": (role_lowered, "GRANT_MISSING"),
    "service session revoked": (service_session_revoked, "SESSION_ENDED"),
    "approval asked for since": (approval_asked, "COMMAND_NEEDS_APPROVAL"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_what_is_queued_ends_with_the_authority_that_asked(site: Site, loss: str) -> None:
    prepare, code = LOSSES[loss]
    caller, lose = await prepare(site)
    execution = await site.queue(caller)
    await lose()
    assert await site.ended(execution) == ("CANCELLED", code)
    assert await site.comes_online() == []


@pytest.mark.parametrize("loss", LOSSES)
async def test_who_waits_for_the_result_is_told_at_once(site: Site, loss: str) -> None:
    prepare, code = LOSSES[loss]
    caller, lose = await prepare(site)
    waiting = asyncio.create_task(caller.send("POST", f"{site.pump}/command", LATER | {"waitSeconds": 30}))
    async with asyncio.timeout(TIMEOUT_S):
        while not site.app.program.adapters.execution_waiter.watcher_count:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
    await lose()
    async with asyncio.timeout(20):
        answer = (await waiting).json()
    assert (answer["status"], answer["result"]["code"]) == ("CANCELLED", code)


async def test_a_group_command_ends_with_the_key_that_asked(site: Site) -> None:
    caller, key_id = await site.key()
    await site.grant(site.group, apiKeyId=key_id)
    sent = await caller.send_ok("POST", f"{site.group}/command", {"cmd": "ON", "ttlSeconds": 86_400})
    [result] = sent["devices"]
    await site.owner.send_ok("DELETE", f"/keys/{key_id}")
    assert await site.ended(f"{site.pump}/executions/{result['executionId']}") == ("CANCELLED", "KEY_DELETED")


async def test_what_a_schedule_of_a_removed_member_queued_ends(site: Site) -> None:
    member, membership_id = await site.member(Role.MEMBER)
    await site.grant(site.pump, membershipId=membership_id, commands=["ON", "OFF"])
    now_s = site.app.clock.now_ms() // 1000
    command = {"command": "ON"}
    slot = {"slot": 1, "onTs": now_s + 60, "offTs": now_s + 600, "rrule": "FREQ=DAILY", "onCommand": command}
    await member.send_ok("POST", f"{site.pump}/schedules", slot)
    site.app.clock.forward(seconds=61)
    await site.app.services.firing.fire_due(site.app.clock.now_ms())
    [queued] = (await site.owner.send_ok("GET", f"{site.pump}/executions"))["data"]
    await site.owner.send_ok("DELETE", f"/members/{membership_id}")
    assert await site.ended(f"{site.pump}/executions/{queued['executionId']}") == ("CANCELLED", "MEMBER_REMOVED")


@pytest.mark.parametrize("loss", ["removed", "demoted", "grant taken", "approval"])
async def test_the_firmware_does_not_keep_a_slot_whose_member_may_not_run_it(site: Site, loss: str) -> None:
    """An offline device runs its copy of the plan without asking."""
    member, membership_id = await site.member(Role.MEMBER)
    grant = await site.grant(site.pump, membershipId=membership_id, commands=["ON", "OFF"])
    now_s = site.app.clock.now_ms() // 1000
    slot = {"slot": 1, "onTs": now_s + 600, "offTs": now_s + 1_200}
    await member.send_ok("POST", f"{site.pump}/schedules", slot)
    await site.owner.send_ok("POST", f"{site.pump}/schedules", slot | {"slot": 2, "onCommand": {"command": "STATUS"}})
    before = await site.plan()
    assert before[1] == [(1, now_s + 600, now_s + 1_200, True, 1)]
    if loss == "approval":
        guarded = {"name": "ON", "label": "On", "requiresApproval": True}
        await site.owner.send_ok("POST", f"{site.pump}/commands", guarded)
    else:
        method, path, body = {
            "removed": ("DELETE", f"/members/{membership_id}", None),
            "demoted": ("PATCH", f"/members/{membership_id}", {"role": "Viewer"}),
            "grant taken": ("DELETE", grant, None),
        }[loss]
        await site.owner.send_ok(method, path, body)
    after = await site.plan()
    assert after == (before[0] + 1, [(1, now_s + 600, now_s + 1_200, False, 1)])
    slots = {each["slot"]: each["enabled"] for each in await site.owner.send_ok("GET", f"{site.pump}/schedules")}
    assert slots == {1: True, 2: True}, "the slot stays: the service tells when each of its edges is skipped"


async def test_the_firmware_holds_the_slot_again_when_its_member_may_run_it_again(site: Site) -> None:
    member, membership_id = await site.member(Role.MEMBER)
    terms = {"membershipId": membership_id, "commands": ["ON", "OFF"]}
    grant = await site.grant(site.pump, **terms)
    now_s = site.app.clock.now_ms() // 1000
    await member.send_ok("POST", f"{site.pump}/schedules", {"slot": 1, "onTs": now_s + 600, "offTs": now_s + 1_200})
    await site.owner.send_ok("DELETE", grant)
    revision, rows = await site.plan()
    assert rows == [(1, now_s + 600, now_s + 1_200, False, 1)]
    await site.grant(site.pump, **terms)
    assert await site.plan() == (revision + 1, [(1, now_s + 600, now_s + 1_200, True, 1)])


@pytest.mark.parametrize("terms", ["expires", "window"])
async def test_the_firmware_never_holds_a_slot_beyond_the_time_of_its_grant(site: Site, terms: str) -> None:
    member, membership_id = await site.member(Role.MEMBER)
    now_ms = site.app.clock.now_ms()
    now_s, minute = now_ms // 1000, now_ms // 60_000 % 1_440
    limits = {
        "expires": {"expiresAt": to_iso(now_ms + 900_000)},
        "window": {"activeFromMinute": minute, "activeToMinute": minute + 15},
    }
    limits["window"]["activeToMinute"] %= 1_440
    await site.grant(site.pump, membershipId=membership_id, commands=["ON", "OFF"], **limits[terms])
    slot = {"slot": 1, "onTs": now_s + 300, "offTs": now_s + 1_200}
    saved = await member.send_ok("POST", f"{site.pump}/schedules", slot)
    assert not saved["firmwareSynced"]
    assert (await site.plan())[1] == [(1, now_s + 300, now_s + 1_200, False, 1)]
    await member.send_ok("PUT", f"{site.pump}/schedules/1", {"offTs": now_s + 600})
    assert (await site.plan())[1] == [(1, now_s + 300, now_s + 600, True, 1)]


async def test_a_grant_that_expires_or_closes_while_the_command_waits_ends_it(site: Site) -> None:
    caller, key_id = await site.key()
    grant = await site.grant(site.pump, apiKeyId=key_id, expiresAt=to_iso(site.app.clock.now_ms() + 600_000))
    execution = await site.queue(caller)
    site.app.clock.forward(seconds=601)
    assert await site.comes_online() == []
    assert await site.ended(execution) == ("CANCELLED", "GRANT_EXPIRED")
    await site.owner.send_ok("DELETE", grant)


async def test_a_pending_request_ends_with_its_device(site: Site) -> None:
    caller, key_id = await site.key()
    await site.grant(site.pump, apiKeyId=key_id)
    guarded = {"name": "ON", "label": "On", "requiresApproval": True}
    await site.owner.send_ok("POST", f"{site.pump}/commands", guarded)
    asked = await caller.send_ok("POST", f"{site.pump}/command", LATER)
    await site.owner.send_ok("POST", f"{site.pump}/revoke")
    found = await site.owner.send_ok("GET", f"{site.pump}/approvals/{asked['approvalId']}")
    assert found["status"] == "DENIED"
    await site.owner.send_ok("POST", f"{site.pump}/credentials", {})
    late = await site.owner.send("POST", f"{site.pump}/approvals/{asked['approvalId']}/approve")
    assert (late.status_code, late.json()["error"]) == (409, "ALREADY_DECIDED")


async def test_what_nobody_lost_runs_as_before(site: Site) -> None:
    caller, key_id = await site.key()
    await site.grant(site.pump, apiKeyId=key_id)
    other, other_id = await site.key()
    await site.grant(site.pump, apiKeyId=other_id)
    execution, gone = await site.queue(caller), await site.queue(other)
    await site.owner.send_ok("DELETE", f"/keys/{other_id}")
    site.app.clock.forward(seconds=600)
    assert len(await site.comes_online()) == 1
    assert (await site.ended(execution))[0] == "SENT"
    assert (await site.ended(gone))[0] == "CANCELLED"


async def test_a_waiting_command_is_called_off(site: Site) -> None:
    caller, key_id = await site.key()
    await site.grant(site.pump, apiKeyId=key_id)
    execution = await site.queue(caller)
    assert await caller.send_ok("POST", f"{execution}/cancel") == {"ok": True, "cancelled": 1}
    assert await caller.send_ok("POST", f"{execution}/cancel") == {"ok": True, "cancelled": 0}
    assert await site.ended(execution) == ("CANCELLED", "CALLED_OFF")
    assert await site.comes_online() == []
    events = (await site.owner.send_ok("GET", "/events?type=command_result"))["data"]
    assert events[0]["description"] == "Command ON: CANCELLED (CALLED_OFF)"


async def test_what_was_sent_cannot_be_called_off(site: Site) -> None:
    execution = await site.queue(site.owner)
    await site.comes_online()
    refused = await site.owner.send("POST", f"{execution}/cancel")
    assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_SENT")


async def test_a_key_calls_off_its_own_commands_only(site: Site) -> None:
    caller, key_id = await site.key()
    await site.grant(site.pump, apiKeyId=key_id, commands=["*"], scope="FULL")
    other, other_id = await site.key()
    await site.grant(site.pump, apiKeyId=other_id)
    for execution in (await site.queue(site.owner), await site.queue(other)):
        refused = await caller.send("POST", f"{execution}/cancel")
        assert (refused.status_code, refused.json()["error"]) == (403, "COMMAND_NOT_GRANTED")
        assert (await site.ended(execution))[0] == "QUEUED"
    assert (await caller.send("POST", f"{site.pump}/executions/cancel")).json()["error"] == "SESSION_REQUIRED"


async def test_all_of_a_device_are_called_off_or_none(site: Site) -> None:
    member, membership_id = await site.member(Role.MEMBER)
    await site.grant(site.pump, membershipId=membership_id)
    first, second = await site.queue(member), await site.queue(site.owner, cmd="OFF")
    refused = await member.send("POST", f"{site.pump}/executions/cancel")
    assert (refused.status_code, refused.json()["error"]) == (403, "COMMAND_NOT_GRANTED")
    assert {(await site.ended(each))[0] for each in (first, second)} == {"QUEUED"}
    assert (await site.owner.send_ok("POST", f"{site.pump}/executions/cancel"))["cancelled"] == 2
    assert {(await site.ended(each))[0] for each in (first, second)} == {"CANCELLED"}
