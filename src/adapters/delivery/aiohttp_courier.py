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

from adapters.delivery import error_messages
from adapters.delivery.address_guard import AddressGuard, ForbiddenAddressError
from adapters.delivery.dns_resolver import GuardedResolver, HostLookup, SystemHostLookup
from adapters.delivery.error_messages import MAX_EXCERPT_BYTES, format_message
from domain.kernel.clock import SECOND_MS, Clock
from domain.webhooks.model import MAX_CONCURRENT_PER_WEBHOOK
from domain.webhooks.ports import NOT_SENT, ResponseCallback, WebhookRequest, WebhookResponse

MAX_RESPONSE_HEADERS = 100
QUEUE_TIMEOUT_S = 0.25
"""How long a post waits for a place in its lane."""

log = structlog.get_logger("courier")


class AiohttpCourier:
    """See the port `Courier`. Make it inside the running loop, and `close` it."""

    def __init__(
        self,
        *,
        clock: Clock,
        guard: AddressGuard,
        lookup: HostLookup | None = None,
        extra_ca: bytes = b"",
    ) -> None:
        """`extra_ca`: certificates (PEM) that are believed beside the system's."""
        self._clock = clock
        self._guard = guard
        self._own_lookup = SystemHostLookup() if lookup is None else None
        self._resolver = GuardedResolver(guard, lookup or self._own_lookup or SystemHostLookup())
        self._tls = ssl.create_default_context()
        if extra_ca:
            self._tls.load_verify_locations(cadata=extra_ca.decode())
        self._session: aiohttp.ClientSession | None = None
        self._on_responses: ResponseCallback | None = None
        self._tasks: dict[int, asyncio.Task[WebhookResponse]] = {}
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def rejection_reason(self, url: str) -> str | None:
        return self._guard.rejection_reason(url)

    def on_responses(self, hearer: ResponseCallback) -> None:
        self._on_responses = hearer

    def send(self, posts: Sequence[tuple[int, WebhookRequest]]) -> None:
        for ticket, post in posts:
            task = asyncio.create_task(self._send_queued(post), name=f"post {ticket}")
            self._tasks[ticket] = task
            task.add_done_callback(partial(self._on_task_done, ticket))

    def cancel(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            task = self._tasks.pop(ticket, None)
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        left = list(self._tasks.values())
        self.cancel(list(self._tasks))
        if left:
            await asyncio.wait(left, timeout=1.0)
        if self._session is not None:
            await self._session.close()
        if self._own_lookup is not None:
            self._own_lookup.close()

    def _on_task_done(self, ticket: int, task: asyncio.Task[WebhookResponse]) -> None:
        if self._tasks.pop(ticket, None) is None or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("the courier failed", exc_info=error)
        reply = task.result() if error is None else WebhookResponse(None, f"The delivery failed: {type(error).__name__}.", b"", 0)
        if self._on_responses is not None:
            self._on_responses([(ticket, reply)])

    async def _send_queued(self, post: WebhookRequest) -> WebhookResponse:
        if not post.queue_key:
            return await self._send_one(post)
        places = self._semaphores.setdefault(post.queue_key, asyncio.Semaphore(MAX_CONCURRENT_PER_WEBHOOK))
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_S):
                await places.acquire()
        except TimeoutError:
            return NOT_SENT
        try:
            return await self._send_one(post)
        finally:
            places.release()

    async def _send_one(self, post: WebhookRequest) -> WebhookResponse:
        began = time.perf_counter()
        status: int | None = None
        excerpt = b""
        retry_after_s = None
        error: str | None = self._guard.rejection_reason(post.url)  # the setting may have changed since the URL was entered
        if error is None:
            try:
                async with asyncio.timeout(post.deadline_s):
                    status, excerpt, retry_after_s = await self._exchange(post)
            except TimeoutError:
                error = format_message(error_messages.TIMED_OUT, f"{post.deadline_s:g}")
            except (aiohttp.ClientError, OSError, ValueError, UnicodeError) as failure:
                error = describe_failure(failure)
        else:
            error = f"The url {error}"
        duration_ms = int((time.perf_counter() - began) * SECOND_MS)
        return WebhookResponse(status if error is None else None, error, excerpt, duration_ms, retry_after_s)

    async def _exchange(self, post: WebhookRequest) -> tuple[int, bytes, int | None]:
        session = self._session or self._open_session()
        async with session.post(
            post.url, data=post.body, headers=post.headers, allow_redirects=False, max_headers=MAX_RESPONSE_HEADERS
        ) as response:
            excerpt = bytearray()
            while len(excerpt) < MAX_EXCERPT_BYTES:
                piece = await response.content.read(MAX_EXCERPT_BYTES - len(excerpt))
                if not piece:
                    break
                excerpt += piece
            if not response.content.at_eof():
                response.close()  # the rest is of no interest, and the connection is full of it
            pause_s = error_messages.parse_retry_after_s(response.headers.get("Retry-After"), self._clock.now_ms())
            return response.status, bytes(excerpt), pause_s

    def _open_session(self) -> aiohttp.ClientSession:
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


def describe_failure(failure: BaseException) -> str:
    forbidden = _find_cause(failure, ForbiddenAddressError)
    if forbidden is not None:
        return format_message(error_messages.FORBIDDEN_ADDRESS, forbidden)
    match failure:
        case aiohttp.ClientConnectorDNSError():
            return format_message(error_messages.UNKNOWN_HOST, failure.host)
        case aiohttp.ClientConnectorCertificateError():
            return format_message(error_messages.UNTRUSTED_CERTIFICATE, failure.certificate_error)
        case aiohttp.ClientSSLError():
            return format_message(error_messages.TLS_FAILED, failure.os_error)
        case aiohttp.ClientConnectorError():
            return format_message(error_messages.CONNECT_FAILED, failure.os_error.strerror or failure.os_error)
        case aiohttp.ServerDisconnectedError():
            return error_messages.CLOSED_WITHOUT_RESPONSE
        case aiohttp.ClientPayloadError():
            return error_messages.CLOSED_MID_RESPONSE
        case aiohttp.ClientResponseError():
            return format_message(error_messages.NOT_HTTP, failure.message)
        case OSError() if failure.errno in (errno.ECONNRESET, errno.EPIPE):
            return error_messages.CONNECTION_RESET
        case OSError():
            return format_message(error_messages.CONNECT_FAILED, failure.strerror or failure)
    return f"The delivery failed: {type(failure).__name__}."


def _find_cause(failure: BaseException, kind: type[BaseException]) -> BaseException | None:
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
