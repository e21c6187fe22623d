"""What couriers say of an answer, in one wording, for whoever looks at the log of deliveries: mostly the receiver's owner."""

from __future__ import annotations

import email.utils
import os

from domain.kernel.clock import SECOND_MS

EXCERPT = 4_096
"""Of an answer's body, the most that is read."""
LONGEST_RETRY_AFTER = 64
_MOST = 300

LATE = "No complete answer within {detail} seconds."
CERTIFICATE = "The TLS certificate is not trusted: {detail}."
TLS = "TLS failed: {detail}."
CONNECT = "The connection failed: {detail}."
CLOSED = "The receiver closed the connection without an answer."
CUT = "The receiver closed the connection in the middle of its answer."
RESET = "The receiver reset the connection."
NOT_HTTP = "What the receiver sent is not HTTP: {detail}."
FORBIDDEN = "Not sent: {detail}."
UNKNOWN_HOST = "The host name {detail} cannot be resolved."
UNSENDABLE = "The delivery cannot be sent: {detail}."

_SENTENCES = {
    "late": LATE,
    "certificate": CERTIFICATE,
    "tls": TLS,
    "connect": CONNECT,
    "closed": CLOSED,
    "cut": CUT,
    "reset": RESET,
    "not_http": NOT_HTTP,
    "io": CONNECT,
    "unsendable": UNSENDABLE,
    "told": "{detail}",
}


def say(sentence: str, detail: object = "") -> str:
    return sentence.format(detail=detail)[:_MOST]


def explained(kind: str, number: int, detail: str) -> str:
    """The native courier's failure in a sentence; `number` is the operating system's, 0 where there is none."""
    return say(_SENTENCES[kind], os.strerror(number) if number else detail)


def retry_after_s(text: str | None, now_ms: int) -> int | None:
    """RFC 9110 10.2.3: seconds, or a date. What is neither is passed over."""
    if text is None or len(text) > LONGEST_RETRY_AFTER:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text), 10**9)
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return max(0, int(moment.timestamp() - now_ms / SECOND_MS))
    except (ValueError, OverflowError):  # no date, or one beyond what a date can be
        return None
