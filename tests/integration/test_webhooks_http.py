"""Webhooks and the log over HTTP: the contract's shapes, who may do what, and what is never shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from quart import Blueprint

from adapters.http.api.events import events_blueprint
from adapters.http.api.webhooks import webhooks_blueprint
from domain.audit.export import AuditExportGenerator
from domain.kernel.caller import Role
from domain.kernel.domain_event import DomainEvent
from domain.kernel.ids import AccountId, DeviceId
from support.http import HttpClient, HttpWorld, serving
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.sealing import KEYS
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver
from support.webhook_world import WebhookWorld


class Site:
    """The HTTP world, with the webhooks of a webhook world over the same storage."""

    def __init__(self, http: HttpClient, hooks: WebhookWorld) -> None:
        self.http = http
        self.hooks = hooks

    @property
    def account_id(self) -> AccountId:
        assert self.http.account is not None
        return self.http.account.account.account_id

    async def key_id(self) -> str:
        made = await self.http.post("/keys", {"name": "Robot"})
        key_id: str = made.json()["keyId"]
        return key_id

    async def webhook(self, url: str = "http://127.0.0.1:9/hook") -> dict[str, Any]:
        made = await self.http.post("/webhooks", {"keyId": await self.key_id(), "url": url})
        assert made.status_code == 201, made.text
        body: dict[str, Any] = made.json()
        return body

    async def record(self, kind: str, device_id: str | None = None, **data: Any) -> None:
        device = None if device_id is None else DeviceId(device_id)
        async with self.hooks.uow.write() as tx:
            tx.emit(DomainEvent(self.account_id, kind, f"It {kind}", self.hooks.clock.now_ms(), "device", device, data))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    hooks = WebhookWorld()

    def blueprints(world: HttpWorld) -> list[Blueprint]:
        return [
            webhooks_blueprint(hooks.webhooks, hooks.log, hooks.recoveries),
            events_blueprint(hooks.events, AuditExportGenerator(uow=hooks.uow, clock=hooks.clock, keys=KEYS)),
        ]

    assert isinstance(hooks.uow, MemoryUnitOfWork)
    world = HttpWorld(blueprints=blueprints, uow=hooks.uow, clock=hooks.clock)  # a fresh sign-in is a proof for both
    async with serving(world) as http, hooks.delivering():
        await http.sign_in()
        yield Site(http, hooks)


async def test_a_secret_is_shown_when_it_is_made_and_never_again(site: Site) -> None:
    made = await site.webhook()
    shown = (await site.http.get(f"/webhooks/{made['webhookId']}")).json()
    assert set(made) == {*shown, "secret"}
    assert made["webhookId"].startswith("whk_")
    assert made["secret"].startswith("whsec_")
    listed = await site.http.get("/webhooks")
    [shown] = listed.json()
    assert set(shown) == {
        "webhookId",
        "keyId",
        "url",
        "types",
        "format",
        "secretPrefix",
        "enabled",
        "disabledReason",
        "createdAt",
        "updatedAt",
    }
    assert made["secret"] not in listed.text
    assert made["secret"].startswith(shown["secretPrefix"])
    rotated = (await site.http.post(f"/webhooks/{made['webhookId']}/rotate-secret")).json()
    assert set(rotated) == set(made)
    assert rotated["secret"] != made["secret"]


async def test_a_webhook_is_changed_and_deleted(site: Site) -> None:
    path = f"/webhooks/{(await site.webhook())['webhookId']}"
    assert (await site.http.patch(path, {"enabled": False})).json()["enabled"] is False
    assert (await site.http.patch(path, {"url": "http://127.0.0.1:9/other"})).json()["ok"] is True
    shown = (await site.http.get(path)).json()
    assert (shown["enabled"], shown["url"]) == (False, "http://127.0.0.1:9/other")
    assert (await site.http.delete(path)).json() == {"ok": True}
    assert (await site.http.get("/webhooks")).json() == []
    assert (await site.http.delete(path)).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"keyId": "key_nobody", "url": "https://example.com"}, "keyId"),
        ({"url": "https://example.com"}, "keyId"),
        ({"keyId": "OWN", "url": "https://user:pw@example.com"}, "url"),
        ({"keyId": "OWN", "url": "gopher://example.com"}, "url"),
        ({"keyId": "OWN", "url": "https://example.com", "events": ["telemetry"]}, "events"),
    ],
)
async def test_a_wrong_field_is_named(site: Site, body: dict[str, Any], field: str) -> None:
    if body.get("keyId") == "OWN":
        body = body | {"keyId": await site.key_id()}
    answer = await site.http.post("/webhooks", body)
    assert answer.status_code == 400
    assert answer.json()["details"][0]["field"] == field


@pytest.mark.parametrize(
    ("role", "shown"),
    [(Role.ADMIN, "http://127.0.0.1:9/hook?token=t"), (Role.MEMBER, "http://127.0.0.1:9"), (Role.VIEWER, "http://127.0.0.1:9")],
)
async def test_who_may_not_make_webhooks_sees_scheme_and_host_of_the_url_only(site: Site, role: Role, shown: str) -> None:
    await site.webhook("http://127.0.0.1:9/hook?token=t")
    await site.http.sign_in("someone@example.com", role)
    assert [hook["url"] for hook in (await site.http.get("/webhooks")).json()] == [shown]


async def test_members_may_look_but_only_admins_change(site: Site) -> None:
    path = f"/webhooks/{(await site.webhook())['webhookId']}"
    key_id = await site.key_id()
    await site.http.sign_in("member@example.com", Role.MEMBER)
    assert (await site.http.get("/webhooks")).status_code == 200
    for method, where, body in [
        ("POST", "/webhooks", {"keyId": key_id, "url": "https://example.com"}),
        ("PATCH", path, {"enabled": False}),
        ("DELETE", path, None),
        ("POST", f"{path}/rotate-secret", None),
        ("POST", f"{path}/ping", None),
    ]:
        answer = await site.http.call(method, where, body)
        assert (answer.status_code, answer.json()["error"]) == (403, "ROLE_REQUIRED"), where


async def test_an_api_key_needs_a_session_here(site: Site) -> None:
    made = (await site.http.post("/keys", {"name": "Robot"})).json()
    site.http.headers = {"X-Api-Key": made["key"]}
    for path in ("/webhooks", "/events"):
        answer = await site.http.get(path)
        assert (answer.status_code, answer.json()["error"]) == (403, "SESSION_REQUIRED")


async def test_pings_are_listed_with_all_that_the_contract_names(site: Site) -> None:
    async with webhook_receiver(respond(500)) as receiver:
        made = await site.webhook(receiver.url)
        path = f"/webhooks/{made['webhookId']}"
        pinged = (await site.http.post(f"{path}/ping")).json()
        assert pinged["ok"] is True
        [got] = await receiver.wait_for(1)
        assert got.envelope["id"] == pinged["deliveryId"]
        assert got.signed_with(made["secret"])
        attempt = await finished(site, path)
        assert attempt.pop("durationMs") >= 0
        assert attempt.pop("createdAt") == got.envelope["createdAt"]
        assert attempt.pop("nextAttemptAt") is not None
        assert attempt == {
            "deliveryId": pinged["deliveryId"],
            "webhookEventId": got.headers["webhook-id"],
            "eventType": "ping",
            "deviceId": None,
            "attempt": 1,
            "statusCode": 500,
            "error": "The receiver answered 500.",
            "succeeded": False,
        }
        again = (await site.http.post(f"{path}/deliveries/{pinged['deliveryId']}/redeliver")).json()
        assert again["deliveryId"] != pinged["deliveryId"]
        assert (await site.http.post(f"{path}/deliveries/whd_00000000000000000000/redeliver")).status_code == 404


async def test_webhooks_of_another_account_do_not_exist(site: Site) -> None:
    path = f"/webhooks/{(await site.webhook())['webhookId']}"
    await site.http.world.account("eve@example.com", "Other")
    await site.http.sign_in("eve@example.com")
    assert (await site.http.get("/webhooks")).json() == []
    for method, where, body in [("PATCH", path, {"enabled": False}), ("DELETE", path, None), ("GET", f"{path}/deliveries", None)]:
        assert (await site.http.call(method, where, body)).status_code == 404


async def test_the_log_is_paged_newest_first_and_new_events_do_not_shift_the_pages(site: Site) -> None:
    for number in range(7):
        await site.record("relay_changed", number=number)
    first = (await site.http.get("/events?limit=3&type=relay_changed")).json()
    assert set(first) == {"data", "total", "hasMore", "cursor"}
    assert (first["total"], first["hasMore"], len(first["data"])) == (7, True, 3)
    assert set(first["data"][0]) == {"id", "deviceId", "deviceName", "eventType", "description", "timestamp", "source", "address"}
    await site.record("relay_changed", number=7)
    seen = [event["id"] for event in first["data"]]
    page = first
    while page["hasMore"]:
        page = (await site.http.get(f"/events?limit=3&type=relay_changed&cursor={page['cursor']}")).json()
        seen += [event["id"] for event in page["data"]]
    assert len(seen) == len(set(seen)) == 7
    after = (await site.http.get(f"/events?limit=3&type=relay_changed&cursor={page['cursor']}")).json()
    assert (after["data"], after["hasMore"]) == ([], False)


async def test_an_event_of_no_device_has_empty_texts_and_the_total_is_a_number(site: Site) -> None:
    await site.http.post("/keys", {"name": "Robot"})
    [event] = (await site.http.get("/events?type=key_created")).json()["data"]
    assert (event["deviceId"], event["deviceName"]) == ("", "")
    assert all(isinstance(value, str) for name, value in event.items() if name != "timestamp")
    assert (await site.http.get("/events?type=telemetry")).json()["total"] == 0


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=nonsense", "kind=telemetry"])
async def test_a_wrong_query_is_refused(site: Site, query: str) -> None:
    assert (await site.http.get(f"/events?{query}")).status_code == 400


async def finished(site: Site, path: str) -> dict[str, Any]:
    import asyncio

    async with asyncio.timeout(TIMEOUT_S):
        while True:
            [attempt] = (await site.http.get(f"{path}/deliveries")).json()
            if attempt["durationMs"] is not None:
                found: dict[str, Any] = attempt
                return found
            await asyncio.sleep(0.01)


async def test_the_log_which_all_members_read_says_no_more_of_an_address_than_its_host(site: Site) -> None:
    made = await site.webhook("http://127.0.0.1:9/T0/verySecretPath?token=verySecretQuery")
    path = f"/webhooks/{made['webhookId']}"
    await site.http.patch(path, {"enabled": False})
    await site.http.post(f"{path}/rotate-secret")
    await site.http.delete(path)
    log = await site.http.get("/events?limit=200")
    reported = [event["description"] for event in log.json()["data"] if event["eventType"].startswith("webhook_")]
    assert len(reported) == 4
    assert all("127.0.0.1:9" in line for line in reported)
    assert "verySecret" not in log.text
