"""The error messages of both couriers. They appear in the delivery log, which mostly the owner of the receiver reads."""

from __future__ import annotations

import email.utils
import os

from domain.kernel.clock import SECOND_MS

MAX_EXCERPT_BYTES = 4_096
"""At most this much of a response body is kept."""
MAX_RESPONSE_BYTES = 1024 * 1024
"""A longer response, or one without an end, is a failure: such a receiver has accepted nothing."""
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
