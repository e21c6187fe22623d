"""Parts of the Python client that need no service: retries, the watchdog of the feed, decoding, signatures."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, Literal

import httpx
import pytest
from standardwebhooks.webhooks import Webhook
from websockets.asyncio.server import ServerConnection, serve

from latchboard_client import (
    ApiError,
    AsyncLatchboard,
    ConflictError,
    InitialState,
    RateLimitedError,
    ResponseError,
    Resync,
    UnavailableError,
    UnknownEvent,
    models,
    webhooks,
)
from latchboard_client.codec import decode, encode
from latchboard_client.events import FeedState, parse_event
from latchboard_client.retries import LONGEST_PAUSE_S, RetryPolicy, backoff_s

RELAY_CHANGED = {
    "type": "relay_changed",
    "channel": 1,
    "eventId": "evt_1",
    "accountId": "acc_1",
    "deviceId": "dev_1",
    "timestamp": 1,
    "relay": "ON",
    "triggeredBy": "device",
}
INITIAL = {"type": "initial_state", "cursor": "c1", "devices": []}
TIMEOUT_S = 10.0


def refusal(status: int, code: str, retry_after: int | None = 0) -> httpx.Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return httpx.Response(status, json={"error": code, "message": "No.", "requestId": "req_1"}, headers=headers)


class Scripted(httpx.MockTransport):
    """One answer for each request, then 200."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.left = list(answers)
        self.sent: list[httpx.Request] = []
        super().__init__(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        return self.left.pop(0) if self.left else httpx.Response(200, json={"ok": True, "executionId": "exe_1", "status": "SENT"})


async def outcome(transport: Scripted, **policy: Any) -> ApiError | None:
    """Of sending a command."""
    async with httpx.AsyncClient(transport=transport) as http:
        latchboard = AsyncLatchboard("http://service", api_key="k", http=http, retries=RetryPolicy(**policy))
        try:
            await latchboard.send_command("dev_1", cmd="ON")
        except ApiError as error:
            return error
    return None


async def test_calls_are_repeated_with_the_same_key_when_the_service_asks_for_it() -> None:
    script = Scripted(refusal(429, "RATE_LIMITED"), refusal(503, "UNAVAILABLE"), refusal(409, "IDEMPOTENCY_IN_PROGRESS"))
    assert await outcome(script) is None
    assert len(script.sent) == 4
    assert len({request.headers["Idempotency-Key"] for request in script.sent}) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "requests"),
    [
        (refusal(429, "RATE_LIMITED", 61), RateLimitedError, 1),
        (refusal(409, "CONFLICT"), ConflictError, 1),
        (refusal(500, "INTERNAL_ERROR"), UnavailableError, 1),
        (httpx.Response(502, text="<h1>Bad gateway</h1>", headers={"Retry-After": "0"}), UnavailableError, 2),
    ],
)
async def test_other_refusals_are_raised(answer: httpx.Response, kind: type[ApiError], requests: int) -> None:
    script = Scripted(*[answer] * requests)
    error = await outcome(script, attempts=requests)
    assert type(error) is kind
    assert len(script.sent) == requests


def test_the_policy_repeats_only_what_is_safe() -> None:
    policy = RetryPolicy()
    assert policy.pause_s(1, repeatable=False, status=503, code="UNAVAILABLE", retry_after_s=0) is None
    assert policy.pause_s(1, repeatable=False, status=429, code="RATE_LIMITED", retry_after_s=7) == 7
    assert policy.pause_s(1, repeatable=True, status=None, code="", retry_after_s=None) is not None
    assert policy.pause_s(4, repeatable=True, status=None, code="", retry_after_s=None) is None
    assert all(0 < backoff_s(attempt) <= LONGEST_PAUSE_S for attempt in (1, 2, 50, 5_000))


def test_decoding_ignores_what_is_new_and_refuses_what_is_missing() -> None:
    event = decode(models.RelayChangedEvent, RELAY_CHANGED | {"colour": "red"})
    assert (event.relay, event.triggered_by) == ("ON", "device")
    with pytest.raises(ResponseError, match="relay"):
        decode(models.RelayChangedEvent, {name: value for name, value in RELAY_CHANGED.items() if name != "relay"})
    assert decode(list[int] | Literal["none"], "none") == "none"
    assert encode(models.RuleConditionRequest(metric="m", comparator=">", value=1)) == {
        "metric": "m",
        "comparator": ">",
        "value": 1,
    }


def test_events_by_their_type() -> None:
    assert isinstance(parse_event(RELAY_CHANGED), models.RelayChangedEvent)
    unknown = parse_event(RELAY_CHANGED | {"type": "relay_melted"})
    assert isinstance(unknown, UnknownEvent)
    assert (unknown.type, unknown.fields["relay"]) == ("relay_melted", "ON")


def test_the_state_of_a_feed_drops_repetitions_and_keeps_the_cursor() -> None:
    state = FeedState("c0")
    messages = [INITIAL, RELAY_CHANGED | {"cursor": "c2"}, RELAY_CHANGED | {"cursor": "c3"}, {"type": "resync"}, {"type": "pong"}]
    seen = [state.accept(json.dumps(message)) for message in messages]
    assert [type(one) for one in seen] == [InitialState, models.RelayChangedEvent, type(None), Resync, type(None)]
    assert state.cursor == "c3"


async def test_a_connection_that_answers_no_ping_is_made_again_with_the_cursor() -> None:
    paths: list[str] = []
    thawed = asyncio.Event()

    async def freeze_until_resumed(socket: ServerConnection) -> None:
        paths.append(socket.request.path if socket.request else "")
        await socket.send(json.dumps(INITIAL | {"cursor": f"c{len(paths)}"}))
        if "cursor" not in paths[-1]:
            socket.transport.pause_reading()
            await asyncio.wait_for(thawed.wait(), TIMEOUT_S)
            socket.transport.resume_reading()
        await asyncio.wait_for(socket.wait_closed(), TIMEOUT_S)

    async with serve(freeze_until_resumed, "127.0.0.1", 0, ping_interval=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncLatchboard(f"http://127.0.0.1:{port}", api_key="k") as client, client.feed(watchdog_s=1) as feed:
            async with asyncio.timeout(TIMEOUT_S):
                assert type(await anext(feed)) is InitialState
                first = feed.cursor
                assert type(await anext(feed)) is InitialState
            thawed.set()
    assert (paths[0], first) == ("/api/v1/ws", f"c{len([path for path in paths if path == '/api/v1/ws'])}")
    assert f"/api/v1/ws?cursor={first}" in paths


def test_the_signature_is_that_of_the_standard_webhooks_library() -> None:
    secret = "whsec_" + "A" * 43 + "="
    sent_at = datetime.fromtimestamp(1_700_000_000, tz=UTC)
    assert webhooks.sign(secret, "evt_1", "1700000000", b"{}") == Webhook(secret).sign("evt_1", sent_at, "{}")
    with pytest.raises(webhooks.VerificationError, match="whsec_"):
        webhooks.sign("whsec_no base64", "evt_1", "1", b"{}")
