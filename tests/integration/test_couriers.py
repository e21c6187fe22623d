"""Both couriers against receivers that behave badly: what is bounded stays bounded, and the log says what happened."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.delivery.address_guard import AddressGuard
from adapters.delivery.courier import NativeCourier
from domain.kernel.clock import SECOND_MS
from domain.webhooks.ports import NOT_SENT, OutboundHttpRequest
from support.couriers import COURIERS, CourierClient
from support.reference_courier import MAX_EXCERPT_BYTES, MAX_RESPONSE_BYTES
from support.waiting import TIMEOUT_S, until
from support.webhook_receiver import (
    Behaviour,
    Receiver,
    drip,
    in_sequence,
    never_respond,
    reset,
    respond,
    respond_once_open,
    respond_with_megabytes,
    send_and_close,
    serving,
    webhook_receiver,
)
from support.webhook_world import MovableClock

SHORT_S = 0.4
CLOCK = MovableClock()


@pytest.fixture(params=COURIERS)
async def courier(request: pytest.FixtureRequest) -> AsyncIterator[CourierClient]:
    courier = request.param(clock=CLOCK, guard=AddressGuard(allow_private=True))
    yield CourierClient(courier)
    await courier.close()


def post(url: str, deadline_s: float = TIMEOUT_S) -> OutboundHttpRequest:
    return OutboundHttpRequest(url, (("Content-Type", "application/json"), ("X-Service-Event", "ping")), b'{"a":1}', deadline_s)


async def test_exactly_the_bytes_and_headers_given_are_sent(courier: CourierClient) -> None:
    async with webhook_receiver(respond()) as receiver:
        reply = await courier.send(post(receiver.url))
        [got] = receiver.requests
    assert (reply.status, reply.error, reply.excerpt) == (200, None, b"ok")
    assert got.body == b'{"a":1}'
    assert got.headers["x-service-event"] == "ping"
    assert got.headers["accept-encoding"] == "identity"
    assert "cookie" not in got.headers


@pytest.mark.parametrize(
    "behave",
    [
        never_respond(),
        drip(b"X-Slow: y\r\n", b"HTTP/1.1 200 OK\r\n"),
        drip(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        drip(b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        drip(b"1\r\nx\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        drip(b"H"),
    ],
    ids=["silence", "headers", "1xx", "body", "chunks", "status line"],
)
async def test_the_deadline_ends_a_response_that_arrives_in_small_pieces(courier: CourierClient, behave: Behaviour) -> None:
    async with webhook_receiver(behave) as receiver:
        reply = await courier.send(post(receiver.url, SHORT_S))
    assert reply.status is None
    assert reply.error is not None


async def test_a_long_response_is_a_success_of_which_the_beginning_is_kept(courier: CourierClient) -> None:
    body = b"x" * 900_000
    async with webhook_receiver(respond(body=body)) as receiver:
        reply = await courier.send(post(receiver.url))
    assert (reply.status, reply.excerpt) == (200, body[:MAX_EXCERPT_BYTES])


async def test_a_response_without_an_end_is_no_success_and_is_not_read_on(courier: CourierClient) -> None:
    async with webhook_receiver(respond_with_megabytes(100)) as receiver:
        reply = await courier.send(post(receiver.url))
        assert (reply.status, reply.error) == (None, "The response is longer than 1 MiB.")
        while len(receiver.request_lines) < 2:
            await asyncio.sleep(0.01)
        assert int(receiver.request_lines[-1]) < 100_000_000


async def test_a_compressed_response_is_not_decoded(courier: CourierClient) -> None:
    bomb = gzip.compress(bytes(3_000_000))
    async with webhook_receiver(respond(headers="Content-Encoding: gzip\r\n", body=bomb)) as receiver:
        reply = await courier.send(post(receiver.url))
    assert reply.excerpt == bomb[:MAX_EXCERPT_BYTES]


@pytest.mark.parametrize(
    ("behave", "text"),
    [
        (send_and_close(b""), "without a response"),
        (send_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"), "in the middle"),
        (reset(), "reset"),
        (send_and_close(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "not send valid HTTP"),
        (send_and_close(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 5_000 + b"\r\n"), "not send valid HTTP"),
        (send_and_close(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 100_000 + b"\r\n\r\n"), "not send valid HTTP"),
    ],
    ids=["closed", "cut", "reset", "not http", "many headers", "long header"],
)
async def test_a_broken_response_is_a_failure_that_names_the_cause(courier: CourierClient, behave: Behaviour, text: str) -> None:
    async with webhook_receiver(behave) as receiver:
        reply = await courier.send(post(receiver.url))
    assert reply.status is None
    assert text in str(reply.error)


async def test_http_1_0_and_a_response_without_a_length_are_accepted(courier: CourierClient) -> None:
    async with webhook_receiver(send_and_close(b"HTTP/1.0 200 OK\r\n\r\nfine")) as receiver:
        reply = await courier.send(post(receiver.url))
    assert (reply.status, reply.excerpt) == (200, b"fine")


async def test_a_refused_connection_and_an_unknown_host_are_reported_as_such(courier: CourierClient) -> None:
    assert "connection failed" in str((await courier.send(post("http://127.0.0.1:9/"))).error)
    assert "cannot be resolved" in str((await courier.send(post("http://no-such-host.invalid/"))).error)


async def test_retry_after_is_read_as_seconds_and_as_a_date(courier: CourierClient) -> None:
    in_two_minutes = CLOCK.now_ms() / SECOND_MS + 120
    date = email.utils.formatdate(in_two_minutes, usegmt=True)
    behave = in_sequence(
        respond(503, "Retry-After: 120\r\n"), respond(503, f"Retry-After: {date}\r\n"), respond(503, "Retry-After: soon\r\n")
    )
    async with webhook_receiver(behave) as receiver:
        assert (await courier.send(post(receiver.url))).retry_after_s == 120
        second = (await courier.send(post(receiver.url))).retry_after_s
        assert second is not None
        assert 30 <= second <= 120
        assert (await courier.send(post(receiver.url))).retry_after_s is None


@pytest.mark.parametrize(
    "wild", ["Mon, 01 Jan 99999999999 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -0000", "9" * 60, "-5", "x" * 300]
)
async def test_an_invalid_retry_after_affects_no_response(courier: CourierClient, wild: str) -> None:
    async with webhook_receiver(respond(503, f"Retry-After: {wild}\r\n")) as receiver, webhook_receiver(respond()) as other:
        replies = await courier.send_all([post(receiver.url), post(other.url), post(receiver.url), post(other.url)])
    assert [reply.status for reply in replies] == [503, 200, 503, 200]


async def test_the_environments_proxy_and_cookies_are_ignored(courier: CourierClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with webhook_receiver(respond(headers="Set-Cookie: a=b\r\n")) as receiver:
        assert (await courier.send(post(receiver.url))).status == 200
        assert (await courier.send(post(receiver.url))).status == 200
        assert "cookie" not in receiver.requests[1].headers


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ca.pem`, and `leaf.pem` with `leaf.key` for 127.0.0.1 that it has signed."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=TIMEOUT_S, cwd=folder)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        "req",
        "-x509",
        *new,
        "-days",
        "2",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=Test CA",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )  # Python 3.13 is strict about both
    openssl("req", *new, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=127.0.0.1")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    openssl(
        "x509",
        "-req",
        "-in",
        "leaf.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        "names",
        "-out",
        "leaf.pem",
    )
    return folder


@pytest.mark.parametrize("kind", COURIERS)
async def test_a_certificate_is_checked(kind: type[NativeCourier], certificates: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates / "leaf.pem", certificates / "leaf.key")
    guard = AddressGuard(allow_private=True)
    wary = kind(clock=CLOCK, guard=guard)
    trusting = kind(clock=CLOCK, guard=guard, extra_ca=(certificates / "ca.pem").read_bytes())
    async with webhook_receiver(respond(), tls=server) as receiver:
        refused = await CourierClient(wary).send(post(receiver.url))
        counter = CourierClient(trusting)
        accepted = [await counter.send(post(receiver.url)) for _ in range(3)]
        elsewhere = await counter.send(post(receiver.url.replace("127.0.0.1", "localhost")))
        await wary.close()
        await trusting.close()
        assert len(receiver.requests) == 3
    assert "The TLS certificate is not trusted" in str(refused.error)
    assert [reply.status for reply in accepted] == [200, 200, 200]
    assert "The TLS certificate is not trusted" in str(elsewhere.error)


async def test_the_deadline_covers_a_tls_handshake_that_stalls(courier: CourierClient) -> None:
    async def ignore_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()

    async with serving(ignore_hello) as address:
        reply = await courier.send(post(f"https://{address}/", SHORT_S))
    assert "No complete response within 0.4 seconds" in str(reply.error)


async def test_the_deadline_covers_a_request_that_is_not_read(courier: CourierClient) -> None:
    async def stop_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(3_600)

    async with serving(stop_reading) as address:
        reply = await courier.send(replace(post(f"http://{address}/", SHORT_S), body=bytes(20_000_000)))
    assert "No complete response within 0.4 seconds" in str(reply.error)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_after_the_deadline_nothing_more_is_sent_to_a_receiver_that_reads_on() -> None:
    read = 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal read
        await asyncio.sleep(2 * SHORT_S)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1_000_000):
                read += len(data)
        writer.close()

    courier = NativeCourier(clock=CLOCK, guard=AddressGuard(allow_private=True))
    async with await asyncio.start_server(slow, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        large = replace(post(f"http://127.0.0.1:{port}/", SHORT_S), body=bytes(50_000_000))
        assert (await CourierClient(courier).send(large)).status is None
        await asyncio.sleep(4 * SHORT_S)
    await courier.close()
    assert 0 < read < 50_000_000


async def test_a_receiver_that_supports_only_http_2_is_reported_as_not_http(courier: CourierClient) -> None:
    settings = b"\0\0\0\x04\0\0\0\0\0"
    async with webhook_receiver(send_and_close(settings)) as receiver:
        reply = await courier.send(post(receiver.url))
    assert reply.status is None
    assert "not send valid HTTP" in str(reply.error)


def interim(*statuses: int) -> Behaviour:
    """Interim answers before the one that counts."""

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for status in statuses:
            writer.write(f"HTTP/1.1 {status} x\r\n\r\n".encode())
        writer.write(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nTrailer: x\r\n\r\n")
        await writer.drain()
        return True

    return behave


async def test_interim_responses_are_skipped_and_chunks_are_joined(courier: CourierClient) -> None:
    async with webhook_receiver(interim(100, 103, 100)) as receiver:
        replies = [await courier.send(post(receiver.url)) for _ in range(2)]
    assert [(reply.status, reply.excerpt) for reply in replies] == [(201, b"ok")] * 2


async def test_concurrent_requests_each_get_their_own_response(courier: CourierClient) -> None:
    async def echo(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await respond(body=receiver.requests[-1].headers["x-number"].encode())(receiver, reader, writer)
        return True

    async with webhook_receiver(echo) as receiver:
        numbered = [OutboundHttpRequest(receiver.url, (("X-Number", str(number)),), b"{}", TIMEOUT_S) for number in range(200)]
        replies = await courier.send_all(numbered)
    assert [reply.excerpt for reply in replies] == [str(number).encode() for number in range(200)]


async def test_a_cancelled_request_gets_no_response_and_its_connection_is_closed(courier: CourierClient) -> None:
    async with webhook_receiver(never_respond()) as receiver:
        ticket, future = courier.submit(post(receiver.url))
        await receiver.wait_for(1)
        courier.courier.cancel([ticket, 999])
        async with webhook_receiver(respond()) as other:
            assert (await courier.send(post(other.url))).status == 200
    assert not future.done()
    assert ticket not in courier.answered


async def test_four_requests_of_a_queue_are_sent_at_once_and_one_that_waits_too_long_is_not_sent(courier: CourierClient) -> None:
    async def send_both() -> tuple[int, int, int]:
        """How many requests were answered, how many reached the dead receiver, and how many were not sent: a process that stands
        still may find any deadline over."""
        async with webhook_receiver(respond_once_open(4)) as receiver, webhook_receiver(never_respond()) as dead:
            posts = [replace(post(receiver.url), queue_key="a") for _ in range(12)]
            posts += [replace(post(dead.url, 2.0), queue_key="b") for _ in range(6)]
            replies = await courier.send_all(posts)
            assert receiver.max_open <= 4
            answered = sum(reply.status == 200 for reply in replies[:12])
            return answered, len(dead.requests), sum(reply is NOT_SENT for reply in replies[12:])

    await until(send_both, lambda seen: seen == (12, 4, 2))


def hangs_up_after(count: int) -> Behaviour:
    """Answers as if the connection stayed open, and closes it without a word instead of answering the next request on it."""
    served: dict[asyncio.StreamWriter, int] = {}

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        served[writer] = served.get(writer, 0) + 1
        if served[writer] > count:
            return False
        return await respond()(receiver, reader, writer)

    return behave


async def test_a_request_that_is_lost_with_its_pooled_connection_is_not_sent_again(courier: CourierClient) -> None:
    async with webhook_receiver(hangs_up_after(1)) as receiver:
        replies = [await courier.send(post(receiver.url)) for _ in range(4)]
        assert len(receiver.requests) == 4
    assert all(reply.status == 200 or "without a response" in str(reply.error) for reply in replies)


async def test_a_pooled_connection_that_is_closed_while_idle_costs_no_attempt(courier: CourierClient) -> None:
    async with webhook_receiver(send_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as receiver:
        for _ in range(4):
            assert (await courier.send(post(receiver.url))).status == 200
            await asyncio.sleep(0.05)
        assert len(receiver.requests) == 4


async def test_a_new_connection_that_is_closed_without_a_response_is_a_failure_and_is_not_retried(courier: CourierClient) -> None:
    async with webhook_receiver(send_and_close(b"")) as receiver:
        assert (await courier.send(post(receiver.url))).status is None
        assert len(receiver.requests) == 1


async def test_a_response_that_breaks_off_on_a_kept_connection_is_a_failure(courier: CourierClient) -> None:
    async with webhook_receiver(in_sequence(respond(), send_and_close(b"HTTP/1.1 200 OK\r\nContent-Le"), respond())) as receiver:
        assert (await courier.send(post(receiver.url))).status == 200
        assert (await courier.send(post(receiver.url))).status is None
        assert len(receiver.requests) == 2


async def test_a_response_that_is_too_long_is_a_failure_and_its_connection_is_not_reused(courier: CourierClient) -> None:
    async with webhook_receiver(in_sequence(respond(body=b"x" * (3 * MAX_RESPONSE_BYTES)), respond())) as receiver:
        too_long, accepted = [await courier.send(post(receiver.url)) for _ in range(2)]
        assert (too_long.status, too_long.error) == (None, "The response is longer than 1 MiB.")
        assert accepted.excerpt == b"ok"
        assert receiver.connections == 2


async def test_only_the_beginning_of_a_response_is_kept(courier: CourierClient) -> None:
    async with webhook_receiver(respond(body=b"x" * 50_000)) as receiver:
        assert (await courier.send(post(receiver.url))).excerpt == b"x" * MAX_EXCERPT_BYTES


async def test_a_header_with_a_line_break_is_not_sent(courier: CourierClient) -> None:
    async with webhook_receiver(respond()) as receiver:
        reply = await courier.send(OutboundHttpRequest(receiver.url, (("X-A", "b\r\nX-C: d"),), b"", 10.0))
        assert not receiver.requests
    assert reply.status is None
    assert reply.error


async def test_after_the_first_address_fails_the_next_is_tried(courier: CourierClient) -> None:
    async with webhook_receiver(respond()) as receiver:  # listens on 127.0.0.1 alone
        assert (await courier.send(post(receiver.url.replace("127.0.0.1", "localhost")))).status == 200
