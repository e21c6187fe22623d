"""The Quart application without the parts that this service does not use.

**Routing** is by method and path only. Quart also matches the `Host` header, for applications that serve several names. A client
can write anything there: an invalid host name would fail before any error handler runs, and parsing it costs more than the
routing. No code asks for the URL of a route, so none of the functions that build URLs is compiled: they take a tenth of a start.

**A request** is handled in the task that the server made for it; Quart makes two more. There are no sessions of Quart, and every
handler is a coroutine function. Together this takes a third of the processor time of a small request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from quart import Quart, Response
from quart.asgi import ASGIHTTPConnection
from quart.globals import request_ctx
from quart.routing import QuartMap, QuartRule
from quart.sessions import NullSession, SessionInterface
from quart.utils import encode_headers
from quart.wrappers.base import BaseRequestWebsocket
from quart.wrappers.response import DataBody
from werkzeug.routing import MapAdapter

PLACEHOLDER_HOST = "latchboard"
"""The host of the URL adapter. It is never visible, because nothing is redirected."""


class CancelOnDisconnectHttpConnection(ASGIHTTPConnection):
    """Handles one request. If the client disconnects before the response is sent, the handler is cancelled."""

    async def __call__(self, receive: Any, send: Any) -> None:
        request = self._create_request_from_scope(send)
        handler = cast("asyncio.Task[None]", asyncio.current_task())
        is_connected = True

        async def cancel_at_disconnect() -> None:
            nonlocal is_connected
            await self.handle_messages(request, receive)
            is_connected = False
            handler.cancel()

        receiver = asyncio.create_task(cancel_at_disconnect())
        try:
            await self.handle_request(request, send)
        except asyncio.CancelledError:
            if is_connected or handler.uncancel():  # the server cancels as well
                raise
        finally:
            receiver.cancel()

    async def _send_response(self, send: Any, response: Any) -> None:
        """A body that is in memory is sent in one message."""
        defaults = cast(TrimmedQuart, self.app).default_headers(response)
        body = response.response if isinstance(response, Response) else None
        if not isinstance(body, DataBody):
            present = {name.lower() for name, _ in response.headers}
            response.headers.extend([(name.decode(), value.decode()) for name, value in defaults if name.decode() not in present])
            await super()._send_response(send, response)
            return
        headers = encode_headers(response.headers)
        given = {name for name, _ in headers}
        headers += [pair for pair in defaults if pair[0] not in given]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(body.data[body.begin : body.end]), "more_body": False})


class DisabledSessionInterface(SessionInterface):
    """Sessions of this service are tokens, which the operations read themselves."""

    _none = NullSession()

    async def open_session(self, *_: Any) -> NullSession:
        return self._none


class HostIndependentUrlMap(QuartMap):
    def bind_to_request(self, request: BaseRequestWebsocket, subdomain: str | None, server_name: str | None) -> MapAdapter:
        query = request.query_string.decode("latin-1")
        return MapAdapter(self, PLACEHOLDER_HOST, "/", "", request.scheme, request.path, request.method, query)


def header_value(name: bytes) -> str | None:
    """The first value of a header of the present request; `name` in lower case. `request.headers` takes ten times as long to find
    that a header is not there."""
    for key, value in request_ctx.request.scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


def _build_no_url(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("This application has no url_for.")


class MatchOnlyUrlRule(QuartRule):
    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        return _build_no_url


class TrimmedQuart(Quart):
    asgi_http_class = CancelOnDisconnectHttpConnection
    session_interface: SessionInterface = DisabledSessionInterface()  # type: ignore[assignment]
    url_map_class = HostIndependentUrlMap
    url_rule_class = MatchOnlyUrlRule

    default_headers: Callable[[Response], Sequence[tuple[bytes, bytes]]] = staticmethod(lambda _: ())
    """Headers of a response that it does not have itself; names in lower case. As bytes they cost a quarter of what they cost in
    a hook of Quart."""

    def ensure_async(self, func: Any) -> Any:
        """`func`: all handlers of this application are coroutine functions."""
        return func
