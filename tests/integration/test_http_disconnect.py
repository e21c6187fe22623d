"""A client that disconnects before its response: the handler stops, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from quart import Quart

from adapters.http.core.callers import AllowedCallers
from adapters.http.core.operation import ApiBlueprint
from support.http import HttpWorld
from support.waiting import TIMEOUT_S

HANDLED: list[str] = []


def slow(_: HttpWorld) -> Sequence[ApiBlueprint]:
    bp = ApiBlueprint("slow", "T")

    @bp.operation("GET /slow", AllowedCallers.ANYONE, "s")
    async def get_slow() -> dict[str, str]:
        HANDLED.append("began")
        try:
            await asyncio.sleep(TIMEOUT_S)
        except asyncio.CancelledError:
            HANDLED.append("cancelled")
            raise
        return {}

    @bp.operation("GET /quick", AllowedCallers.ANYONE, "s")
    async def get_quick() -> dict[str, str]:
        return {}

    return [bp]


@pytest.fixture
def app() -> Quart:
    HANDLED.clear()
    return HttpWorld(blueprints=slow).app()


class Client:
    """The server's side of one ASGI request."""

    def __init__(self, path: str) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/api/v1{path}",
            "query_string": b"",
            "headers": [(b"host", b"latchboard")],
            "client": ("127.0.0.1", 1),
        }
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.events.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.sent: list[dict[str, Any]] = []

    def disconnect(self) -> None:
        self.events.put_nowait({"type": "http.disconnect"})

    async def request(self, app: Quart) -> None:
        await app.asgi_app(self.scope, self.events.get, self.send)  # type: ignore[arg-type]

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)
        if not event.get("more_body", True):
            self.disconnect()  # as a server does after the response


async def began() -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not HANDLED:
            await asyncio.sleep(0)


async def test_a_disconnect_cancels_the_handler_and_not_the_server(app: Quart) -> None:
    client = Client("/slow")
    request = asyncio.create_task(client.request(app))
    await began()
    client.disconnect()
    async with asyncio.timeout(TIMEOUT_S):
        await request  # ends without an error
    assert HANDLED == ["began", "cancelled"]
    assert request.cancelling() == 0
    assert client.sent == []


async def test_a_server_that_cancels_the_request_sees_it_cancelled(app: Quart) -> None:
    client = Client("/slow")
    request = asyncio.create_task(client.request(app))
    await began()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert HANDLED == ["began", "cancelled"]


async def test_a_server_that_cancels_at_a_disconnect_sees_it_cancelled(app: Quart) -> None:
    client = Client("/slow")
    request = asyncio.create_task(client.request(app))
    await began()
    client.disconnect()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_the_disconnect_after_a_response_cancels_nothing(app: Quart) -> None:
    client = Client("/quick")
    await client.request(app)
    for _ in range(10):
        await asyncio.sleep(0)  # a late cancellation would strike here
    assert [event["type"] for event in client.sent] == ["http.response.start", "http.response.body"]
    assert client.sent[1] == {"type": "http.response.body", "body": b"{}", "more_body": False}
