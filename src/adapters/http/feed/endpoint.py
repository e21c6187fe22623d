"""The live feed, `GET /api/v1/ws`: authenticates a client, reads its query, and runs its stream until it ends.

It is an ASGI application beside the web framework: a connection that stays open for hours should not cost the contexts and tasks
of a request. Each client has two tasks. One receives its messages: credentials, renewed tokens, pings. The other sends events.

Connections are limited in total, per caller, and of clients that have not authenticated yet. Without the last two limits, one
runaway script, or a client that opens connections and never authenticates, could lock out all others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import msgspec

from adapters.http.core.callers import (
    AuthenticatorPort,
    Network,
    RequestCredentials,
    TrustedProxies,
    address_block,
    is_in_networks,
    second_factor_required_error,
)
from adapters.http.feed.connection import (
    AsgiReceive,
    AsgiSend,
    FeedClientConnection,
    FeedClientGoneError,
    WebSocketCloseFrame,
    WebSocketMessageTooLongError,
    credentials_from_token,
)
from adapters.http.feed.stream import CREDENTIALS_EXPIRED, AuthenticatedFeedClient, FeedDependencies, FeedQuery, FeedStream
from domain.events.cursors import FeedCursor
from domain.events.feed_model import FeedFilter
from domain.events.model import PUBLIC_TYPES
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.clock import Clock, to_iso
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, PermissionDenied, Unauthenticated, Unavailable, ValidationFailed
from domain.kernel.ids import DeviceId, IdPrefix, has_id_format
from domain.team.service_sessions import check_operation

FEED_PATH = "/api/v1/ws"
AUTH_TIMEOUT_S = 5.0
MIN_RENEWAL_INTERVAL_S = 1.0
POLICY_VIOLATION = 1008  # RFC 6455 7.4.1: policy violation
TRY_AGAIN_LATER = 1013
INTERNAL_ERROR = 1011
MESSAGE_TOO_LONG = WebSocketCloseFrame(1009, "That message was too long.")


@service
class FeedEndpoint:
    sources: FeedDependencies
    authenticator: AuthenticatorPort
    clock: Clock
    limiter: FeedConnectionLimiter
    proxies: TrustedProxies | None = None
    origins: Collection[str] = ()
    """Of other pages that may open it, beside those of the service itself."""

    @staticmethod
    def matches(scope: dict[str, Any]) -> bool:
        return (scope["type"], scope.get("path")) == ("websocket", FEED_PATH)

    async def __call__(self, scope: dict[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        connection = FeedClientConnection(scope, receive, send)
        if not connection.is_of_origin(self.origins):
            await connection.refuse()
            return
        await connection.accept()
        try:
            with self.limiter.reserve():
                close_reason = await self._handle_connection(connection)
        except FeedClientGoneError:
            return
        except FeedConnectionLimitError as error:
            close_reason = WebSocketCloseFrame(TRY_AGAIN_LATER, str(error))
        except WebSocketMessageTooLongError:
            close_reason = MESSAGE_TOO_LONG
        except DomainError as error:
            close_reason = _close_reason(error)
        connection.set_authenticated(False)
        await connection.close(close_reason)

    async def _handle_connection(self, connection: FeedClientConnection) -> WebSocketCloseFrame:
        address = connection.client_address(self.proxies)
        query = _parse_feed_query(connection.query_parameters())
        identity = await self._authenticate(await self._receive_credentials(connection, address), address)
        if query.device_id is not None and not has_id_format(IdPrefix.DEVICE, query.device_id):
            raise ValidationFailed.for_field("deviceId", "is not a device id. Use the deviceId of a device.")
        if query.audit and isinstance(identity.viewer, ApiKeyCaller):
            raise ValidationFailed.for_field("audit", "is for sessions; an API key gets the public events only.")
        interest = FeedFilter(identity.viewer.account_id, query.event_types, query.device_id, query.audit)
        with self.limiter.reserve_for_caller(identity.viewer):
            connection.set_authenticated(True)
            stream = FeedStream(
                sources=self.sources,
                clock=self.clock,
                identity=identity,
                interest=interest,
                query=query,
                sender=connection.sender,
            )
            return await self._run_stream(connection, stream, address)

    async def _run_stream(self, connection: FeedClientConnection, stream: FeedStream, address: str) -> WebSocketCloseFrame:
        receiver = asyncio.create_task(self._receive_loop(connection, stream, address), name="feed receiver")
        receiver.add_done_callback(
            lambda done: stream.request_end(FeedClientGoneError() if done.cancelled() else done.exception() or done.result())
        )
        try:
            return await stream.run()
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)

    async def _receive_credentials(self, connection: FeedClientConnection, address: str) -> RequestCredentials:
        """The credentials in the query, a header or the first message. Raises Unauthenticated."""
        credentials = connection.credentials()
        if credentials.token is not None or credentials.key is not None:
            return credentials
        try:
            with self.limiter.reserve_unauthenticated(address):
                async with asyncio.timeout(AUTH_TIMEOUT_S):
                    message = await connection.receive()
        except TimeoutError:
            raise Unauthenticated(
                f"No credentials within {AUTH_TIMEOUT_S:.0f} seconds. Send them in the query, a header or the first message."
            ) from None
        if message.get("type") != "auth":
            raise Unauthenticated('The first message must be {"type": "auth", "token": "..."}.')
        return _credentials_in_message(message)

    async def _receive_loop(self, connection: FeedClientConnection, stream: FeedStream, address: str) -> WebSocketCloseFrame:
        """Read all messages of the client. Only renewed credentials and pings have an effect."""
        while True:
            message = await connection.receive()
            if message.get("type") == "ping":
                await connection.sender.send_text(b'{"type":"pong"}')
            elif message.get("type") == "auth":
                renewed = await self._authenticate(_credentials_in_message(message), address)
                if not _is_same_caller(renewed, stream.identity):
                    return WebSocketCloseFrame(
                        CREDENTIALS_EXPIRED, "These credentials belong to another caller. Open a new connection for them."
                    )
                stream.identity = renewed
                expires_at = None if renewed.expires_ms is None else to_iso(renewed.expires_ms)
                await connection.sender.send_text(msgspec.json.encode({"type": "authenticated", "expiresAt": expires_at}))
                await asyncio.sleep(MIN_RENEWAL_INTERVAL_S)

    async def _authenticate(self, credentials: RequestCredentials, address: str) -> AuthenticatedFeedClient:
        if credentials.key is not None:
            return AuthenticatedFeedClient(await self.authenticator.authenticate_key(credentials.key, address), None)
        if credentials.token is None:
            raise Unauthenticated("No credentials. Send a token or an apiKey.")
        caller, expires_ms = await self.authenticator.authenticate_token(credentials.token, address)
        try:
            check_operation(caller, "Events", is_read=True)
        except PermissionDenied as error:
            raise Unauthenticated(error.message) from None
        if caller.lacks_second_factor:
            raise Unauthenticated(second_factor_required_error().message)
        return AuthenticatedFeedClient(caller, expires_ms)


def _parse_feed_query(args: dict[str, str]) -> FeedQuery:
    event_types = frozenset(filter(None, args.get("types", "").split(",")))
    unknown = event_types - PUBLIC_TYPES
    if unknown:
        raise ValidationFailed.for_field(
            "types", f"contains {min(unknown)[:32]!r}, which is not an event type. Use {', '.join(sorted(PUBLIC_TYPES))}."
        )
    device = args.get("deviceId") or None
    given = args.get("cursor")
    cursor: FeedCursor | None = None
    cursor_invalid = False
    if given:
        try:
            cursor = FeedCursor.decode(given)
        except ValidationFailed:
            cursor_invalid = True
    return FeedQuery(
        event_types,
        None if device is None else DeviceId(device),
        cursor,
        cursor_invalid,
        audit=_parse_choice(args, "audit", ("false", "true")) == "true",
        with_devices=_parse_choice(args, "initialState", ("devices", "none")) == "devices",
    )


def _parse_choice(args: dict[str, str], name: str, choices: tuple[str, str]) -> str:
    """One of two choices; the first without the parameter."""
    given = args.get(name) or choices[0]
    if given not in choices:
        raise ValidationFailed.for_field(name, f"must be {choices[0]} or {choices[1]}.")
    return given


def _is_same_caller(renewed: AuthenticatedFeedClient, before: AuthenticatedFeedClient) -> bool:
    new, old = renewed.viewer, before.viewer
    if isinstance(new, SessionCaller) and isinstance(old, SessionCaller):
        return new.membership_id == old.membership_id
    return isinstance(new, ApiKeyCaller) and isinstance(old, ApiKeyCaller) and new.key_id == old.key_id


def _credentials_in_message(message: dict[str, Any]) -> RequestCredentials:
    token, key = message.get("token"), message.get("apiKey")
    if isinstance(token, str) and token:
        return credentials_from_token(token)
    return RequestCredentials(key=key) if isinstance(key, str) and key else RequestCredentials()


def _close_reason(error: DomainError) -> WebSocketCloseFrame:
    if isinstance(error, Unauthenticated | PermissionDenied):
        return WebSocketCloseFrame(CREDENTIALS_EXPIRED, error.message)
    if isinstance(error, ValidationFailed):
        return WebSocketCloseFrame(POLICY_VIOLATION, error.message)
    return WebSocketCloseFrame(TRY_AGAIN_LATER if isinstance(error, Unavailable) else INTERNAL_ERROR, error.message)


_SEND_EARLY = "Send the token in the query or a header."


class FeedConnectionLimitError(Exception):
    """A limit is reached. The message is the close reason, at most 120 bytes."""


@service
class FeedConnectionLimiter:
    """Of concurrent connections: in total, per member or key, and of clients without credentials in query or header; of these,
    per address. `unlimited` addresses have no limit of their own."""

    total: int = 5_000
    per_caller: int = 1_000
    unauthenticated: int = 500
    unauthenticated_per_address: int = 50
    unlimited: tuple[Network, ...] = ()
    connection_count: int = field(default=0, init=False)
    refused: Counter[str] = field(default_factory=Counter, init=False)
    """By reason, since the start."""
    _unauthenticated: Counter[str] = field(default_factory=Counter, init=False)
    """By address."""
    _by_caller: Counter[str] = field(default_factory=Counter, init=False)

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold one of the connections. Raises FeedConnectionLimitError."""
        if self.connection_count >= self.total:
            raise self._refusal("full", "Too many connections. Try again in a moment.")
        self.connection_count += 1
        try:
            yield
        finally:
            self.connection_count -= 1

    @contextmanager
    def reserve_unauthenticated(self, address: str) -> Iterator[None]:
        """Hold one of the connections that wait for credentials. Raises FeedConnectionLimitError."""
        block, waiting = address_block(address), self._unauthenticated
        is_unlimited = is_in_networks(address, self.unlimited)
        if waiting.total() >= self.unauthenticated:
            raise self._refusal("pending_full", f"Too many unauthenticated connections. {_SEND_EARLY}")
        if not is_unlimited and waiting[block] >= self.unauthenticated_per_address:
            raise self._refusal("address_full", f"Too many unauthenticated connections of your address. {_SEND_EARLY}")
        waiting[block] += 1
        try:
            yield
        finally:
            waiting[block] -= 1
            if not waiting[block]:
                del waiting[block]

    @contextmanager
    def reserve_for_caller(self, viewer: SessionCaller | ApiKeyCaller) -> Iterator[None]:
        """Hold one of this caller's connections. Raises FeedConnectionLimitError."""
        caller = viewer.key_id if isinstance(viewer, ApiKeyCaller) else viewer.membership_id
        if self._by_caller[caller] >= self.per_caller:
            raise self._refusal("caller_full", f"You have {self.per_caller} connections open. Close some, or share one.")
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]

    def _refusal(self, reason: str, message: str) -> FeedConnectionLimitError:
        self.refused[reason] += 1
        return FeedConnectionLimitError(message)
