"""The live feed, `GET /api/v1/ws`: who is there, what they asked for, and when it ends.

It stands beside the web framework, as an ASGI application of its own: a connection that lives for hours and says little should
cost neither the contexts nor the tasks that a request has. Two tasks are left to a client. One hears what it says, which is
little: a first word of who it is, a renewed token, a ping. The other speaks, and mostly sleeps.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from adapters.http.auth import Authenticator, Shown
from adapters.http.feed_outlet import Send
from adapters.http.feed_seats import Bounds, Full, Seats
from adapters.http.feed_stream import EXPIRED, FeedStream, Identity, Terms
from adapters.http.feed_talk import Gone, Over, Receive, Talk, TooLong, as_shown
from adapters.http.proxies import TrustedProxies
from domain.events.model import PUBLIC_TYPES, Interest
from domain.events.policy import decode_cursor
from domain.events.ports import FeedHub
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.clock import Clock, iso
from domain.kernel.errors import DomainError, Invalid, Unauthenticated
from domain.kernel.ids import DeviceId, Prefix, looks_like
from domain.webhooks.audience import AudienceService

PATH = "/api/v1/ws"
FIRST_WORD_WITHIN_S = 5.0
BETWEEN_RENEWALS_S = 1.0
BAD_REQUEST = 1008  # RFC 6455 7.4.1: policy violation
TRY_LATER = 1013
UNEXPECTED = 1011
MESSAGE_TOO_LONG = Over(1009, "That message was too long.")
GONE = Over(0, "")
"""Nobody is left to say it to."""


class LiveFeed:
    def __init__(
        self,
        *,
        audience: AudienceService,
        hub: FeedHub,
        authenticator: Authenticator,
        clock: Clock,
        proxies: TrustedProxies | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._audience = audience
        self._hub = hub
        self._authenticator = authenticator
        self._clock = clock
        self._proxies = proxies
        self._seats = Seats(bounds or Bounds())

    @property
    def connected(self) -> int:
        return self._seats.taken

    @staticmethod
    def serves(scope: dict[str, Any]) -> bool:
        return (scope["type"], scope.get("path")) == ("websocket", PATH)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        talk = Talk(scope, receive, send)
        await talk.accept()
        try:
            with self._seats.any():
                over = await self._serve(talk)
        except Gone:
            return
        except Full as full:
            over = Over(TRY_LATER, str(full))
        except TooLong:
            over = MESSAGE_TOO_LONG
        except DomainError as error:
            over = _over(error)
        if over is not GONE:
            await talk.close(over)

    async def _serve(self, talk: Talk) -> Over:
        address = talk.address(self._proxies)
        terms = _terms(talk.args())
        identity = await self._authenticate(await self._first_word(talk), address)
        if terms.device_id is not None and not looks_like(Prefix.DEVICE, terms.device_id):
            raise Invalid.field("deviceId", "is not a device id.")
        interest = Interest(identity.viewer.account_id, terms.kinds, terms.device_id)
        with self._seats.of(identity.viewer):
            stream = FeedStream(self._audience, self._hub, self._clock, identity, interest, terms, talk.outlet)
            return await self._run(talk, stream, address)

    async def _run(self, talk: Talk, stream: FeedStream, address: str) -> Over:
        hearing = asyncio.create_task(self._hear(talk, stream, address), name="feed hears")
        hearing.add_done_callback(lambda done: stream.end(_outcome(done)))
        try:
            return await stream.run()
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _first_word(self, talk: Talk) -> Shown:
        """The credentials, by query, header or first message."""
        shown = talk.shown()
        if shown.token is not None or shown.key is not None:
            return shown
        try:
            with self._seats.silent():
                async with asyncio.timeout(FIRST_WORD_WITHIN_S):
                    message = await talk.hear()
        except TimeoutError:
            raise Unauthenticated("No credentials within 5 seconds.") from None
        if message.get("type") != "auth":
            raise Unauthenticated('The first message must be {"type": "auth", "token": "..."}.')
        return _shown(message)

    async def _hear(self, talk: Talk, stream: FeedStream, address: str) -> Over:
        """Everything the client sends is taken off the wire; only a renewal and a ping mean something."""
        while True:
            message = await talk.hear()
            if message.get("type") == "ping":
                await talk.outlet.say(b'{"type":"pong"}')
            elif message.get("type") == "auth":
                renewed = await self._authenticate(_shown(message), address)
                if not _same(renewed, stream.identity):
                    return Over(EXPIRED, "These credentials are of somebody else. Open another connection for them.")
                stream.identity = renewed
                until = None if renewed.expires_ms is None else iso(renewed.expires_ms)
                await talk.outlet.say(msgspec.json.encode({"type": "authenticated", "expiresAt": until}))
                await asyncio.sleep(BETWEEN_RENEWALS_S)

    async def _authenticate(self, shown: Shown, address: str) -> Identity:
        if shown.key is not None:
            return Identity(await self._authenticator.by_key(shown.key, address), None)
        if shown.token is None:
            raise Unauthenticated("No credentials. Give a token or an apiKey.")
        return Identity(*await self._authenticator.by_token(shown.token, address))


def _terms(args: dict[str, str]) -> Terms:
    kinds = frozenset(filter(None, args.get("types", "").split(",")))
    unknown = kinds - PUBLIC_TYPES
    if unknown:
        raise Invalid.field("types", f"knows {', '.join(sorted(PUBLIC_TYPES))}; not {min(unknown)[:32]!r}.")
    device = args.get("deviceId") or None
    cursor = args.get("cursor")
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


def _shown(message: dict[str, Any]) -> Shown:
    token, key = message.get("token"), message.get("apiKey")
    if isinstance(token, str) and token:
        return as_shown(token)
    return Shown(key=key) if isinstance(key, str) and key else Shown()


def _outcome(hearing: asyncio.Task[Over]) -> Over | BaseException:
    """Why nothing is heard any more."""
    if hearing.cancelled():
        return GONE
    error = hearing.exception()
    if error is None:
        return hearing.result()
    if isinstance(error, Gone | ConnectionError):
        return GONE
    if isinstance(error, TooLong):
        return MESSAGE_TOO_LONG
    return _over(error) if isinstance(error, DomainError) else error


def _over(error: DomainError) -> Over:
    if isinstance(error, Unauthenticated):
        return Over(EXPIRED, error.message)
    return Over(BAD_REQUEST if isinstance(error, Invalid) else UNEXPECTED, error.message)
