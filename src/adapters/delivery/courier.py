"""One POST to one receiver, whatever it does: at most ten seconds in all, at most 4 KiB read, nothing followed, nothing decoded.

aiohttp's own time-outs are per step and can be dripped through; here one deadline covers look-up, connection, TLS, sending and
the answer to its end. A connection is kept only so long as a burst lasts, because one that lies idle may be closed by the
receiver in the very moment we use it, and such an attempt would count as failed.
"""

from __future__ import annotations

import asyncio
import email.utils
import errno
import ssl
import time

import aiohttp

from adapters.delivery.guard import AddressGuard, ForbiddenAddress
from adapters.delivery.resolver import GuardedResolver, Lookup, SystemLookup
from domain.kernel.clock import SECOND_MS, Clock
from domain.webhooks.ports import Post, Reply

EXCERPT = 4_096
KEPT_ALIVE_S = 1.5
"""Below the shortest idle time-out of common servers (2 s)."""
MOST_HEADERS = 100


class HttpCourier:
    """See the port `Courier`. Make it inside the running loop, and `close` it."""

    def __init__(
        self,
        *,
        clock: Clock,
        guard: AddressGuard,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._clock = clock
        self._guard = guard
        self._own_lookup = SystemLookup() if lookup is None else None
        self._resolver = GuardedResolver(guard, lookup or self._own_lookup or SystemLookup())
        self._tls = tls or ssl.create_default_context()
        self._session: aiohttp.ClientSession | None = None

    def refusal(self, url: str) -> str | None:
        return self._guard.refusal(url)

    async def post(self, post: Post) -> Reply:
        began = time.perf_counter()
        status: int | None = None
        excerpt = b""
        retry_after_s = None
        error: str | None = self._guard.refusal(post.url)  # the setting may have changed since the URL was entered
        if error is None:
            try:
                async with asyncio.timeout(post.deadline_s):
                    status, excerpt, retry_after_s = await self._exchange(post)
            except TimeoutError:
                error = f"No complete answer within {post.deadline_s:g} seconds."
            except (aiohttp.ClientError, OSError, ValueError, UnicodeError) as failure:
                error = describe(failure)
        else:
            error = f"The url {error}"
        duration_ms = int((time.perf_counter() - began) * SECOND_MS)
        return Reply(status if error is None else None, error, excerpt, duration_ms, retry_after_s)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        if self._own_lookup is not None:
            self._own_lookup.close()

    async def _exchange(self, post: Post) -> tuple[int, bytes, int | None]:
        session = self._session or self._open()
        async with session.post(
            post.url, data=post.body, headers=post.headers, allow_redirects=False, max_headers=MOST_HEADERS
        ) as response:
            excerpt = bytearray()
            while len(excerpt) < EXCERPT:
                piece = await response.content.read(EXCERPT - len(excerpt))
                if not piece:
                    break
                excerpt += piece
            if not response.content.at_eof():
                response.close()  # the rest is of no interest, and the connection is full of it
            return response.status, bytes(excerpt), self._retry_after_s(response.headers.get("Retry-After"))

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            use_dns_cache=False,
            socket_factory=self._guard.open_socket,
            ssl=self._tls,
            limit=0,  # the lanes bound what is under way
            keepalive_timeout=KEPT_ALIVE_S,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "*/*", "Accept-Encoding": "identity"},
        )
        return self._session

    def _retry_after_s(self, text: str | None) -> int | None:
        """RFC 9110 10.2.3: seconds, or a date. What is neither is passed over."""
        if text is None or len(text) > 64:
            return None
        text = text.strip()
        if text.isascii() and text.isdigit():
            return min(int(text), 10**9)
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        return max(0, int(moment.timestamp() - self._clock.now_ms() / SECOND_MS))


def describe(failure: BaseException) -> str:
    """One sentence for the log of deliveries, which the receiver's owner reads."""
    forbidden = _cause(failure, ForbiddenAddress)
    if forbidden is not None:
        return f"Not sent: {forbidden}."
    match failure:
        case aiohttp.ClientConnectorDNSError():
            return f"The host name {failure.host} cannot be resolved."
        case aiohttp.ClientConnectorCertificateError():
            return f"The TLS certificate is not trusted: {failure.certificate_error}."[:300]
        case aiohttp.ClientSSLError():
            return f"TLS failed: {failure.os_error}."[:300]
        case aiohttp.ClientConnectorError():
            return f"The connection failed: {failure.os_error.strerror or failure.os_error}."[:300]
        case aiohttp.ServerDisconnectedError():
            return "The receiver closed the connection without an answer."
        case aiohttp.ClientPayloadError():
            return "The receiver closed the connection in the middle of its answer."
        case aiohttp.ClientResponseError():
            return f"What the receiver sent is not HTTP: {failure.message}."[:300]
        case OSError() if failure.errno in (errno.ECONNRESET, errno.EPIPE):
            return "The receiver reset the connection."
        case OSError():
            return f"The connection failed: {failure.strerror or failure}."[:300]
    return f"The delivery failed: {type(failure).__name__}."


def _cause(failure: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The first of that kind among a failure, its causes, and the members of groups."""
    pending: list[BaseException | None] = [failure]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, kind):
            return one
        pending += [one.__cause__, one.__context__, getattr(one, "os_error", None)]
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions
    return None
