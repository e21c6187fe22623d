"""The readable courier, over aiohttp, for `engine = "reference"` and as the measure of the native one.

One POST to one receiver, whatever it does: a deadline over all of it, at most 4 KiB read, nothing followed, nothing decoded.
aiohttp's own time-outs are per step and can be dripped through; here one deadline covers look-up, connection, TLS, sending and
the answer to its end. Each post has a connection of its own: slow, and nothing to go wrong with.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

import aiohttp
import structlog

from adapters.delivery import answers
from adapters.delivery.answers import EXCERPT, say
from adapters.delivery.guard import AddressGuard, ForbiddenAddress
from adapters.delivery.resolver import GuardedResolver, Lookup, SystemLookup
from domain.kernel.clock import SECOND_MS, Clock
from domain.webhooks.model import PER_WEBHOOK
from domain.webhooks.ports import UNSENT, Hearer, Post, Reply

MOST_HEADERS = 100
PATIENCE_S = 0.25
"""How long a post waits for a place in its lane."""

log = structlog.get_logger("courier")


class PlainCourier:
    """See the port `Courier`. Make it inside the running loop, and `close` it."""

    def __init__(
        self,
        *,
        clock: Clock,
        guard: AddressGuard,
        lookup: Lookup | None = None,
        extra_ca: bytes = b"",
    ) -> None:
        """`extra_ca`: certificates (PEM) that are believed beside the system's."""
        self._clock = clock
        self._guard = guard
        self._own_lookup = SystemLookup() if lookup is None else None
        self._resolver = GuardedResolver(guard, lookup or self._own_lookup or SystemLookup())
        self._tls = ssl.create_default_context()
        if extra_ca:
            self._tls.load_verify_locations(cadata=extra_ca.decode())
        self._session: aiohttp.ClientSession | None = None
        self._hearer: Hearer | None = None
        self._tasks: dict[int, asyncio.Task[Reply]] = {}
        self._lanes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def refusal(self, url: str) -> str | None:
        return self._guard.refusal(url)

    def hear(self, hearer: Hearer) -> None:
        self._hearer = hearer

    def send(self, posts: Sequence[tuple[int, Post]]) -> None:
        for ticket, post in posts:
            task = asyncio.create_task(self._in_lane(post), name=f"post {ticket}")
            self._tasks[ticket] = task
            task.add_done_callback(partial(self._ended, ticket))

    def cut(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            task = self._tasks.pop(ticket, None)
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        left = list(self._tasks.values())
        self.cut(list(self._tasks))
        if left:
            await asyncio.wait(left, timeout=1.0)
        if self._session is not None:
            await self._session.close()
        if self._own_lookup is not None:
            self._own_lookup.close()

    def _ended(self, ticket: int, task: asyncio.Task[Reply]) -> None:
        if self._tasks.pop(ticket, None) is None or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("the courier failed", exc_info=error)
        reply = task.result() if error is None else Reply(None, f"The delivery failed: {type(error).__name__}.", b"", 0)
        if self._hearer is not None:
            self._hearer([(ticket, reply)])

    async def _in_lane(self, post: Post) -> Reply:
        if not post.lane:
            return await self._post(post)
        places = self._lanes.setdefault(post.lane, asyncio.Semaphore(PER_WEBHOOK))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await places.acquire()
        except TimeoutError:
            return UNSENT
        try:
            return await self._post(post)
        finally:
            places.release()

    async def _post(self, post: Post) -> Reply:
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
                error = say(answers.LATE, f"{post.deadline_s:g}")
            except (aiohttp.ClientError, OSError, ValueError, UnicodeError) as failure:
                error = describe(failure)
        else:
            error = f"The url {error}"
        duration_ms = int((time.perf_counter() - began) * SECOND_MS)
        return Reply(status if error is None else None, error, excerpt, duration_ms, retry_after_s)

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
            pause_s = answers.retry_after_s(response.headers.get("Retry-After"), self._clock.now_ms())
            return response.status, bytes(excerpt), pause_s

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            use_dns_cache=False,
            socket_factory=self._guard.open_socket,
            ssl=self._tls,
            limit=0,  # the lanes bound what is under way
            force_close=True,
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


def describe(failure: BaseException) -> str:
    forbidden = _cause(failure, ForbiddenAddress)
    if forbidden is not None:
        return say(answers.FORBIDDEN, forbidden)
    match failure:
        case aiohttp.ClientConnectorDNSError():
            return say(answers.UNKNOWN_HOST, failure.host)
        case aiohttp.ClientConnectorCertificateError():
            return say(answers.CERTIFICATE, failure.certificate_error)
        case aiohttp.ClientSSLError():
            return say(answers.TLS, failure.os_error)
        case aiohttp.ClientConnectorError():
            return say(answers.CONNECT, failure.os_error.strerror or failure.os_error)
        case aiohttp.ServerDisconnectedError():
            return answers.CLOSED
        case aiohttp.ClientPayloadError():
            return answers.CUT
        case aiohttp.ClientResponseError():
            return say(answers.NOT_HTTP, failure.message)
        case OSError() if failure.errno in (errno.ECONNRESET, errno.EPIPE):
            return answers.RESET
        case OSError():
            return say(answers.CONNECT, failure.strerror or failure)
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
