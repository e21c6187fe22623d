"""Sends mail in the background, for answers that must not tell by their time whether a mail is sent.

The mailer without an SMTP server stands here too: `smtp.py` imports aiosmtplib, which only an SMTP server needs.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import field

from domain.accounts.ports import Mailer
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable

MAX_PENDING = 100
CLOSE_TIMEOUT_S = 1.0

log = logging.getLogger(__name__)


@service
class InProcessBackgroundMailer:
    """Its tasks belong to this queue: at most `MAX_PENDING`, counted, and cancelled by `close`."""

    mailer: Mailer
    sent: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    """Mails that the mail server did not accept."""
    dropped: int = field(default=0, init=False)
    """Mails that were not sent because too many were waiting."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def enqueue(self, to: str, subject: str, text: str) -> None:
        if len(self._tasks) >= MAX_PENDING:
            self.dropped += 1
            log.warning("too many mails are waiting, so one was not sent; %d since the start", self.dropped)
            return
        task = asyncio.create_task(self._send(to, subject, text), name="mail")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait a moment for mails that are being sent, then cancel them."""
        if not self._tasks:
            return
        _, left = await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _send(self, to: str, subject: str, text: str) -> None:
        try:
            await self.mailer.send(to, subject, text)
        except Unavailable:
            self.failed += 1
            log.warning("a mail was not accepted and is lost: %s", subject)
        else:
            self.sent += 1


class LogMailer:
    """Writes the mail to the log at WARNING, for the operator to forward."""

    async def send(self, to: str, subject: str, text: str) -> None:
        log.warning("no SMTP server is configured, so this mail was not sent; to %s: %s\n%s", to, subject, text)
