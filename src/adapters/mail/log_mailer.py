"""The mailer without an SMTP server: writes the mail to the log at WARNING, for the operator to forward."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class LogMailer:
    async def send(self, to: str, subject: str, text: str) -> None:
        log.warning("no SMTP server is configured, so this mail was not sent; to %s: %s\n%s", to, subject, text)
