"""Mail over real SMTP on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from email import message_from_bytes, policy

import pytest
from aiosmtpd.smtp import SMTP, Envelope

from adapters.mail.smtp import SmtpMailer, SmtpServerConfig
from domain.kernel.errors import Unavailable


class ReceivingServer:
    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.answer = "250 OK"

    async def handle_DATA(self, server: SMTP, session: object, envelope: Envelope) -> str:
        self.envelopes.append(envelope)
        return self.answer


@pytest.fixture
def receiving_server() -> ReceivingServer:
    return ReceivingServer()


@pytest.fixture
async def port(receiving_server: ReceivingServer) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(receiving_server, loop=loop), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_a_mail_arrives_complete(receiving_server: ReceivingServer, port: int) -> None:
    mailer = SmtpMailer(SmtpServerConfig.parse(f"smtp://127.0.0.1:{port}"), sender="noreply@example.com")
    await mailer.send("ada@example.com", "Your code", "Hällo,\n\n123456\n")
    [envelope] = receiving_server.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == ("noreply@example.com", ["ada@example.com"])
    assert isinstance(envelope.content, bytes)
    message = message_from_bytes(envelope.content, policy=policy.default)
    assert (message["Subject"], message["To"]) == ("Your code", "ada@example.com")
    assert "123456" in message.get_content()
    assert "Hällo" in message.get_content()


async def test_a_rejected_mail_raises_unavailable(receiving_server: ReceivingServer, port: int) -> None:
    receiving_server.answer = "554 no"
    with pytest.raises(Unavailable):
        await SmtpMailer(SmtpServerConfig.parse(f"smtp://127.0.0.1:{port}")).send("ada@example.com", "s", "t")


async def test_a_server_that_does_not_answer_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = SmtpServerConfig.parse(f"smtp://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Unavailable):
            await SmtpMailer(address, timeout_s=0.1).send("ada@example.com", "s", "t")


async def test_an_address_cannot_inject_headers(receiving_server: ReceivingServer, port: int) -> None:
    with pytest.raises(Unavailable):
        await SmtpMailer(SmtpServerConfig.parse(f"smtp://127.0.0.1:{port}")).send("a@b.de\nBcc: eve@example.com", "s", "t")
    assert receiving_server.envelopes == []


def test_a_url_configures_the_server() -> None:
    address = SmtpServerConfig.parse("smtps://ada%40example.com:p%2Fw@mail.example.com")
    assert (address.host, address.port, address.tls, address.user, address.password) == (
        "mail.example.com",
        465,
        True,
        "ada@example.com",
        "p/w",
    )
    assert "p/w" not in repr(address)


@pytest.mark.parametrize("url", ["http://host", "smtp://", "host:25", "smtp://host:port", "smtp://host/path"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError):
        SmtpServerConfig.parse(url)
