"""Without a mail server the operator is the postman: the mail stands in the log, at WARNING so that it is seen."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class LogMailer:
    async def send(self, to: str, subject: str, text: str) -> None:
        log.warning("no SMTP server is set, so this mail was not sent; to %s: %s\n%s", to, subject, text)
