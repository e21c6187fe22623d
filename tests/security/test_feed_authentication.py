"""The live feed of the real program accepts the same credentials as REST, and no input to it affects other clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from domain.keys.model import compose_key
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S

UNKNOWN = compose_key("a" * 40)
NONE = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJsYXRjaGJvYXJkIn0."
BAD = {"none": NONE, "garbled": "a.b.c", "short": "x", "unknown key": UNKNOWN, "mistyped key": UNKNOWN[:-1], "long": "a" * 4_000}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("feed")) as service:
        yield service


@pytest.fixture
async def owner(running: Service) -> AsyncIterator[ApiClient]:
    async with running.api() as api:
        yield api
    assert '"level": "error"' not in running.log(1_000_000)


async def closed_with(socket: ClientConnection) -> int | None:
    """The close code; the test fails if a message comes before it."""
    async with asyncio.timeout(TIMEOUT_S):
        try:
            message = await socket.recv()
        except ConnectionClosed:
            return socket.close_code
    raise AssertionError(f"let in: {str(message)[:200]}")


def address(running: Service, query: str = "") -> str:
    return f"ws://127.0.0.1:{running.port}/api/v1/ws{query}"


@pytest.mark.parametrize("name", BAD)
async def test_bad_credentials_are_refused_in_every_form(running: Service, owner: ApiClient, name: str) -> None:
    secret = BAD[name]
    for headers in ({"Authorization": f"Bearer {secret}"}, {"X-Api-Key": secret}):
        async with connect(address(running), additional_headers=headers) as socket:
            assert await closed_with(socket) == 4001
    async with connect(address(running, f"?token={secret}")) as socket:
        assert await closed_with(socket) == 4001
    for message in ({"type": "auth", "token": secret}, {"type": "auth", "apiKey": secret}):
        async with connect(address(running)) as socket:
            await socket.send(json.dumps(message))
            assert await closed_with(socket) == 4001


FIRST_WORDS: list[str | bytes] = [
    "",
    "null",
    "[]",
    "[" * 8_000,
    '{"type": "auth"}',
    '{"type": "auth", "token": null}',
    '{"type": "auth", "token": {}}',
    '{"type": "auth", "token": ""}',
    '{"type": ["auth"], "token": "x"}',
    '{"type": "ping"}',
    b"\x00\xff\xfe",
    "NaN",
    "x" * 60_000,
]


@pytest.mark.parametrize("word", FIRST_WORDS, ids=range(len(FIRST_WORDS)))
async def test_an_invalid_first_message_closes_the_connection(running: Service, owner: ApiClient, word: str | bytes) -> None:
    async with connect(address(running)) as socket:
        await socket.send(word)
        assert await closed_with(socket) == 4001


async def test_a_message_that_is_too_long_ends_the_connection(running: Service, owner: ApiClient) -> None:
    async with connect(address(running)) as socket:
        await socket.send("x" * 2_000_000)
        assert await closed_with(socket) in (1009, 4001, 1006)


async def test_a_silent_client_is_closed(running: Service, owner: ApiClient) -> None:
    async with connect(address(running)) as socket:
        assert await closed_with(socket) == 4001


async def test_invalid_messages_of_an_authenticated_client_change_nothing(running: Service, owner: ApiClient) -> None:
    async with running.feed(owner) as feed:
        for word in (*FIRST_WORDS[:4], '{"type": "subscribe", "accountId": "acc_other"}', "x" * 60_000):
            await feed.socket.send(word)
        await feed.socket.send('{"type": "ping"}')
        await feed.wait_for("pong")
        assert [message["type"] for message in feed.received] == ["initial_state", "pong"]


async def test_renewing_with_bad_credentials_ends_the_connection(running: Service, owner: ApiClient) -> None:
    async with running.feed(owner) as feed:
        await feed.socket.send(json.dumps({"type": "auth", "token": NONE}))
        assert await closed_with(feed.socket) == 4001


@pytest.mark.parametrize(
    "query", ["?deviceId=dev_x", "?deviceId=%00", "?types=all", "?types=%ED%A0%80", "?deviceId=" + "a" * 5_000]
)
async def test_an_invalid_filter_is_refused_only_after_authentication(running: Service, owner: ApiClient, query: str) -> None:
    async with connect(address(running, query), additional_headers={"X-Api-Key": UNKNOWN}) as socket:
        assert await closed_with(socket) in (4001, 1008)
    async with connect(address(running, query), additional_headers=owner.headers) as socket:
        assert await closed_with(socket) == 1008


async def test_an_unknown_cursor_causes_a_resync(running: Service, owner: ApiClient) -> None:
    for cursor in ("x", "%00", "a" * 3_000, "LTE", "OTIyMzM3MjAzNjg1NDc3NTgwOA"):
        async with running.feed(owner, f"?cursor={cursor}") as feed:
            assert {message["type"] for message in feed.received} <= {"resync", "initial_state"}


async def test_an_invalid_handshake_gets_an_http_error(running: Service, owner: ApiClient) -> None:
    answer = await owner.send("GET", "/ws")
    assert answer.status_code in (400, 404, 426)
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"ws://127.0.0.1:{running.port}/api/v1/devices", additional_headers=owner.headers):
            pass
    assert caught.value.response.status_code in (400, 403, 404)


async def test_the_feed_of_a_session_that_was_ended_closes(running: Service, owner: ApiClient) -> None:
    tokens = await owner.post("/auth/login", {"email": EMAIL, "password": PASSWORD})
    phone = {"Authorization": f"Bearer {tokens['accessToken']}"}
    shown = (await owner.send("GET", "/auth/sessions", headers=phone)).json()
    async with connect(address(running), additional_headers=phone) as socket, asyncio.timeout(TIMEOUT_S):
        assert json.loads(await socket.recv())["type"] == "initial_state"
        [session_id] = [one["sessionId"] for one in shown if one["current"]]
        await owner.delete(f"/auth/sessions/{session_id}")
        with pytest.raises(ConnectionClosed):
            while True:
                await socket.recv()
        assert socket.close_code == 4003


def bearer(owner: ApiClient) -> str:
    return str(owner.headers["Authorization"]).removeprefix("Bearer ")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "http://[", ""])
async def test_a_page_of_another_site_opens_no_feed(running: Service, owner: ApiClient, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(address(running, f"?token={bearer(owner)}"), additional_headers={"Origin": origin}):
            pass
    assert refused.value.response.status_code == 403


async def test_a_page_of_the_service_and_a_program_open_it(running: Service, owner: ApiClient) -> None:
    for headers in ({"Origin": f"http://127.0.0.1:{running.port}"}, {}):
        async with connect(address(running, f"?token={bearer(owner)}"), additional_headers=headers) as socket:
            async with asyncio.timeout(TIMEOUT_S):
                assert json.loads(await socket.recv())["type"] == "initial_state"
