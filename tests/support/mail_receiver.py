"""A mail server that keeps what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from queue import SimpleQueue

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler

from support.ports import free_ports
from support.waiting import TIMEOUT_S


class Postbox(MessageHandler):
    def __init__(self) -> None:
        super().__init__()
        self.mails: SimpleQueue[Message] = SimpleQueue()

    def handle_message(self, message: Message) -> None:
        self.mails.put(message)


@contextmanager
def mail_receiver() -> Iterator[tuple[Postbox, int]]:
    """The mails, and the port that they are sent to."""
    box, [port] = Postbox(), free_ports(1)
    controller = Controller(box, hostname="127.0.0.1", port=port, ready_timeout=TIMEOUT_S)
    controller.start()
    yield box, port
    controller.stop()
