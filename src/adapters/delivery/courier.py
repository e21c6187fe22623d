"""The courier of the Rust extension, which sends on a thread of its own: requests and responses cross in batches.

Python decides which addresses may be connected to. For each new connection the extension requests the addresses of a host; the
name is resolved again, each address is checked, and the extension connects only to the addresses it is given. So the guard has
one definition, in Python. The messages of errors appear in the delivery log, which mostly the owner of the receiver reads.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
from collections.abc import Sequence
from functools import lru_cache

import structlog

from adapters.delivery.address_guard import AddressGuard, ForbiddenAddressError, GuardedResolver, HostLookup, UnknownHostError
from adapters.engine import _native
from domain.kernel.clock import SECOND_MS, Clock
from domain.webhooks.model import MAX_CONCURRENT_PER_WEBHOOK
from domain.webhooks.ports import NOT_SENT, OutboundHttpRequest, OutboundHttpResponse, ResponseCallback

MAX_RETRY_AFTER_LENGTH = 64
_MAX_LENGTH = 300

TIMED_OUT = "No complete response within {detail} seconds."
UNTRUSTED_CERTIFICATE = "The TLS certificate is not trusted: {detail}."
TLS_FAILED = "TLS failed: {detail}."
CONNECT_FAILED = "The connection failed: {detail}."
CLOSED_WITHOUT_RESPONSE = "The receiver closed the connection without a response."
CLOSED_MID_RESPONSE = "The receiver closed the connection in the middle of its response."
TOO_LONG = "The response is longer than 1 MiB."
CONNECTION_RESET = "The receiver reset the connection."
NOT_HTTP = "The receiver did not send valid HTTP: {detail}."
FORBIDDEN_ADDRESS = "Not sent: {detail}."
UNKNOWN_HOST = "The host name {detail} cannot be resolved."
UNSENDABLE = "The delivery cannot be sent: {detail}."

_MESSAGE_BY_KIND = {
    "late": TIMED_OUT,
    "certificate": UNTRUSTED_CERTIFICATE,
    "tls": TLS_FAILED,
    "connect": CONNECT_FAILED,
    "closed": CLOSED_WITHOUT_RESPONSE,
    "cut": CLOSED_MID_RESPONSE,
    "too_long": TOO_LONG,
    "reset": CONNECTION_RESET,
    "not_http": NOT_HTTP,
    "io": CONNECT_FAILED,
    "unsendable": UNSENDABLE,
    "told": "{detail}",
}


def format_message(sentence: str, detail: object = "") -> str:
    return sentence.format(detail=detail)[:_MAX_LENGTH]


def describe_native_failure(kind: str, number: int, detail: str) -> str:
    """A failure of the native courier as a sentence; `number` is the error number of the operating system, or 0."""
    return format_message(_MESSAGE_BY_KIND[kind], os.strerror(number) if number else detail)


def parse_retry_after_s(text: str | None, now_ms: int) -> int | None:
    """The pause in s (RFC 9110, 10.2.3: seconds or a date). None for anything else."""
    if text is None or len(text) > MAX_RETRY_AFTER_LENGTH:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text), 10**9)
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return max(0, int(moment.timestamp() - now_ms / SECOND_MS))
    except (ValueError, OverflowError):  # not a date, or a date out of range
        return None


_DEFAULT_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", "identity"))

log = structlog.get_logger("courier")

_NativeResponse = tuple[int, int | None, bytes, int, str | None, tuple[str, int, str] | None]


class NativeCourier:
    """See the port `Courier`. Call `send` inside the running event loop, and `close` it."""

    def __init__(self, *, clock: Clock, guard: AddressGuard, lookup: HostLookup | None = None, extra_ca: bytes = b"") -> None:
        """`extra_ca`: certificates (PEM) to trust beside those of the system. Raises ValueError when they cannot be read."""
        self._clock = clock
        self._guard = guard
        self.rejection_reason = guard.rejection_reason
        self._resolver = GuardedResolver(guard, lookup)
        self._courier = _native.Courier(extra_ca, MAX_CONCURRENT_PER_WEBHOOK)
        self._on_responses: ResponseCallback | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lookups: set[asyncio.Task[None]] = set()
        if not self._courier.trusted_roots():
            log.warning("the system has no root certificates, so no https receiver is trusted; install ca-certificates")

    def on_responses(self, callback: ResponseCallback) -> None:
        self._on_responses = callback

    def send(self, requests: Sequence[tuple[int, OutboundHttpRequest]]) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._courier.fileno(), self._receive)
        outgoing = []
        rejected = []
        for ticket, request in requests:
            rejection = self._guard.rejection_reason(request.url)  # the settings may have changed since the URL was entered
            if rejection is None:
                place, target, host = _split_url(request.url)
                headers = [("Host", host), *_DEFAULT_HEADERS, *request.headers]
                outgoing.append((ticket, request.queue_key, place, target, headers, request.body, request.deadline_s))
            else:
                rejected.append((ticket, OutboundHttpResponse(None, f"The url {rejection}", b"", 0)))
        if outgoing:
            self._courier.send(outgoing)
        if rejected:
            self._loop.call_soon(self._report, rejected)

    def cancel(self, tickets: Sequence[int]) -> None:
        self._courier.cancel(tickets)

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._courier.fileno())
            self._loop = None
        self._courier.stop()
        lookups = list(self._lookups)
        for task in lookups:
            task.cancel()
        if lookups:
            await asyncio.wait(lookups, timeout=1.0)
        self._resolver.close()

    def _receive(self) -> None:
        came, questions = self._courier.take_events()
        for number, host, port, https in questions:
            task = asyncio.create_task(self._resolve(number, host, port, https), name=f"where is {host}")
            self._lookups.add(task)
            task.add_done_callback(self._lookups.discard)
        if came:
            now_ms = self._clock.now_ms()
            self._report([(answer[0], _to_response(answer, now_ms)) for answer in came])

    def _report(self, responses: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        if self._on_responses is not None:
            self._on_responses(responses)

    async def _resolve(self, number: int, host: str, port: int, https: bool) -> None:
        try:
            self._courier.resolve_lookup(number, await self._resolver.resolve(host, port, https=https))
        except ForbiddenAddressError as error:
            self._courier.fail_lookup(number, format_message(FORBIDDEN_ADDRESS, error))
        except UnknownHostError:
            self._courier.fail_lookup(number, format_message(UNKNOWN_HOST, host))
        except Exception as error:
            log.exception("a host could not be looked up", host=host)
            self._courier.fail_lookup(number, f"The delivery failed: {type(error).__name__}.")


@lru_cache(maxsize=4_096)
def _split_url(url: str) -> tuple[tuple[bool, str, int], str, str]:
    """Endpoint, path with query, and `Host` of a URL that the guard allows."""
    from yarl import URL

    parts = URL(url)
    https = parts.scheme == "https"
    return (https, parts.raw_host or "", parts.port or 0), parts.raw_path_qs, parts.host_port_subcomponent or ""


def _to_response(answer: _NativeResponse, now_ms: int) -> OutboundHttpResponse:
    _, status, excerpt, duration_ms, retry_after, failure = answer
    if failure is not None and failure[0] == "unsent":
        return NOT_SENT
    if failure is not None:
        return OutboundHttpResponse(None, describe_native_failure(*failure), excerpt, duration_ms)
    pause_s = None if retry_after is None else parse_retry_after_s(retry_after, now_ms)
    return OutboundHttpResponse(status, None, excerpt, duration_ms, pause_s)
