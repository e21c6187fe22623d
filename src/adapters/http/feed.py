"""The live feed, `GET /api/v1/ws`: who is there, what they asked for, and when it ends.

Two tasks share a connection. One reads what the client says, which is little: a first word of who it is, a renewed token, a ping.
The other writes. Whichever ends first ends the connection with its reason; a client that is gone cancels both.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from quart import Blueprint, websocket

from adapters.http.auth import Authenticator, Shown, client_address, shown_in
from adapters.http.feed_stream import EXPIRED, FeedStream, Identity, Over, Terms
from domain.events.model import PUBLIC_TYPES, Interest
from domain.events.policy import decode_cursor
from domain.events.ports import FeedHub
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.clock import Clock, iso
from domain.kernel.errors import DomainError, Invalid, Unauthenticated
from domain.kernel.ids import DeviceId, Prefix, looks_like
from domain.keys.policy import KEY_PREFIX
from domain.webhooks.audience import AudienceService

FIRST_WORD_WITHIN_S = 5.0
LONGEST_MESSAGE = 8_192
BETWEEN_RENEWALS_S = 1.0
GOODBYE_WITHIN_S = 5.0
MOST_CLIENTS = 5_000
BAD_REQUEST = 1008  # RFC 6455 7.4.1: policy violation
TRY_LATER = 1013
UNEXPECTED = 1011


@dataclass(frozen=True, slots=True)
class FeedParts:
    audience: AudienceService
    hub: FeedHub
    authenticator: Authenticator
    clock: Clock


def feed_blueprint(
    *, audience: AudienceService, hub: FeedHub, authenticator: Authenticator, clock: Clock, most_clients: int = MOST_CLIENTS
) -> Blueprint:
    bp = Blueprint("feed", __name__, url_prefix="/api/v1")
    parts = FeedParts(audience, hub, authenticator, clock)
    connected = 0

    @bp.websocket("/ws")
    async def feed() -> None:
        nonlocal connected
        await websocket.accept()
        connected += 1
        try:
            full = connected > most_clients
            over = Over(TRY_LATER, "Too many clients. Come back in a moment.") if full else await _serve(parts)
        except DomainError as error:
            over = _over(error)
        finally:
            connected -= 1
        await _close(over)

    return bp


async def _close(over: Over) -> None:
    """A client that takes nothing does not take the goodbye either; it is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE_WITHIN_S):
            await websocket.close(over.code, over.reason.encode()[:120].decode(errors="ignore"))


async def _serve(parts: FeedParts) -> Over:
    address = client_address(of_feed=True)
    terms = _terms()
    identity = await _authenticate(parts, await _first_word(), address)
    if terms.device_id is not None and not looks_like(Prefix.DEVICE, terms.device_id):
        raise Invalid.field("deviceId", "is not a device id.")
    interest = Interest(identity.viewer.account_id, terms.kinds, terms.device_id)
    stream = FeedStream(parts.audience, parts.hub, parts.clock, identity, interest, terms, websocket.send)
    reading = asyncio.create_task(_listen(parts, stream, address), name="feed listens")
    writing = asyncio.create_task(stream.run(), name="feed speaks")
    tasks = {reading, writing}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return (writing if writing in done else reading).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(parts: FeedParts, stream: FeedStream, address: str) -> Over:
    """Everything the client sends is taken off the wire; only a renewal and a ping mean something."""
    while True:
        message = _read(await websocket.receive())
        if message.get("type") == "ping":
            await websocket.send('{"type":"pong"}')
        elif message.get("type") == "auth":
            renewed = await _authenticate(parts, _shown(message), address)
            if not _same(renewed, stream.identity):
                return Over(EXPIRED, "These credentials are of somebody else. Open another connection for them.")
            stream.identity = renewed
            until = None if renewed.expires_ms is None else iso(renewed.expires_ms)
            await websocket.send(msgspec.json.encode({"type": "authenticated", "expiresAt": until}).decode())
            await asyncio.sleep(BETWEEN_RENEWALS_S)


async def _first_word() -> Shown:
    """The credentials, by query, header or first message."""
    token = websocket.args.get("token")
    shown = _as_shown(token) if token else shown_in(
        websocket.headers.get("Authorization"), websocket.headers.get("X-Api-Key")
    )  # fmt: skip
    if shown.token is not None or shown.key is not None:
        return shown
    try:
        async with asyncio.timeout(FIRST_WORD_WITHIN_S):
            message = _read(await websocket.receive())
    except TimeoutError:
        raise Unauthenticated("No credentials within 5 seconds.") from None
    if message.get("type") != "auth":
        raise Unauthenticated('The first message must be {"type": "auth", "token": "..."}.')
    return _shown(message)


async def _authenticate(parts: FeedParts, shown: Shown, address: str) -> Identity:
    if shown.key is not None:
        return Identity(await parts.authenticator.by_key(shown.key, address), None)
    if shown.token is None:
        raise Unauthenticated("No credentials. Give a token or an apiKey.")
    return Identity(*await parts.authenticator.by_token(shown.token, address))


def _terms() -> Terms:
    kinds = frozenset(filter(None, websocket.args.get("types", "").split(",")))
    unknown = kinds - PUBLIC_TYPES
    if unknown:
        raise Invalid.field("types", f"knows {', '.join(sorted(PUBLIC_TYPES))}; not {min(unknown)[:32]!r}.")
    device = websocket.args.get("deviceId") or None
    cursor = websocket.args.get("cursor")
    after: int | None = None
    lost = False
    if cursor:
        try:
            [after] = decode_cursor(cursor)
        except Invalid:
            lost = True
    return Terms(kinds, None if device is None else DeviceId(device), after, lost)


def _same(renewed: Identity, before: Identity) -> bool:
    new, old = renewed.viewer, before.viewer
    if isinstance(new, Session) and isinstance(old, Session):
        return new.membership_id == old.membership_id
    return isinstance(new, ApiKeyCaller) and isinstance(old, ApiKeyCaller) and new.key_id == old.key_id


def _read(raw: str | bytes) -> dict[str, Any]:
    if len(raw) > LONGEST_MESSAGE:
        return {}
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _shown(message: dict[str, Any]) -> Shown:
    token, key = message.get("token"), message.get("apiKey")
    if isinstance(token, str) and token:
        return _as_shown(token)
    return Shown(key=key) if isinstance(key, str) and key else Shown()


def _as_shown(text: str) -> Shown:
    return Shown(key=text) if text.startswith(KEY_PREFIX) else Shown(token=text)


def _over(error: DomainError) -> Over:
    if isinstance(error, Unauthenticated):
        return Over(EXPIRED, error.message)
    return Over(BAD_REQUEST if isinstance(error, Invalid) else UNEXPECTED, error.message)
