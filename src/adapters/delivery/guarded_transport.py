"""An httpx transport that connects only to addresses that the guard allows.

httpx's own transport resolves host names itself and offers no hook between the lookup and the connection. This one puts a guarded
network backend below the same connection pool (httpcore). The guard decides on the address that is connected to, at every new
connection. Each request has a connection of its own: slow, but no request can fail because a kept connection was closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, cast

import httpcore
import httpx

from adapters.delivery.address_guard import GuardedResolver

CONNECT_TIMEOUT_S = 2.0
"""How long one address of several may take to accept the connection before the next is tried; the last one has no such limit."""

SocketOptions = Iterable[httpcore.SOCKET_OPTION]


class _CloseOnCancelStream(httpcore.AsyncNetworkStream):
    """Closes the connection when a TLS handshake is cancelled. httpcore does that only for errors, and would leak the socket."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's interface
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except asyncio.CancelledError:
            await self._stream.aclose()
            raise


class GuardedNetworkBackend(httpcore.AsyncNetworkBackend):
    """Opens TCP connections to the addresses that the resolver returns, and to no others. `https`: the scheme of its pool."""

    def __init__(self, resolver: GuardedResolver, *, https: bool) -> None:
        self._resolver = resolver
        self._https = https
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raises UnknownHostError, ForbiddenAddressError, and httpcore's errors for the last address."""
        *first, last = await self._resolver.resolve(host, port, https=self._https)
        for address in first:
            try:
                return _CloseOnCancelStream(
                    await self._backend.connect_tcp(address, port, CONNECT_TIMEOUT_S, local_address, socket_options)
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return _CloseOnCancelStream(await self._backend.connect_tcp(last, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class _HttpxResponseStream(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in cast(AsyncIterable[bytes], self._response.stream):
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1, with certificates checked against `tls`. Raises httpcore's errors as they are: their causes say what happened."""

    def __init__(self, resolver: GuardedResolver, tls: ssl.SSLContext) -> None:
        self._pools = {
            scheme: httpcore.AsyncConnectionPool(
                ssl_context=tls,
                max_connections=None,  # the delivery service bounds the attempts in flight
                max_keepalive_connections=0,
                network_backend=GuardedNetworkBackend(resolver, https=scheme == b"https"),
            )
            for scheme in (b"http", b"https")
        }

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        response = await self._pools[url.raw_scheme].handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(response.status, headers=response.headers, stream=_HttpxResponseStream(response), request=request)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()
