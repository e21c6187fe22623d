"""Channels that members add, as a way into the operator's own network: with `LATCHBOARD_WEBHOOK_NETWORKS` the service may call
machines there, and some of them switch things by the path of a request."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.kernel.clock import MINUTE_MS
from domain.notifications.model import SEND_TIMEOUT_S
from domain.notifications.settings import ACCOUNT_TEST_LIMIT, ERROR_TIME_STEP_MS
from domain.webhooks.ports import OutboundHttpRequest, OutboundHttpResponse
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.push_browser import PushBrowser

RELAY = "http://192.168.1.50/relay/0?turn=on"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path, webhook_networks="192.168.1.0/24") as program:
        created = await program.create_account("ada@example.com")
        await program.create_member(created, "vic@example.com", Role.VIEWER)
        yield program


async def refused_field(caller: ApiCaller, **destination: Any) -> str | None:
    """The field that is wrong; None if the channel was added."""
    answer = await caller.send("POST", "/auth/notifications/channels", {"name": "Phone"} | destination)
    return None if answer.status_code == 201 else str(answer.json()["details"][0]["field"])


@pytest.mark.parametrize("url", [RELAY, "http://192.168.1.50/relay", "https://ntfy.example?x", "https://ntfy.example/#x"])
async def test_an_ntfy_server_has_no_path(app: InProcessApp, url: str) -> None:
    for name in ("ada", "vic"):
        caller = await app.sign_in(f"{name}@example.com")
        assert await refused_field(caller, ntfy={"url": url, "topic": "t"}) == "ntfy.url"
    assert await refused_field(caller, ntfy={"url": "http://192.168.1.50:8080/", "topic": "t"}) is None


@pytest.mark.parametrize("url", [RELAY, "https://192.168.1.50/relay/0?turn=on", "https://[fd00::1]/x"])
async def test_only_who_may_make_webhooks_names_a_push_service_in_the_own_network(app: InProcessApp, url: str) -> None:
    subscription = PushBrowser(url).subscription()
    viewer, owner = await app.sign_in("vic@example.com"), await app.sign_in("ada@example.com")
    assert await refused_field(viewer, webPush=subscription) == "webPush.endpoint"
    assert await refused_field(owner, webPush=subscription) is None
    assert await refused_field(viewer, webPush=PushBrowser("https://push.example.net/send/1").subscription()) is None


CLOSED, HANGS_UP, SILENT = ("Connection refused.", "The connection was closed.", "No response.")
PORTS = (
    *(OutboundHttpResponse(None, error, b"", 1) for error in (CLOSED, HANGS_UP, SILENT)),
    *tuple(OutboundHttpResponse(status, None, b"", 1) for status in (404, 500)),
)


class Ports:
    """As the service finds them, one after the other."""

    def __init__(self) -> None:
        self.left = itertools.cycle(PORTS)

    async def send(self, request: OutboundHttpRequest) -> OutboundHttpResponse:
        return next(self.left)

    async def close(self) -> None: ...


async def test_a_test_message_tells_a_viewer_nothing_of_the_ports_in_the_own_network(app: InProcessApp) -> None:
    """Whatever is there, one answer, after the same time; an Admin, who may make webhooks there, sees the cause."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    app.services.notifications.sender.http = Ports()  # type: ignore[assignment]
    app.services.notifications.service.pause = pause
    answers, shown = {}, {}
    for name in ("vic", "ada"):
        caller = await app.sign_in(f"{name}@example.com")
        answers[name] = []
        for number in range(len(PORTS)):
            body = {"name": "P", "ntfy": {"url": f"http://192.168.1.50:{8000 + number}", "topic": "t"}}
            channel = (await caller.send_ok("POST", "/auth/notifications/channels", body))["channelId"]
            answers[name].append(await caller.send_ok("POST", f"/auth/notifications/channels/{channel}/test"))
        shown[name] = await caller.send_ok("GET", "/auth/notifications/channels")
    assert [answer["errorCode"] for answer in answers["vic"]] == ["NOT_ACCEPTED"] * len(PORTS)
    assert len({answer["error"] for answer in answers["vic"]}) == 1
    assert pauses == [SEND_TIMEOUT_S] * len(PORTS)
    seen = {(each["lastErrorCode"], each["lastError"]) for each in shown["vic"]}
    assert seen == {("NOT_ACCEPTED", answers["vic"][0]["error"])}
    minutes = [int(each["lastErrorAt"][14:16]) for each in shown["vic"]]
    assert all(minute * MINUTE_MS % ERROR_TIME_STEP_MS == 0 for minute in minutes)
    assert len({answer["error"] for answer in answers["ada"]}) == len(PORTS)


async def test_the_members_of_an_account_share_a_limit_of_tests(app: InProcessApp) -> None:
    await app.create_account("eve@example.com")
    callers = [await app.sign_in(f"{name}@example.com") for name in ("ada", "vic", "eve")]
    channels = []
    for caller in callers:
        body = {"name": "Phone", "telegram": {"botToken": "1:a", "chatId": "1"}}
        channels.append((await caller.send_ok("POST", "/auth/notifications/channels", body))["channelId"])
    services, now_ms = app.services, app.clock.now_ms()
    account_id = (await callers[0].send_ok("GET", "/auth/me"))["accountId"]
    async with services.uow.write(caller=None) as tx:
        failures = None
        for _ in range(ACCOUNT_TEST_LIMIT.max_failures):
            failures = ACCOUNT_TEST_LIMIT.count(failures, f"notification-tests:{account_id}", now_ms)
        await tx.login_failures.upsert(failures)
    answers = [
        (await caller.send("POST", f"/auth/notifications/channels/{channel}/test")).status_code
        for caller, channel in zip(callers, channels, strict=True)
    ]
    assert answers == [429, 429, 200]
