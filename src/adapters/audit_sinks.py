"""Where the stream of the audit log goes: HTTP, or syslog (RFC 5424) over UDP (RFC 5426), TCP (RFC 6587, octet counting) and TLS
(RFC 5425).

Syslog has no acknowledgement. Over TCP and TLS each batch has a connection of its own: we end our side and wait until the
receiver ends its side. If it does so in order, after our end, its program has read every byte; a receiver that stops earlier
leaves unread data, and the connection is reset. Datagrams are sent once, and may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx

from domain.audit.stream import AuditExportLine, AuditSinkRefusedError, AuditSinkUnavailableError
from domain.kernel.clock import Clock, to_iso
from domain.webhooks.reference import service_signature, standard_signature

HTTP_TIMEOUT_S: Final = 30.0
_TRY_AGAIN = frozenset({408, 425, 429})
SYSLOG_TIMEOUT_S: Final = 10.0
_PRIORITY: Final = 13 * 8 + 6
"""Facility "log audit", severity "informational"."""
_MAX_DATAGRAM: Final = 65_507
_TCP_CLOSED: Final = 7
"""The state of a Linux socket after both sides have ended, ours first."""


class HttpAuditSink:
    """Batches of NDJSON by `POST`, signed as webhooks are. `secret`: `whsec_…` as webhooks have it, or None. The id of a batch
    comes from its content, so repetitions have the same."""

    def __init__(self, url: str, secret: str | None, tls: ssl.SSLContext, clock: Clock) -> None:
        self._url = url
        self._secret = secret
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=HTTP_TIMEOUT_S, verify=tls)

    async def deliver(self, lines: Sequence[AuditExportLine]) -> None:
        body = "".join(f"{line.text}\n" for line in lines).encode()
        try:
            async with self._client.stream("POST", self._url, content=body, headers=self._headers(body)) as response:
                status = response.status_code
        except httpx.HTTPError as error:
            raise AuditSinkUnavailableError(str(error) or type(error).__name__) from error
        if status >= 500 or status in _TRY_AGAIN:
            raise AuditSinkUnavailableError(f"the receiver answered {status}")
        if not 200 <= status < 300:
            raise AuditSinkRefusedError(f"the receiver answered {status}. Check the URL and its access rules")

    def _headers(self, body: bytes) -> dict[str, str]:
        identity, now_s = f"audit_{hashlib.sha256(body).hexdigest()[:32]}", self._clock.now_ms() // 1000
        headers = {"Content-Type": "application/x-ndjson", "webhook-id": identity, "webhook-timestamp": str(now_s)}
        if self._secret is not None:
            headers["webhook-signature"] = standard_signature(self._secret, identity, now_s, body)
            headers["X-Service-Signature"] = service_signature(self._secret, body)
        return headers


def syslog_message(line: AuditExportLine, host: str) -> bytes:
    """The message id is the kind of the event; the text is the line, in UTF-8."""
    return f"<{_PRIORITY}>1 {to_iso(line.at_ms)} {host} latchboard - {line.kind[:32]} - {line.text}".encode()


def own_host_name() -> str:
    """As syslog allows it: printable ASCII without spaces."""
    name = "".join(character for character in socket.gethostname() if "!" <= character <= "~")
    return name[:255] or "-"


@dataclass(frozen=True, slots=True)
class UdpSyslogAuditSink:
    host: str
    port: int

    async def deliver(self, lines: Sequence[AuditExportLine]) -> None:
        await asyncio.to_thread(self._send, lines)

    def _send(self, lines: Sequence[AuditExportLine]) -> None:
        name = own_host_name()
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as datagrams:
                datagrams.settimeout(SYSLOG_TIMEOUT_S)
                datagrams.connect(address)
                for line in lines:
                    datagrams.send(_datagram(line, name))
        except OSError as error:
            raise AuditSinkUnavailableError(_reason(error)) from error


def _datagram(line: AuditExportLine, name: str) -> bytes:
    message = syslog_message(line, name)
    if len(message) > _MAX_DATAGRAM:
        raise AuditSinkRefusedError(f"a record has {len(message)} bytes and fits in no datagram. Use syslog+tcp or syslog+tls")
    return message


@dataclass(slots=True)
class TcpSyslogAuditSink:
    """`tls`: None for plain TCP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    _open: socket.socket | None = field(default=None, init=False)

    async def deliver(self, lines: Sequence[AuditExportLine]) -> None:
        name = own_host_name()
        messages = [syslog_message(line, name) for line in lines]
        content = b"".join(b"%d %b" % (len(message), message) for message in messages)
        try:
            await asyncio.to_thread(self._send, content)
        except asyncio.CancelledError:
            self._abort()
            raise

    def _send(self, content: bytes) -> None:
        try:
            with socket.create_connection((self.host, self.port), SYSLOG_TIMEOUT_S) as plain:
                self._open = plain
                connection = plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=self.host)
                with connection:
                    connection.sendall(content)
                    _end(connection)
        except ssl.SSLCertVerificationError as error:
            raise AuditSinkRefusedError(
                f"the receiver's certificate is not trusted: {error.verify_message}. See --ca-file"
            ) from error
        except OSError as error:
            raise AuditSinkUnavailableError(_reason(error)) from error
        finally:
            self._open = None

    def _abort(self) -> None:
        """End the wait of the thread that sends."""
        if (connection := self._open) is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _end(connection: socket.socket) -> None:
    """End our side, and wait for the receiver's. Raises OSError if the receiver ended first, or not in time."""
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(0)
        with contextlib.suppress(ssl.SSLWantReadError):
            connection.unwrap()  # sends close_notify; the receiver's answer is not needed
        connection.settimeout(SYSLOG_TIMEOUT_S)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65_536):
        pass  # what a receiver says is no part of the protocol
    if error := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise ConnectionResetError(error, "the receiver closed the connection before it had read everything")
    if sys.platform == "linux" and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_CLOSED:
        raise ConnectionResetError("the receiver closed the connection before it had read everything")


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"the receiver did not answer or close within {SYSLOG_TIMEOUT_S:.0f} s"
    return error.strerror or str(error)
