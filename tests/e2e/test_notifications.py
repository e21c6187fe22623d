"""A member is told what waits by the running program: by mail, in a browser, by ntfy and by Telegram, and decides by the link."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from support.device import create_device
from support.mail_receiver import Postbox, mail_receiver
from support.ports import free_ports
from support.push_browser import PushBrowser, verify_vapid
from support.service import EMAIL, ApiClient, Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver

PUBLIC_URL = "https://latch.example"
TELEGRAM_PORT = free_ports(1)[0]


@pytest.fixture(scope="module")
def postbox() -> Iterator[tuple[Postbox, int]]:
    with mail_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, postbox: tuple[Postbox, int]) -> Iterator[Service]:
    settings = {
        "LATCHBOARD_SMTP_URL": f"smtp://127.0.0.1:{postbox[1]}",
        "LATCHBOARD_PUBLIC_URL": PUBLIC_URL,
        "LATCHBOARD_TELEGRAM_URL": f"http://127.0.0.1:{TELEGRAM_PORT}",
        "LATCHBOARD_WEBHOOK_ALLOW_PRIVATE": "false",
        "LATCHBOARD_WEBHOOK_NETWORKS": "127.0.0.0/8",
    }
    with Service(tmp_path_factory.mktemp("notifications"), **settings) as service:
        yield service


async def delete_channels(owner: ApiClient) -> None:
    for channel in await owner.get("/auth/notifications/channels"):
        await owner.delete(f"/auth/notifications/channels/{channel['channelId']}")


@pytest.fixture(autouse=True)
async def nothing_chosen(owner: ApiClient, postbox: tuple[Postbox, int]) -> None:
    """One person is told in all these tests; each begins without channels and subjects."""
    plain = {"topics": [], "quietFromMinute": None, "quietToMinute": None, "timezone": "UTC"}
    await delete_channels(owner)
    await owner.call("PUT", "/auth/notifications", plain, 200)
    await delete_channels(owner)
    while not postbox[0].mails.empty():
        postbox[0].mails.get()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with webhook_receiver(respond(200)) as made:
        yield made


async def ask_to_open(service: Service, owner: ApiClient, name: str) -> str:
    """A robot's request that waits; its path."""
    gate = await create_device(owner, name)
    await owner.post(f"{gate.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        made = await robot.post(f"{gate.path}/command", {"cmd": "OPEN"}, expect=202)
    return f"{gate.path}/approvals/{made['approvalId']}"


async def decide(service: Service, link: str, decision: str) -> httpx.Response:
    """Without a session, as the page behind the link does."""
    token = link.removeprefix(f"{PUBLIC_URL}/#/decide/")
    async with httpx.AsyncClient(base_url=service.url, timeout=TIMEOUT_S) as anyone:
        return await anyone.post(f"/api/v1/approval-links/{decision.lower()}", json={"token": token})


async def test_a_request_for_approval_is_mailed_with_a_link_that_decides_it(
    service: Service, owner: ApiClient, postbox: tuple[Postbox, int]
) -> None:
    chosen = {"topics": ["APPROVALS"], "mail": True, "quietFromMinute": None, "quietToMinute": None, "timezone": "Europe/Berlin"}
    nothing = {**chosen, "topics": [], "mail": False, "offlineMinutes": 5, "timezone": "UTC", "language": "en"}
    assert await owner.get("/auth/notifications") == nothing
    await owner.call("PUT", "/auth/notifications", chosen, 200)
    [mail_channel] = await owner.get("/auth/notifications/channels")
    assert (mail_channel["kind"], mail_channel["lastError"]) == ("MAIL", None)
    wrong = await owner.call("PUT", "/auth/notifications", {**chosen, "timezone": "Mars/Base"}, 400)
    assert wrong["error"] == "VALIDATION_ERROR"
    approval = await ask_to_open(service, owner, "Gate")
    mails = [postbox[0].mails.get(timeout=TIMEOUT_S) for _ in range(3)]
    assert {each["To"] for each in mails} == {EMAIL}
    by_subject = {each["Subject"]: each for each in mails}
    assert "Latchboard: an API key was created" in by_subject
    mail = by_subject["Gate: a command waits for approval"]
    text = mail.get_payload(decode=True)
    assert isinstance(text, bytes)
    [link] = [word for word in text.decode().split() if word.startswith(PUBLIC_URL)]
    assert (await owner.get(approval))["status"] == "PENDING"  # the mail decides nothing
    assert (await decide(service, link, "APPROVE")).status_code == 200
    assert (await owner.get(approval))["status"] == "APPROVED"
    assert (await decide(service, link, "DENY")).json()["error"] == "ALREADY_DECIDED"


async def add(owner: ApiClient, name: str, **destination: Any) -> str:
    made = await owner.post("/auth/notifications/channels", {"name": name, **destination}, expect=201)
    channel_id: str = made["channelId"]
    return channel_id


async def test_a_browser_gets_messages_that_only_it_can_read(service: Service, owner: ApiClient, receiver: Receiver) -> None:
    browser = PushBrowser(receiver.url)
    key = (await owner.get("/auth/notifications/push-key"))["publicKey"]
    channel_id = await add(owner, "Phone", webPush=browser.subscription())
    assert await owner.post(f"/auth/notifications/channels/{channel_id}/test", {}) == {
        "sent": True,
        "error": None,
        "errorCode": None,
    }
    [request] = receiver.requests
    assert browser.decrypt(request.body)["title"] == "Latchboard: a test"
    headers = {"Authorization": request.headers["authorization"]}
    claims = verify_vapid(headers, key, int(time.time()))
    assert claims["aud"] == receiver.url.removesuffix("/hook")
    await owner.call("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": False}, 200)
    approval = await ask_to_open(service, owner, "Barrier")
    told = {each["title"]: each for each in (browser.decrypt(one.body) for one in await receiver.wait_for(4))}
    assert "Latchboard: an API key was created" in told
    message = told["Barrier: a command waits for approval"]
    assert (message["title"], message["tag"]) == ("Barrier: a command waits for approval", approval.rpartition("/")[2])
    assert (await decide(service, message["link"], "DENY")).status_code == 200
    service.stop()
    service.start()
    async with service.api() as again:
        assert (await again.get("/auth/notifications/push-key"))["publicKey"] == key
        receiver.behave = respond(410)
        tested = await again.post(f"/auth/notifications/channels/{channel_id}/test", {})
        assert tested["sent"] is False
        assert channel_id not in [each["channelId"] for each in await again.get("/auth/notifications/channels")]


