"""A key with an end, with networks that it is kept to, and with a new secret: what ended or is elsewhere does nothing, by REST, MCP,
the feed or a webhook; what was queued does not outlive it; and no clock that was wrong ends it for good."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.kernel.clock import to_iso
from domain.kernel.ids import KeyId
from security.authority_table import HALF_OF_PROOF_S
from support.empty_database import empty_postgres
from support.in_process_app import PASSWORD, RECEIVER_URL, ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

EMAIL = "ada@example.com"
DEVICE = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
HOME, ELSEWHERE = "192.168.1.7", "198.51.100.9"


class Site:
    """An Owner with an offline pump that a key may switch."""

    def __init__(self, app: InProcessApp) -> None:
        self.app = app
        self.pump = self.key = self.secret = ""

    async def prepare(self) -> None:
        await self.app.create_account(EMAIL)
        self.owner = await self.app.sign_in(EMAIL)
        device_id = (await self.owner.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
        self.pump = f"/devices/{device_id}"
        await self.owner.send_ok("POST", f"{self.pump}/credentials", {})
        await self.make_key()

    async def make_key(self, **limits: Any) -> None:
        made = await self.owner.send_ok("POST", "/keys", {"name": "Robot", **limits})
        self.key, self.secret = f"/keys/{made['keyId']}", made["key"]
        await self.owner.send_ok("POST", f"{self.pump}/grants", {"commands": ["*"], "apiKeyId": made["keyId"]})

    def in_seconds(self, seconds: int) -> str:
        return to_iso(self.app.clock.now_ms() + seconds * 1000)

    def robot(self, secret: str = "", **headers: str) -> ApiCaller:
        return self.app.caller(X_Api_Key=secret or self.secret, **headers)

    async def answer(self, secret: str = "", **headers: str) -> tuple[int, str]:
        answer = await self.robot(secret, **headers).send("GET", "/devices")
        return answer.status_code, "" if answer.is_success else answer.json()["error"]

    async def listed(self) -> dict[str, Any]:
        found = await self.owner.send_ok("GET", "/keys")
        return next(each for each in found if self.key.endswith(each["keyId"]))

    async def refused(self) -> list[tuple[str, str]]:
        """The code and the address of each use that was refused."""
        found = (await self.owner.send_ok("GET", "/events?type=access_refused"))["data"]
        return [(each["description"].partition("(")[2].partition(")")[0], each["address"]) for each in found]

    async def agent(self, **headers: str) -> httpx.Response:
        sent = {"X-Api-Key": self.secret, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
        return await self.app.http.request("POST", "/mcp", headers=sent, content=content)


@pytest.fixture(params=DATABASES)
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    settings: dict[str, Any] = {"trusted_proxies": "127.0.0.1/32"}
    if request.param == "postgres":
        settings |= {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), **settings) as app:
            made = Site(app)
            await made.prepare()
            yield made


async def test_a_key_that_has_ended_is_refused_and_lives_again_with_a_later_end(site: Site) -> None:
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": site.in_seconds(60)})
    assert await site.answer() == (200, "")
    assert (await site.listed())["expiresAt"] == site.in_seconds(60)
    site.app.clock.forward(seconds=60)
    assert await site.answer() == (401, "KEY_EXPIRED")
    assert ((refused := await site.agent()).status_code, refused.json()["error"]) == (401, "KEY_EXPIRED")
    assert {code for code, _ in await site.refused()} == {"KEY_EXPIRED"}
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": None})
    assert await site.answer() == (200, "")
    assert (await site.listed())["expiresAt"] is None


async def test_a_clock_that_was_ahead_has_ended_nothing(site: Site) -> None:
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": site.in_seconds(600)})
    site.app.clock.step(minutes=1_440)
    assert await site.answer() == (401, "KEY_EXPIRED")
    site.app.clock.step(minutes=-1_440)
    assert await site.answer() == (200, "")
    assert len(await site.owner.send_ok("GET", f"{site.key}/grants")) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"expiresAt": "2001-01-01T00:00:00Z"}, "expiresAt"),
        ({"expiresAt": "tomorrow"}, "expiresAt"),
        ({"allowedNetworks": ["10.0.0.0/8", "10.0.0.1/8"]}, "allowedNetworks.1"),
        ({"allowedNetworks": ["my house"]}, "allowedNetworks.0"),
        ({"allowedNetworks": ["fe80::1%eth0"]}, "allowedNetworks.0"),
        ({"allowedNetworks": ["10.0.0.0/8"] * 21}, "allowedNetworks"),
    ],
)
async def test_bad_limits_are_named(site: Site, body: dict[str, Any], field: str) -> None:
    before = await site.owner.send_ok("GET", "/keys")
    for method, path, content in (("POST", "/keys", {"name": "Other"} | body), ("PATCH", site.key, body)):
        answer = await site.owner.send(method, path, content)
        assert answer.status_code == 400, answer.text
        assert field in answer.text
    assert await site.owner.send_ok("GET", "/keys") == before


async def test_what_an_ended_key_has_queued_is_not_sent(site: Site) -> None:
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": site.in_seconds(600)})
    sent = await site.robot().send_ok("POST", f"{site.pump}/command", {"cmd": "ON", "ttlSeconds": 86_400})
    site.app.clock.forward(seconds=601)
    assert await _comes_online(site) == []
    execution = await site.owner.send_ok("GET", f"{site.pump}/executions/{sent['executionId']}")
    assert (execution["status"], execution["result"]["code"]) == ("CANCELLED", "KEY_EXPIRED")


async def test_a_request_for_approval_ends_with_the_key(site: Site) -> None:
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": site.in_seconds(600)})
    await site.owner.send_ok("POST", f"{site.pump}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True})
    asked = await site.robot().send_ok("POST", f"{site.pump}/command", {"cmd": "OPEN"})
    path = f"{site.pump}/approvals/{asked['approvalId']}"
    assert (await site.owner.send_ok("GET", path))["expiresAt"] == site.in_seconds(600)
    site.app.clock.forward(seconds=601)
    answer = await site.owner.send("POST", f"{path}/approve", {})
    assert not answer.is_success
    assert (await site.owner.send_ok("GET", f"{site.pump}/executions"))["data"] == []


async def test_webhooks_of_an_ended_key_are_told_nothing(site: Site) -> None:
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": site.in_seconds(60)})
    key_id = KeyId(site.key.rpartition("/")[2])
    await site.owner.send_ok("POST", "/webhooks", {"keyId": key_id, "url": RECEIVER_URL, "types": ["command_result"]})
    site.app.clock.forward(seconds=61)
    assert not await _is_told_a_result(site)
    await site.owner.send_ok("PATCH", site.key, {"expiresAt": None})
    assert await _is_told_a_result(site)


@pytest.mark.parametrize(
    ("networks", "address", "is_allowed"),
    [
        (["192.168.1.0/24"], HOME, True),
        (["192.168.1.0/24"], ELSEWHERE, False),
        (["192.168.1.7"], HOME, True),
        (["2001:db8::/32"], "2001:db8::5", True),
        (["2001:db8::/32"], HOME, False),
        (["192.168.1.0/24"], f"::ffff:{HOME}", True),
        (["::ffff:192.168.1.0/120"], HOME, True),
        (["10.0.0.0/8", "192.168.1.0/24"], HOME, True),
        ([], ELSEWHERE, True),
        (None, ELSEWHERE, True),
    ],
)
async def test_a_key_is_kept_to_its_networks(site: Site, networks: list[str] | None, address: str, is_allowed: bool) -> None:
    await site.make_key(allowedNetworks=networks)
    expected = (200, "") if is_allowed else (403, "ADDRESS_NOT_ALLOWED")
    assert await site.answer(X_Forwarded_For=address) == expected
    answer = await site.agent(X_Forwarded_For=address)
    assert answer.status_code == expected[0], answer.text
    assert await site.refused() == ([] if is_allowed else [("ADDRESS_NOT_ALLOWED", address)] * 2)


async def test_an_address_that_a_client_claims_opens_nothing(site: Site) -> None:
    await site.make_key(allowedNetworks=["192.168.1.0/24"])
    assert await site.answer(X_Forwarded_For=f"{HOME}, {ELSEWHERE}") == (403, "ADDRESS_NOT_ALLOWED")
    assert await site.answer(Forwarded=f"for={HOME}") == (403, "ADDRESS_NOT_ALLOWED")
    assert await site.answer(X_Real_IP=HOME) == (403, "ADDRESS_NOT_ALLOWED")
    assert await site.answer(X_Forwarded_For="homeassistant") == (403, "ADDRESS_NOT_ALLOWED")


async def test_a_new_secret_works_beside_the_old_one_until_the_overlap_ends(site: Site) -> None:
    old = site.secret
    before = await site.listed()
    grants = await site.owner.send_ok("GET", f"{site.key}/grants")
    made = await site.owner.send_ok("POST", f"{site.key}/rotate", {"overlapSeconds": 600})
    assert made["key"].startswith(made["prefix"])
    assert (made["previousPrefix"], made["previousExpiresAt"]) == (before["prefix"], site.in_seconds(600))
    assert await site.answer(old) == await site.answer(made["key"]) == (200, "")
    await site.answer(old)
    await site.app.services.callers.flush_last_used()
    listed = await site.listed()
    assert listed["lastUsedPrefix"] == before["prefix"]
    assert {**listed, "lastUsedAt": None, "lastUsedPrefix": None} == {
        **before,
        "prefix": made["prefix"],
        "previousPrefix": before["prefix"],
        "previousExpiresAt": site.in_seconds(600),
    }
    assert await site.owner.send_ok("GET", f"{site.key}/grants") == grants
    site.app.clock.forward(seconds=600)
    assert await site.answer(old) == (401, "SECRET_REPLACED")
    assert await site.answer(made["key"]) == (200, "")


async def test_a_second_rotation_ends_the_oldest_secret_at_once(site: Site) -> None:
    secrets = [site.secret]
    for _ in range(2):
        secrets.append((await site.owner.send_ok("POST", f"{site.key}/rotate", {}))["key"])
    assert [await site.answer(each) for each in secrets] == [(401, "UNAUTHENTICATED"), (200, ""), (200, "")]
    now = (await site.owner.send_ok("POST", f"{site.key}/rotate", {"overlapSeconds": 0}))["key"]
    assert [(await site.answer(each))[0] for each in (*secrets, now)] == [401, 401, 401, 200]
    assert (await site.listed())["previousExpiresAt"] is None


@pytest.mark.parametrize("end", ["disabled", "deleted", "expired"])
async def test_both_secrets_end_with_the_key(site: Site, end: str) -> None:
    new = (await site.owner.send_ok("POST", f"{site.key}/rotate", {"overlapSeconds": 600}))["key"]
    if end == "deleted":
        await site.owner.send_ok("DELETE", site.key)
    else:
        change = {"enabled": False} if end == "disabled" else {"expiresAt": site.in_seconds(60)}
        await site.owner.send_ok("PATCH", site.key, change)
        site.app.clock.forward(seconds=60)
    assert [(await site.answer(each))[0] for each in (site.secret, new)] == [401, 401]


async def test_a_rotation_that_is_repeated_gives_the_same_secret(site: Site) -> None:
    once = {"Idempotency-Key": "rotate-once"}
    first, again = [await site.owner.send("POST", f"{site.key}/rotate", {}, headers=once) for _ in range(2)]
    assert first.json() == again.json()
    assert await site.answer(first.json()["key"]) == await site.answer(site.secret) == (200, "")


@pytest.mark.parametrize("seconds", [-1, 604_801, "60", None])
async def test_an_overlap_has_bounds(site: Site, seconds: Any) -> None:
    answer = await site.owner.send("POST", f"{site.key}/rotate", {"overlapSeconds": seconds})
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "overlapSeconds")
    assert await site.answer() == (200, "")


@pytest.mark.parametrize(
    ("change", "is_wider"),
    [
        ({"expiresAt": 7_200}, True),
        ({"expiresAt": None}, True),
        ({"expiresAt": 1_800}, False),
        ({"allowedNetworks": ["10.0.0.0/8", "192.0.2.1"]}, True),
        ({"allowedNetworks": None}, True),
        ({"allowedNetworks": ["10.1.0.0/16"]}, False),
    ],
)
async def test_a_stolen_session_gives_a_key_no_more_than_it_had(site: Site, change: dict[str, Any], is_wider: bool) -> None:
    limits = {"expiresAt": site.in_seconds(3_600), "allowedNetworks": ["10.0.0.0/8"]}
    await site.make_key(**limits)
    site.app.clock.forward(seconds=2 * HALF_OF_PROOF_S)
    change = {name: site.in_seconds(value) if isinstance(value, int) else value for name, value in change.items()}
    before = await site.listed()
    answer = await site.owner.send("PATCH", site.key, change)
    if not is_wider:
        assert answer.is_success
        return
    assert (answer.status_code, answer.json()["error"]) == (403, "STEP_UP_REQUIRED")
    assert await site.listed() == before
    await site.owner.send_ok("POST", "/auth/step-up", {"password": PASSWORD})
    await site.owner.send_ok("PATCH", site.key, change)
    events = (await site.owner.send_ok("GET", "/events?type=key_enabled"))["data"]
    assert len(events) == 1


async def _comes_online(site: Site) -> list[str]:
    """The topics that the pump is sent to, once it has subscribed."""
    link: Any = site.app.program.adapters.link
    if hasattr(link, "activate"):
        link.activate()
        link = link._link
    link.listening.add(site.pump.rpartition("/")[2])
    link.sent.clear()
    site.app.services.dispatch.rescan()
    while await site.app.services.dispatch.send_queued():
        pass
    return [sent.topic for sent in link.sent]


async def _is_told_a_result(site: Site) -> bool:
    """Whether a delivery is due after one more command of the pump was called off."""
    sent = await site.owner.send_ok("POST", f"{site.pump}/command", {"cmd": "ON", "ttlSeconds": 600})
    await site.owner.send_ok("POST", f"{site.pump}/executions/{sent['executionId']}/cancel")
    async with site.app.services.uow.read() as tx:
        return await tx.deliveries.next_due_ms() is not None
