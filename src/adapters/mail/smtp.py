"""Mail by SMTP (RFC 5321), with a timeout of ten seconds.

`smtp://` uses STARTTLS if the server offers it, and requires it when a password is sent; `smtps://` uses TLS from the start.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import make_msgid
from urllib.parse import unquote, urlsplit

import aiosmtplib

from domain.kernel.errors import Unavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SmtpServerConfig:
    host: str
    port: int
    tls: bool
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> SmtpServerConfig:
        """`smtp://user:password@host:587` or `smtps://…`. Raises ValueError, which does not quote the password."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("must be a URL such as smtp://user:password@host:587") from None
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("must be a URL such as smtp://user:password@host:587 or smtps://host")
        tls = parts.scheme == "smtps"
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password else None
        return cls(parts.hostname, port or (465 if tls else 587), tls, user, password)


class SmtpMailer:
    def __init__(self, server: SmtpServerConfig, *, sender: str | None = None, timeout_s: float = 10.0) -> None:
        self._server = server
        self._sender = sender or f"latchboard@{server.host}"
        self._timeout_s = timeout_s

    async def send(self, to: str, subject: str, text: str) -> None:
        message = EmailMessage()
        server = self._server
        try:
            message["From"], message["To"], message["Subject"] = self._sender, to, subject
            message["Message-ID"] = make_msgid(domain=self._sender.rpartition("@")[2])
            message.set_content(text)
            await aiosmtplib.send(
                message,
                hostname=server.host,
                port=server.port,
                username=server.user,
                password=server.password,
                use_tls=server.tls,
                start_tls=True if server.password and not server.tls else None,
                timeout=self._timeout_s,
            )
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            log.error("mail was not accepted by %s:%d: %s", server.host, server.port, type(error).__name__)
            raise Unavailable("The mail could not be sent. Try again later, or inform the operator.") from error
