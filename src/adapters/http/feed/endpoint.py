"""The live feed, `GET /api/v1/ws`: who is there, what they asked for, and when it ends.

It stands beside the web framework, as an ASGI application of its own: a connection that lives for hours and says little should
cost neither the contexts nor the tasks that a request has. Two tasks are left to a client. One hears what it says, which is
little: a first word of who it is, a renewed token, a ping. The other speaks, and mostly sleeps.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from adapters.http.core.auth import Authenticator, RequestCredentials
from adapters.http.core.proxies import TrustedProxies
from adapters.http.feed.connection_limits import ConnectionLimiter, ConnectionLimitError, ConnectionLimits
from adapters.http.feed.frame_writer import AsgiSend
from adapters.http.feed.stream import CREDENTIALS_EXPIRED, FeedIdentity, FeedQuery, FeedStream
from adapters.http.feed.websocket import (
    AsgiReceive,
    ClientGoneError,
    CloseReason,
    MessageTooLongError,
    WebSocketConnection,
    credentials_from_token,
)
from domain.events.model import PUBLIC_TYPES, FeedFilter
from domain.events.ports import FeedHub
from domain.feed.audience import AudienceService
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.clock import Clock, to_iso
from domain.kernel.cursors import EVENTS, decode_cursor
from domain.kernel.errors import DomainError, Unauthenticated, ValidationFailed
from domain.kernel.ids import DeviceId, IdPrefix, has_id_format

FEED_PATH = "/api/v1/ws"
AUTH_TIMEOUT_S = 5.0
MIN_RENEWAL_INTERVAL_S = 1.0
POLICY_VIOLATION = 1008  # RFC 6455 7.4.1: policy violation
TRY_AGAIN_LATER = 1013
INTERNAL_ERROR = 1011
MESSAGE_TOO_LONG = CloseReason(1009, "That message was too long.")
CLIENT_GONE = CloseReason(0, "")
"""Nobody is left to say it to."""


class FeedEndpoint:
    def __init__(
        self,
        *,
        audience: AudienceService,
        hub: FeedHub,
        authenticator: Authenticator,
        clock: Clock,
        proxies: TrustedProxies | None = None,
        bounds: ConnectionLimits | None = None,
    ) -> None:
        self._audience = audience
        self._hub = hub
        self._authenticator = authenticator
        self._clock = clock
        self._proxies = proxies
        self._limiter = ConnectionLimiter(bounds or ConnectionLimits())

    @property
    def connection_count(self) -> int:
        return self._limiter.connection_count

    @staticmethod
    def matches(scope: dict[str, Any]) -> bool:
        return (scope["type"], scope.get("path")) == ("websocket", FEED_PATH)

    async def __call__(self, scope: dict[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        talk = WebSocketConnection(scope, receive, send)
        await talk.accept()
        try:
            with self._limiter.reserve():
                over = await self._handle_connection(talk)
        except ClientGoneError:
            return
        except ConnectionLimitError as full:
            over = CloseReason(TRY_AGAIN_LATER, str(full))
        except MessageTooLongError:
            over = MESSAGE_TOO_LONG
        except DomainError as error:
            over = _close_reason(error)
        if over is not CLIENT_GONE:
            await talk.close(over)

    async def _handle_connection(self, talk: WebSocketConnection) -> CloseReason:
        address = talk.client_address(self._proxies)
        terms = _parse_feed_query(talk.query_parameters())
        identity = await self._authenticate(await self._receive_credentials(talk), address)
        if terms.device_id is not None and not has_id_format(IdPrefix.DEVICE, terms.device_id):
            raise ValidationFailed.for_field("deviceId", "is not a device id.")
        interest = FeedFilter(identity.viewer.account_id, terms.event_types, terms.device_id)
        with self._limiter.reserve_for_caller(identity.viewer):
            stream = FeedStream(self._audience, self._hub, self._clock, identity, interest, terms, talk.sender)
            return await self._run_stream(talk, stream, address)

    async def _run_stream(self, talk: WebSocketConnection, stream: FeedStream, address: str) -> CloseReason:
        hearing = asyncio.create_task(self._receive_loop(talk, stream, address), name="feed hears")
        hearing.add_done_callback(lambda done: stream.request_end(_receiver_result(done)))
        try:
            return await stream.run()
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _receive_credentials(self, talk: WebSocketConnection) -> RequestCredentials:
        """The credentials, by query, header or first message."""
        shown = talk.credentials()
        if shown.token is not None or shown.key is not None:
            return shown
        try:
            with self._limiter.reserve_unauthenticated():
                async with asyncio.timeout(AUTH_TIMEOUT_S):
                    message = await talk.receive()
        except TimeoutError:
            raise Unauthenticated("No credentials within 5 seconds.") from None
        if message.get("type") != "auth":
            raise Unauthenticated('The first message must be {"type": "auth", "token": "..."}.')
        return _credentials_in_message(message)

    async def _receive_loop(self, talk: WebSocketConnection, stream: FeedStream, address: str) -> CloseReason:
        """Everything the client sends is taken off the wire; only a renewal and a ping mean something."""
        while True:
            message = await talk.receive()
            if message.get("type") == "ping":
                await talk.sender.send_text(b'{"type":"pong"}')
            elif message.get("type") == "auth":
                renewed = await self._authenticate(_credentials_in_message(message), address)
                if not _is_same_caller(renewed, stream.identity):
                    return CloseReason(
                        CREDENTIALS_EXPIRED, "These credentials are of somebody else. Open another connection for them."
                    )
                stream.identity = renewed
                until = None if renewed.expires_ms is None else to_iso(renewed.expires_ms)
                await talk.sender.send_text(msgspec.json.encode({"type": "authenticated", "expiresAt": until}))
                await asyncio.sleep(MIN_RENEWAL_INTERVAL_S)

    async def _authenticate(self, shown: RequestCredentials, address: str) -> FeedIdentity:
        if shown.key is not None:
            return FeedIdentity(await self._authenticator.authenticate_key(shown.key, address), None)
        if shown.token is None:
            raise Unauthenticated("No credentials. Give a token or an apiKey.")
        return FeedIdentity(*await self._authenticator.authenticate_token(shown.token, address))


def _parse_feed_query(args: dict[str, str]) -> FeedQuery:
    kinds = frozenset(filter(None, args.get("types", "").split(",")))
    unknown = kinds - PUBLIC_TYPES
    if unknown:
        raise ValidationFailed.for_field("types", f"knows {', '.join(sorted(PUBLIC_TYPES))}; not {min(unknown)[:32]!r}.")
    device = args.get("deviceId") or None
    cursor = args.get("cursor")
    after: int | None = None
    lost = False
    if cursor:
        try:
            [after] = decode_cursor(EVENTS, cursor)
        except ValidationFailed:
            lost = True
    return FeedQuery(kinds, None if device is None else DeviceId(device), after, lost)


def _is_same_caller(renewed: FeedIdentity, before: FeedIdentity) -> bool:
    new, old = renewed.viewer, before.viewer
    if isinstance(new, Session) and isinstance(old, Session):
        return new.membership_id == old.membership_id
    return isinstance(new, ApiKeyCaller) and isinstance(old, ApiKeyCaller) and new.key_id == old.key_id


def _credentials_in_message(message: dict[str, Any]) -> RequestCredentials:
    token, key = message.get("token"), message.get("apiKey")
    if isinstance(token, str) and token:
        return credentials_from_token(token)
    return RequestCredentials(key=key) if isinstance(key, str) and key else RequestCredentials()


def _receiver_result(hearing: asyncio.Task[CloseReason]) -> CloseReason | BaseException:
    """Why nothing is heard any more."""
    if hearing.cancelled():
        return CLIENT_GONE
    error = hearing.exception()
    if error is None:
        return hearing.result()
    if isinstance(error, ClientGoneError | ConnectionError):
        return CLIENT_GONE
    if isinstance(error, MessageTooLongError):
        return MESSAGE_TOO_LONG
    return _close_reason(error) if isinstance(error, DomainError) else error


def _close_reason(error: DomainError) -> CloseReason:
    if isinstance(error, Unauthenticated):
        return CloseReason(CREDENTIALS_EXPIRED, error.message)
    return CloseReason(POLICY_VIOLATION if isinstance(error, ValidationFailed) else INTERNAL_ERROR, error.message)
