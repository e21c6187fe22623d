"""The readable courier, over httpx: the definition that the native courier is tested against.

It sends one POST to one receiver and bounds whatever the receiver does: one deadline, at most 4 KiB of the body, no redirects, no
decoding. httpx's own timeouts apply to each step, so a receiver that sends a byte now and then could extend them without end;
here one deadline covers lookup, connection, TLS, sending and the whole response.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import Sequence
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from weakref import WeakValueDictionary

import httpcore
import httpx
import structlog

from adapters.delivery import courier
from adapters.delivery.address_guard import AddressGuard, ForbiddenAddressError, GuardedResolver, HostLookup, UnknownHostError
from adapters.delivery.courier import format_message
from adapters.delivery.guarded_transport import GuardedTransport
from domain.kernel.clock import SECOND_MS, Clock
from domain.webhooks.model import MAX_CONCURRENT_PER_WEBHOOK
from domain.webhooks.ports import NOT_SENT, OutboundHttpRequest, OutboundHttpResponse, ResponseCallback

MAX_EXCERPT_BYTES = 4_096
"""At most this much of a response body is kept."""
MAX_RESPONSE_BYTES = 1024 * 1024
"""A longer response, or one without an end, is a failure: such a receiver has accepted nothing."""
MAX_RESPONSE_HEADERS = 100
MAX_RESPONSE_HEADER_BYTES = 32 * 1024
QUEUE_TIMEOUT_S = 0.25
"""How long a request waits for a free slot of its endpoint queue."""

log = structlog.get_logger("courier")


class TruncatedWebhookResponseError(Exception):
    """The connection ended in the middle of a response."""


class ResponseTooLongError(Exception):
    """The response is longer than MAX_RESPONSE_BYTES, or has no end."""


class HttpxCourier:
    """See the port `Courier`. Create it inside the running event loop, and `close` it."""

    def __init__(self, *, clock: Clock, guard: AddressGuard, lookup: HostLookup | None = None, extra_ca: bytes = b"") -> None:
        """`extra_ca`: certificates (PEM) to trust beside those of the system. `lookup`: None for the system's resolver."""
        self._clock = clock
        self._guard = guard
        self.rejection_reason = guard.rejection_reason
        self._resolver = GuardedResolver(guard, lookup)
        tls = ssl.create_default_context()
        if extra_ca:
            tls.load_verify_locations(cadata=extra_ca.decode())
        self._client = httpx.AsyncClient(
            transport=GuardedTransport(self._resolver, tls),
            timeout=None,
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={"Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"},
        )
        self._on_responses: ResponseCallback | None = None
        self._tasks: dict[int, asyncio.Task[OutboundHttpResponse]] = {}
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def on_responses(self, callback: ResponseCallback) -> None:
        self._on_responses = callback

    def send(self, requests: Sequence[tuple[int, OutboundHttpRequest]]) -> None:
        for ticket, request in requests:
            task = asyncio.create_task(self._send_queued(request), name=f"webhook request {ticket}")
            self._tasks[ticket] = task
            task.add_done_callback(partial(self._on_task_done, ticket))

    def cancel(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            task = self._tasks.pop(ticket, None)
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self.cancel(list(self._tasks))
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        await self._client.aclose()
        self._resolver.close()

    def _on_task_done(self, ticket: int, task: asyncio.Task[OutboundHttpResponse]) -> None:
        if self._tasks.pop(ticket, None) is None or task.cancelled():
            return
        error = task.exception()
        if error is None:
            response = task.result()
        else:
            log.error("the courier failed", exc_info=error)
            response = OutboundHttpResponse(None, f"The delivery failed: {type(error).__name__}.", b"", 0)
        if self._on_responses is not None:
            self._on_responses([(ticket, response)])

    async def _send_queued(self, request: OutboundHttpRequest) -> OutboundHttpResponse:
        if not request.queue_key:
            return await self._send_one(request)
        slots = self._semaphores.setdefault(request.queue_key, asyncio.Semaphore(MAX_CONCURRENT_PER_WEBHOOK))
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_S):
                await slots.acquire()
        except TimeoutError:
            return NOT_SENT
        try:
            return await self._send_one(request)
        finally:
            slots.release()

    async def _send_one(self, request: OutboundHttpRequest) -> OutboundHttpResponse:
        started = time.perf_counter()
        status: int | None = None
        excerpt = b""
        retry_after_s = None
        error: str | None = None
        rejection = self._guard.rejection_reason(request.url)  # the settings may have changed since the URL was entered
        if rejection is not None:
            error = f"The url {rejection}"
        else:
            try:
                async with asyncio.timeout(request.deadline_s):
                    status, excerpt, retry_after_s = await self._exchange(request)
            except TimeoutError:
                error = format_message(courier.TIMED_OUT, f"{request.deadline_s:g}")
            except _EXPECTED_FAILURES as failure:
                error = describe_failure(failure)
        duration_ms = int((time.perf_counter() - started) * SECOND_MS)
        return OutboundHttpResponse(status, error, excerpt, duration_ms, retry_after_s)

    async def _exchange(self, request: OutboundHttpRequest) -> tuple[int, bytes, int | None]:
        """(status, first bytes of the body, `Retry-After` in s)."""
        async with self._client.stream("POST", request.url, content=request.body, headers=list(request.headers)) as response:
            _check_header_size(response)
            try:
                excerpt = await _read_body(response)
            except httpcore.RemoteProtocolError as error:
                raise TruncatedWebhookResponseError from error
            pause_s = courier.parse_retry_after_s(response.headers.get("Retry-After"), self._clock.now_ms())
            return response.status_code, excerpt, pause_s


