"""An approval is a conversation: a program asks with a reason, waits, and is told the decision with a note. And it is one between
two: whoever stands behind the asking key does not decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from adapters.storage.sql.tables import deliveries
from domain.commands.model import ExecutionStatus
from domain.events.feed_model import FeedFilter
from domain.events.model import PUBLIC_TYPES
from domain.kernel.caller import Role
from support.http import PASSWORD
from support.in_process_app import RECEIVER_URL, ApiCaller, InProcessApp, in_process_app
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUARDED = {"name": "OPEN", "label": "Open", "requiresApproval": True}


@dataclass
class Site:
    app: InProcessApp
    owner: ApiCaller
    ada: ApiCaller
    """An Admin."""
    eve: ApiCaller
    """Another one."""

    async def device(self, *commands: dict[str, Any], **more: Any) -> str:
        new = {"name": "Gate", "boardType": "ESP32", "appType": "GATE", **more}
        path = f"/devices/{(await self.owner.send_ok('POST', '/devices/register', new))['deviceId']}"
        await self.owner.send_ok("POST", f"{path}/credentials", {})
        for command in commands:
            await self.owner.send_ok("POST", f"{path}/commands", command)
        return path

    async def key(self, by: ApiCaller, device: str, granted_by: ApiCaller, **terms: Any) -> tuple[ApiCaller, str, str]:
        """The key, its id and the path of its grant."""
        made = await by.send_ok("POST", "/keys", {"name": "Agent"})
        body = {"commands": ["OPEN"], "apiKeyId": made["keyId"], **terms}
        grant = await granted_by.send_ok("POST", f"{device}/grants", body)
        return self.app.caller(X_Api_Key=made["key"]), made["keyId"], f"{device}/grants/{grant['grantId']}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with in_process_app(Path(tmp_path_factory.mktemp("site"))) as app:
        account = await app.create_account("owner@example.com")
        for email in ("ada@example.com", "eve@example.com"):
            await app.create_member(account, email, Role.ADMIN)
        people = [await app.sign_in(f"{name}@example.com") for name in ("owner", "ada", "eve")]
        yield Site(app, *people)


async def ask(caller: ApiCaller, device: str, **more: Any) -> str:
    """The path of the approval."""
    answer = await caller.send("POST", f"{device}/command", {"cmd": "OPEN", **more})
    assert answer.status_code == 202, answer.text
    return f"{device}/approvals/{answer.json()['approvalId']}"


async def code(caller: ApiCaller, method: str, path: str, body: Any = None) -> str:
    answer = await caller.send(method, path, body)
    return "ok" if answer.is_success else str(answer.json()["error"])


@pytest.mark.parametrize("part", ["made the key", "granted it", "changed its grant"])
async def test_an_admin_behind_the_key_does_not_approve_its_request(site: Site, part: str) -> None:
    device = await site.device(GUARDED)
    maker = site.ada if part == "made the key" else site.owner
    granter = site.ada if part == "granted it" else site.owner
    key, _, grant = await site.key(maker, device, granter)
    if part == "changed its grant":
        await site.ada.send_ok("PATCH", grant, {"commands": ["OPEN", "OFF"]})
    approval = await ask(key, device)
    assert await code(site.ada, "POST", f"{approval}/approve") == "OWN_REQUEST"
    assert (await site.owner.send_ok("GET", approval))["status"] == "PENDING"
    assert await code(site.eve, "POST", f"{approval}/approve") == "ok"
    assert await code(site.ada, "POST", f"{await ask(key, device)}/deny") == "ok"  # it takes its own request back


async def test_who_asked_withdraws_and_nobody_else(site: Site) -> None:
    device = await site.device(GUARDED)
    (key, *_), (other, *_) = [await site.key(site.owner, device, site.owner) for _ in range(2)]
    approval = await ask(key, device)
    assert await code(other, "POST", f"{approval}/withdraw") == "NOT_FOUND"
    for person in (site.owner, site.ada):
        assert await code(person, "POST", f"{approval}/withdraw") == "NOT_OWN_REQUEST"
    waiting = asyncio.create_task(key.send("POST", f"{device}/command", {"cmd": "OPEN", "waitSeconds": 20}))
    while len(pending := await site.owner.send_ok("GET", f"{device}/approvals?status=PENDING")) < 2:
        await asyncio.sleep(0.02)
    for each in pending:
        await key.send_ok("POST", f"{device}/approvals/{each['approvalId']}/withdraw", {"note": "not needed any more"})
    async with asyncio.timeout(TIMEOUT_S):
        told = (await waiting).json()
    assert (told["status"], told["note"]) == ("WITHDRAWN", "not needed any more")
    assert await code(site.owner, "POST", f"{approval}/approve") == "ALREADY_DECIDED"
    assert await code(key, "POST", f"{approval}/withdraw") == "ALREADY_DECIDED"
    [decided, _] = (await site.owner.send_ok("GET", f"/events?type=approval_decided&deviceId={device.rsplit('/', 1)[1]}"))["data"]
    assert "WITHDRAWN (not needed any more)" in decided["description"]
    own = await ask(site.ada, device)
    assert await code(site.eve, "POST", f"{own}/withdraw") == "NOT_OWN_REQUEST"
    assert await code(site.ada, "POST", f"{own}/withdraw") == "ok"


async def test_an_owner_approves_what_a_key_of_its_own_asks(site: Site) -> None:
    device = await site.device(GUARDED)
    key, *_ = await site.key(site.owner, device, site.owner)
    assert await code(site.owner, "POST", f"{await ask(key, device)}/approve") == "ok"


async def test_while_a_request_waits_no_admin_lifts_its_approval(site: Site) -> None:
    device_type = await site.owner.send_ok("POST", "/device-types", {"name": "Gates", "commands": [GUARDED | {"name": "CLOSE"}]})
    device = await site.device(GUARDED, deviceTypeId=device_type["deviceTypeId"])
    key, *_ = await site.key(site.owner, device, site.owner, commands=["OPEN", "CLOSE"])
    approvals = [await ask(key, device), await ask(key, device, cmd="CLOSE")]
    [own] = [one for one in await site.ada.send_ok("GET", f"{device}/commands") if one["name"] == "OPEN"]
    plain = {"name": "CLOSE", "label": "Close"}
    lifts: list[tuple[str, str, Any]] = [
        ("PATCH", f"{device}/commands/{own['commandId']}", {"requiresApproval": False}),
        ("PATCH", f"{device}/commands/{own['commandId']}", {"name": "OPEN_WIDE"}),
        ("DELETE", f"{device}/commands/{own['commandId']}", None),
        ("POST", f"{device}/commands", plain),  # an override of the type's command
        ("PATCH", f"/device-types/{device_type['deviceTypeId']}", {"commands": [plain]}),
        ("PUT", device, {"deviceTypeId": None}),
    ]
    assert {await code(site.ada, *lift) for lift in lifts} == {"REQUEST_PENDING"}
    assert await code(site.ada, "PATCH", f"{device}/commands/{own['commandId']}", {"label": "Open it"}) == "ok"
    for approval in approvals:
        await site.ada.send_ok("POST", f"{approval}/deny")
    assert await code(site.ada, *lifts[0]) == "ok"
    await ask(key, device, cmd="CLOSE")
    assert await code(site.owner, *lifts[4]) == "ok"


async def test_while_a_request_waits_no_admin_gives_the_key_more(site: Site) -> None:
    device, other = await site.device(GUARDED), await site.device(GUARDED)
    key, key_id, grant = await site.key(site.owner, device, site.owner, scope="WRITE", rateLimitPerMinute=5)
    approval = await ask(key, device)
    wider: list[Any] = [{"commands": ["*"]}, {"scope": "FULL"}, {"rateLimitPerMinute": None}, {"rateLimitPerMinute": 6}]
    narrower: list[Any] = [{"rateLimitPerMinute": 4}, {"activeDays": [1]}, {"expiresAt": "2999-01-01T00:00:00Z"}]
    assert {await code(site.ada, "PATCH", grant, change) for change in wider} == {"REQUEST_PENDING"}
    assert {await code(site.ada, "PATCH", grant, change) for change in narrower} == {"ok"}
    assert await code(site.ada, "PATCH", grant, {"activeDays": [1, 2]}) == "REQUEST_PENDING"
    assert await code(site.ada, "PATCH", grant, {"expiresAt": None}) == "REQUEST_PENDING"
    more = {"commands": ["ON"], "apiKeyId": key_id}
    assert await code(site.ada, "POST", f"{device}/grants", more) == "REQUEST_PENDING"
    assert await code(site.ada, "POST", f"{device}/grants", more | {"appliesVia": "project"}) == "REQUEST_PENDING"
    assert await code(site.ada, "POST", f"{other}/grants", more) == "ok"  # nothing waits there
    assert await code(site.owner, "PATCH", grant, wider[0]) == "ok"
    await site.ada.send_ok("POST", f"{approval}/deny")
    assert await code(site.ada, "POST", f"{device}/grants", more) == "ok"


async def test_what_has_become_impossible_while_it_waited_is_refused_with_the_reason(site: Site) -> None:
    device = await site.device(GUARDED)
    key, *_ = await site.key(site.owner, device, site.owner)
    approval = await ask(key, device)
    await site.owner.send_ok("PATCH", f"{device}/toggle")
    assert await code(site.owner, "POST", f"{approval}/approve") == "DEVICE_DISABLED"
    await site.owner.send_ok("PATCH", f"{device}/toggle")
    [own] = [one for one in await site.owner.send_ok("GET", f"{device}/commands") if one["name"] == "OPEN"]
    await site.owner.send_ok("DELETE", f"{device}/commands/{own['commandId']}")
    assert await code(site.owner, "POST", f"{approval}/approve") == "UNKNOWN_COMMAND"
    await site.owner.send_ok("POST", f"{device}/commands", GUARDED)
    await site.owner.send_ok("POST", f"{device}/revoke")
    assert await code(site.owner, "POST", f"{approval}/approve") == "ALREADY_DECIDED"
    assert (await site.owner.send_ok("GET", approval))["status"] == "DENIED"  # what a revoked device was to do is over
    refused = (await site.owner.send_ok("GET", f"/events?type=approval_refused&deviceId={device.rpartition('/')[2]}"))["data"]
    assert sorted("takes no commands" in one["description"] for one in refused) == [False, True]


async def test_a_program_gives_a_reason_waits_and_is_told_why_not(site: Site) -> None:
    device = await site.device(GUARDED)
    key, *_ = await site.key(site.owner, device, site.owner)
    body = {"cmd": "OPEN", "reason": "  A parcel is at the gate ", "waitSeconds": 20}
    asking = asyncio.create_task(key.send("POST", f"{device}/command", body))
    waiting = await pending(site, device)
    assert waiting["reason"] == "A parcel is at the gate"
    path = f"{device}/approvals/{waiting['approvalId']}"
    await site.eve.send_ok("POST", f"{path}/deny", {"note": "Not at night"})
    answer = await asking
    assert answer.status_code == 202
    told = {"approvalId": waiting["approvalId"], "status": "DENIED", "note": "Not at night"}
    assert answer.json() == {"ok": True, "approvalRequired": True} | told
    assert {name: (await key.send_ok("GET", path))[name] for name in told} == told


async def test_a_program_waits_for_the_decision_and_then_for_the_device(site: Site) -> None:
    device = await site.device(GUARDED)
    key, *_ = await site.key(site.owner, device, site.owner)
    body = {"cmd": "OPEN", "reason": "A parcel", "waitSeconds": 20}
    asking = asyncio.create_task(key.send("POST", f"{device}/command", body))
    waiting = await pending(site, device)
    made = await site.eve.send_ok("POST", f"{device}/approvals/{waiting['approvalId']}/approve", {"note": "Fine"})
    waiter = site.app.program.adapters.execution_waiter
    async with asyncio.timeout(TIMEOUT_S):
        while not waiter.has_waiters(made["executionId"]):
            await asyncio.sleep(0.001)
    async with site.app.services.uow.read() as tx:
        execution = await tx.executions.find(made["executionId"])
    waiter.notify(replace(execution, status=ExecutionStatus.DONE, result={"code": "OK"}))
    answer = await asking
    assert (answer.status_code, answer.json()["executionId"], answer.json()["status"]) == (200, made["executionId"], "DONE")
    stored = await key.send_ok("GET", f"{device}/executions/{made['executionId']}")
    assert stored["approvalId"] == waiting["approvalId"]
    sent = (await site.owner.send_ok("GET", "/events?type=command_sent&limit=1"))["data"][0]
    assert sent["description"].endswith(": A parcel")


async def test_a_program_that_waits_is_told_at_once_that_its_key_or_member_is_gone(site: Site) -> None:
    device = await site.device(GUARDED)
    key, key_id, _ = await site.key(site.owner, device, site.owner)
    added = {"email": "leaves@example.com", "name": "Leaves", "role": "Member", "password": PASSWORD}
    membership_id = (await site.owner.send_ok("POST", "/members", added))["membershipId"]
    await site.owner.send_ok("POST", f"{device}/grants", {"commands": ["OPEN"], "membershipId": membership_id})
    member = await site.app.sign_in("leaves@example.com")
    for caller, gone in ((key, f"/keys/{key_id}"), (member, f"/members/{membership_id}")):
        asking = asyncio.create_task(caller.send("POST", f"{device}/command", {"cmd": "OPEN", "waitSeconds": 30}))
        waiting = await pending(site, device)
        async with asyncio.timeout(TIMEOUT_S):
            while not site.app.program.adapters.approval_waiter.has_waiters(waiting["approvalId"]):
                await asyncio.sleep(0.001)
        await site.owner.send_ok("DELETE", gone)
        answer = await asyncio.wait_for(asking, 20)  # and not after the 30 seconds
        assert (answer.status_code, answer.json()["status"]) == (202, "DENIED")


async def pending(site: Site, device: str) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await site.owner.send_ok("GET", f"{device}/approvals?status=PENDING")
            if found:
                return found[0]
            await asyncio.sleep(0.005)


async def test_a_key_asks_for_itself_whether_it_may(site: Site) -> None:
    device = await site.device(GUARDED)
    key, key_id, _ = await site.key(site.owner, device, site.owner)
    may = await key.send_ok("GET", f"{device}/access?cmd=OPEN")
    assert (may["allowed"], may["waitsForApproval"], may["deviceTakesCommands"]) == (True, True, True)
    assert await key.send_ok("GET", f"{device}/access?cmd=OPEN&apiKeyId={key_id}") == may
    denied = await key.send_ok("GET", f"{device}/access?cmd=ON")
    assert (denied["allowed"], denied["code"]) == (False, "COMMAND_NOT_GRANTED")
    _, other_id, _ = await site.key(site.owner, device, site.owner)
    assert await code(key, "GET", f"{device}/access?cmd=ON&apiKeyId={other_id}") == "SESSION_REQUIRED"
    await site.owner.send_ok("PATCH", f"{device}/toggle")
    assert not (await key.send_ok("GET", f"{device}/access?cmd=OPEN"))["deviceTakesCommands"]


async def test_webhooks_get_the_events_they_choose_and_the_feed_gets_all(site: Site) -> None:
    device = await site.device(GUARDED)
    key, key_id, _ = await site.key(site.owner, device, site.owner)
    plain = await site.owner.send_ok("POST", "/webhooks", {"keyId": key_id, "url": RECEIVER_URL})
    chosen = {"keyId": key_id, "url": RECEIVER_URL, "types": ["approval_decided", "approval_requested"]}
    choosy = await site.owner.send_ok("POST", "/webhooks", chosen)
    async with site.app.services.uow.read() as tx:
        [account_id] = await tx.accounts.list_ids()
    with site.app.program.adapters.feed.subscribe(FeedFilter(account_id)) as subscription:
        approval = await ask(key, device, reason="A parcel")
        await site.eve.send_ok("POST", f"{approval}/deny", {"note": "No"})
        frames = subscription.drain()
    assert [frame.kind for frame in frames] == ["approval_requested", "approval_decided"]
    assert b'"reason":"A parcel"' in frames[0].unclosed_json
    assert b'"note":"No"' in frames[1].unclosed_json
    async with site.app.services.uow.read() as tx:
        rows = await tx.session.read(select(deliveries.c.webhook_id, deliveries.c.event_type).order_by(deliveries.c.no))
    ours = [tuple(row) for row in rows if row[0] in (plain["webhookId"], choosy["webhookId"])]
    assert ours == [(choosy["webhookId"], "approval_requested"), (choosy["webhookId"], "approval_decided")]
    listed = {one["webhookId"]: one["types"] for one in await site.owner.send_ok("GET", "/webhooks")}
    assert listed[choosy["webhookId"]] == ["approval_decided", "approval_requested"]
    assert "relay_changed" in listed[plain["webhookId"]]
    hook = f"/webhooks/{plain['webhookId']}"
    assert await code(site.owner, "PATCH", hook, {"types": ["login"]}) == "VALIDATION_ERROR"
    assert await code(site.owner, "PATCH", hook, {"types": []}) == "VALIDATION_ERROR"
    await site.owner.send_ok("PATCH", hook, {"types": sorted(PUBLIC_TYPES)})
