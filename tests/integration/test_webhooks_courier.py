"""The courier against receivers that behave badly: what is bounded stays bounded, and the log says what happened."""

from __future__ import annotations

import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.delivery.courier import EXCERPT, HttpCourier
from adapters.delivery.guard import AddressGuard
from domain.kernel.clock import SECOND_MS
from domain.webhooks.ports import Post
from support.receiver import (
    Behaviour,
    answers,
    drips,
    in_turn,
    never_answers,
    pours,
    receiving,
    resets,
    says_and_closes,
)
from support.webhook_world import MovableClock

SHORT_S = 0.4


@pytest.fixture
async def courier() -> AsyncIterator[HttpCourier]:
    courier = HttpCourier(clock=MovableClock(), guard=AddressGuard(allow_private=True))
    yield courier
    await courier.close()


def post(url: str, deadline_s: float = 10.0) -> Post:
    return Post(url, (("Content-Type", "application/json"), ("X-Service-Event", "ping")), b'{"a":1}', deadline_s)


async def test_exactly_the_bytes_and_headers_given_are_sent(courier: HttpCourier) -> None:
    async with receiving(answers()) as receiver:
        reply = await courier.post(post(receiver.url))
        [got] = receiver.got
    assert (reply.status, reply.error, reply.excerpt) == (200, None, b"ok")
    assert got.body == b'{"a":1}'
    assert got.headers["x-service-event"] == "ping"
    assert got.headers["accept-encoding"] == "identity"
    assert "cookie" not in got.headers


@pytest.mark.parametrize(
    "behave",
    [
        never_answers(),
        drips(b"X-Slow: y\r\n", b"HTTP/1.1 200 OK\r\n"),
        drips(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        drips(b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        drips(b"1\r\nx\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        drips(b"H"),
    ],
    ids=["silence", "headers", "1xx", "body", "chunks", "status line"],
)
async def test_the_deadline_cuts_whatever_is_dripped(courier: HttpCourier, behave: Behaviour) -> None:
    async with receiving(behave) as receiver:
        reply = await courier.post(post(receiver.url, SHORT_S))
    assert reply.status is None
    assert reply.error is not None
    assert reply.duration_ms < 5_000


async def test_of_a_huge_answer_only_the_beginning_is_taken(courier: HttpCourier) -> None:
    async with receiving(pours(100)) as receiver:
        reply = await courier.post(post(receiver.url))
        assert reply.status == 200
        assert len(reply.excerpt) == EXCERPT
        while len(receiver.lines) < 2:
            import asyncio

            await asyncio.sleep(0.01)
        assert int(receiver.lines[-1]) < 100_000_000


async def test_a_compressed_answer_is_not_decoded(courier: HttpCourier) -> None:
    bomb = gzip.compress(bytes(3_000_000))
    async with receiving(answers(headers="Content-Encoding: gzip\r\n", body=bomb)) as receiver:
        reply = await courier.post(post(receiver.url))
    assert reply.excerpt == bomb[:EXCERPT]


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (says_and_closes(b""), "without an answer"),
        (says_and_closes(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), "in the middle"),
        (resets(), "reset"),
        (says_and_closes(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "not HTTP"),
        (says_and_closes(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 5_000 + b"\r\n"), "not HTTP"),
        (says_and_closes(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 100_000 + b"\r\n\r\n"), "not HTTP"),
    ],
    ids=["closed", "cut", "reset", "not http", "many headers", "long header"],
)
async def test_a_broken_answer_is_a_failure_that_says_what_was_broken(courier: HttpCourier, behave: Behaviour, said: str) -> None:
    async with receiving(behave) as receiver:
        reply = await courier.post(post(receiver.url))
    assert reply.status is None
    assert said in str(reply.error)


async def test_http_1_0_and_an_answer_without_a_length_are_fine(courier: HttpCourier) -> None:
    async with receiving(says_and_closes(b"HTTP/1.0 200 OK\r\n\r\nfine")) as receiver:
        reply = await courier.post(post(receiver.url))
    assert (reply.status, reply.excerpt) == (200, b"fine")


async def test_nobody_listening_and_no_such_name_are_failures_in_words(courier: HttpCourier) -> None:
    assert "connection failed" in str((await courier.post(post("http://127.0.0.1:9/"))).error)
    assert "cannot be resolved" in str((await courier.post(post("http://no-such-host.invalid/"))).error)


async def test_retry_after_is_read_as_seconds_and_as_a_date(courier: HttpCourier) -> None:
    in_a_minute = courier._clock.now_ms() / SECOND_MS + 60
    import email.utils

    date = email.utils.formatdate(in_a_minute, usegmt=True)
    behave = in_turn(
        answers(503, "Retry-After: 120\r\n"), answers(503, f"Retry-After: {date}\r\n"), answers(503, "Retry-After: soon\r\n")
    )
    async with receiving(behave) as receiver:
        assert (await courier.post(post(receiver.url))).retry_after_s == 120
        second = (await courier.post(post(receiver.url))).retry_after_s
        assert second is not None
        assert 55 <= second <= 60
        assert (await courier.post(post(receiver.url))).retry_after_s is None


async def test_the_environments_proxy_and_cookies_are_ignored(courier: HttpCourier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with receiving(answers(headers="Set-Cookie: a=b\r\n")) as receiver:
        assert (await courier.post(post(receiver.url))).status == 200
        assert (await courier.post(post(receiver.url))).status == 200
        assert "cookie" not in receiver.got[1].headers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", cert, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return key, cert


async def test_a_certificate_is_checked(courier: HttpCourier, certificate: tuple[Path, Path]) -> None:
    key, cert = certificate
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    trusting = HttpCourier(
        clock=MovableClock(), guard=AddressGuard(allow_private=True), tls=ssl.create_default_context(cafile=str(cert))
    )
    async with receiving(answers(), tls=server) as receiver:
        refused = await courier.post(post(receiver.url))
        accepted = await trusting.post(post(receiver.url))
        await trusting.close()
        assert len(receiver.got) == 1
    assert "TLS" in str(refused.error)
    assert accepted.status == 200
