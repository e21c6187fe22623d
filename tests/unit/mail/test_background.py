"""The background queue counts what became of its mails; without a server they are logged."""

from __future__ import annotations

import asyncio
import logging

import pytest

from adapters.mail.background import MAX_PENDING, InProcessBackgroundMailer, LogMailer
from domain.kernel.errors import Unavailable


class SlowMailer:
    """Accepts a mail once `goes_on` is set; refuses those to `nobody`."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def send(self, to: str, subject: str, text: str) -> None:
        await self.goes_on.wait()
        if to == "nobody":
            raise Unavailable("The mail could not be sent.")


async def test_sent_failed_and_dropped_mails_are_counted() -> None:
    mailer = SlowMailer()
    queue = InProcessBackgroundMailer(mailer=mailer)
    for number in range(MAX_PENDING + 3):
        queue.enqueue("nobody" if number < 2 else "somebody", "Subject", "Text")
    assert (queue.pending, queue.dropped) == (MAX_PENDING, 3)
    mailer.goes_on.set()
    await queue.close()
    assert (queue.pending, queue.sent, queue.failed, queue.dropped) == (0, MAX_PENDING - 2, 2, 3)


async def test_without_a_server_the_mail_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    await LogMailer().send("ada@example.com", "Your code", "123456")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "123456" in record.getMessage()
