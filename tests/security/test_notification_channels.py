"""Channels that members add, as a way into the operator's own network: with `LATCHBOARD_WEBHOOK_NETWORKS` the service may call
machines there, and some of them switch things by the path of a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
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