async def test_ntfy_gets_title_text_link_and_token_and_its_failure_is_shown(
    service: Service, owner: ApiClient, receiver: Receiver
) -> None:
    ntfy = {"url": receiver.url.removesuffix("/hook"), "topic": "latch-secret", "token": "tk_secret"}
    channel_id = await add(owner, "Tablet", ntfy=ntfy)
    await owner.post(f"/auth/notifications/channels/{channel_id}/test", {})
    [request] = receiver.requests
    assert receiver.request_lines == [b"POST / HTTP/1.1"]
    assert request.headers["authorization"] == "Bearer tk_secret"
    sent = json.loads(request.body)
    assert (sent["topic"], sent["title"], sent["click"]) == ("latch-secret", "Latchboard: a test", f"{PUBLIC_URL}/#/account")
    receiver.behave = respond(403)
    tested = await owner.post(f"/auth/notifications/channels/{channel_id}/test", {})
    assert tested["sent"] is False
    shown = await owner.get("/auth/notifications/channels")
    [channel] = [each for each in shown if each["channelId"] == channel_id]
    assert (channel["lastError"], channel["lastErrorCode"]) == (tested["error"], "REFUSED")
    assert "secret" not in json.dumps(shown)
    await owner.call("DELETE", f"/auth/notifications/channels/{channel_id}", None, 200)


async def test_telegram_gets_a_message_without_a_preview(service: Service, owner: ApiClient) -> None:
    async with webhook_receiver(respond(200), port=TELEGRAM_PORT) as telegram:
        channel_id = await add(owner, "Chat", telegram={"botToken": "123:abc-secret", "chatId": "-42"})
        await owner.post(f"/auth/notifications/channels/{channel_id}/test", {})
        [request] = telegram.requests
        assert telegram.request_lines == [b"POST /bot123:abc-secret/sendMessage HTTP/1.1"]
        sent = json.loads(request.body)
        assert (sent["chat_id"], sent["link_preview_options"]) == ("-42", {"is_disabled": True})
        assert f"{PUBLIC_URL}/#/account" in sent["text"]
    tested = await owner.post(f"/auth/notifications/channels/{channel_id}/test", {})
    assert (tested["sent"], tested["errorCode"], "connection failed" in tested["error"]) == (False, "NO_RESPONSE", True)
    await owner.call("DELETE", f"/auth/notifications/channels/{channel_id}", None, 200)


@pytest.mark.parametrize(
    "url", ["https://10.0.0.1/", "http://192.168.1.1/", "https://user:password@ntfy.example/", "ftp://x.example"]
)
async def test_no_channel_leads_into_the_network_of_the_service(service: Service, owner: ApiClient, url: str) -> None:
    refused = await owner.call("POST", "/auth/notifications/channels", {"name": "X", "ntfy": {"url": url, "topic": "a"}}, 400)
    assert refused["details"][0]["field"] == "ntfy.url"
    keys = PushBrowser(url).subscription()
    refused = await owner.call("POST", "/auth/notifications/channels", {"name": "X", "webPush": keys}, 400)
    assert refused["details"][0]["field"] == "webPush.endpoint"


async def test_the_secrets_of_channels_are_sealed_in_the_database(service: Service, owner: ApiClient) -> None:
    await add(owner, "Sealed", ntfy={"url": "https://ntfy.example", "topic": "find-me-topic", "token": "find-me-token"})
    await add(owner, "Sealed", telegram={"botToken": "1:find-me-bot", "chatId": "7"})
    files = [path.read_bytes() for path in service.folder.rglob("latchboard.db*")]
    assert files
    assert not any(b"find-me" in content for content in files)


async def test_a_member_has_ten_channels_at_most(service: Service, owner: ApiClient) -> None:
    telegram = {"botToken": "1:a", "chatId": "7"}
    while len(await owner.get("/auth/notifications/channels")) < 10:
        await add(owner, "One more", telegram=telegram)
    refused = await owner.call("POST", "/auth/notifications/channels", {"name": "X", "telegram": telegram}, 409)
    assert refused["error"] == "CHANNEL_LIMIT"


async def test_who_gives_a_webhook_in_a_private_network_learns_how_to_allow_it(owner: ApiClient) -> None:
    key = await owner.post("/keys", {"name": "Node-RED"}, expect=201)
    for url in ("http://192.168.1.20:1880/hook", "https://10.0.0.7/hook"):
        refused = await owner.post("/webhooks", {"keyId": key["keyId"], "url": url}, expect=400)
        assert "LATCHBOARD_WEBHOOK_NETWORKS" in json.dumps(refused)