def _check_header_size(response: httpx.Response) -> None:
    lines = response.headers.raw
    if len(lines) > MAX_RESPONSE_HEADERS or sum(len(name) + len(value) for name, value in lines) > MAX_RESPONSE_HEADER_BYTES:
        raise httpcore.RemoteProtocolError("the response has too many or too long headers")


async def _read_body(response: httpx.Response) -> bytes:
    """Reads the body to its end and returns its first bytes. Raises ResponseTooLongError."""
    excerpt, length = bytearray(), 0
    async for piece in response.aiter_raw():
        length += len(piece)
        if length > MAX_RESPONSE_BYTES:
            raise ResponseTooLongError
        excerpt += piece[: MAX_EXCERPT_BYTES - len(excerpt)]
    return bytes(excerpt)


_EXPECTED_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpx.InvalidURL,
    TruncatedWebhookResponseError,
    ResponseTooLongError,
    OSError,
    ValueError,
)


def describe_failure(failure: BaseException) -> str:
    """A failure of an exchange as a sentence for the delivery log."""
    match failure:
        case ResponseTooLongError():
            return courier.TOO_LONG
        case TruncatedWebhookResponseError():
            return courier.CLOSED_MID_RESPONSE
        case httpcore.RemoteProtocolError() if str(failure).startswith("Server disconnected"):
            return courier.CLOSED_WITHOUT_RESPONSE
        case httpcore.RemoteProtocolError():
            return format_message(courier.NOT_HTTP, failure)
        case httpcore.LocalProtocolError():
            return format_message(courier.UNSENDABLE, failure)
    match _find_os_error(failure):
        case ForbiddenAddressError() as error:
            return format_message(courier.FORBIDDEN_ADDRESS, error)
        case UnknownHostError() as error:
            return format_message(courier.UNKNOWN_HOST, error)
        case ssl.SSLCertVerificationError() as error:
            return format_message(courier.UNTRUSTED_CERTIFICATE, error.verify_message)
        case ssl.SSLError() as error:
            return format_message(courier.TLS_FAILED, error.reason or error)
        case OSError() as error if error.errno in (errno.ECONNRESET, errno.EPIPE):
            return courier.CONNECTION_RESET
        case OSError() as error:
            return format_message(courier.CONNECT_FAILED, error.strerror or error)
    return f"The delivery failed: {type(failure).__name__}."


def _find_os_error(failure: BaseException) -> OSError | None:
    """The error of the operating system, the resolver or the guard below a failure: httpcore and anyio wrap it."""
    found: OSError | None = None
    error: BaseException | None = failure
    while error is not None:
        if isinstance(error, ForbiddenAddressError | UnknownHostError):
            return error
        if isinstance(error, OSError):
            found = error
        error = error.__cause__ or error.__context__
    return found
