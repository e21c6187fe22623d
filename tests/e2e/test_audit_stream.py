"""`latchboard audit stream` beside the running program: receivers that drop, kills, TLS, datagrams and signed batches over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from support.certificate import certificate
from support.command_line import command_output
from support.device import register_device
from support.service import ApiClient, Service, environment, program_command
from support.syslog_receiver import read_and_hang, reset_at_once, stop_after_two, syslog_receiver, text_of
from support.waiting import TIMEOUT_S, until
from support.webhook_receiver import respond, webhook_receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def launch(service: Service, *arguments: str | Path, **settings: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program_command(),
        "audit",
        *map(str, arguments),
        cwd=service.folder,
        env=environment(**service.settings | settings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def finished(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Exit code and all output."""
    async with asyncio.timeout(TIMEOUT_S):
        output, errors = await process.communicate()
    return process.returncode or 0, (output + errors).decode()


async def audit(service: Service, *arguments: str | Path, **settings: Any) -> tuple[int, str]:
    env = environment(**service.settings | settings)
    return await command_output("audit", *arguments, folder=service.folder, env=env)


async def exported(service: Service) -> list[str]:
    """The lines of the complete log, without header and end."""
    code, output = await audit(service, "export")
    assert code == 0, output
    return output.splitlines()[1:-1]


@asynccontextmanager
async def streaming(service: Service, *arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await launch(service, "stream", *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_nothing_is_missing_after_drops_and_a_kill(service: Service, owner: ApiClient, tmp_path: Path) -> None:
    cursor = tmp_path / "cursor.json"
    for _ in range(5):
        await register_device(owner)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        target = f"syslog+tcp://127.0.0.1:{port}", "--cursor", cursor
        first = await launch(service, "stream", *target)
        partly = await asyncio.to_thread(stop_after_two, listener)
    async with syslog_receiver(reset_at_once, read_and_hang, port=port) as logs:
        await logs.wait_until(lambda: logs.connections == 2 and len(logs.texts) > 5)
        assert set(partly) < set(logs.texts)
        assert not cursor.exists()  # nobody has confirmed anything
        first.kill()
        await first.wait()
        assert (await audit(service, "seal"))[0] == 0
        async with streaming(service, *target) as second:
            await register_device(owner)
            wanted = set(await exported(service))
            await logs.wait_until(lambda: wanted <= set(logs.texts))
            await until(lambda: asyncio.to_thread(cursor.exists), bool)
            second.send_signal(signal.SIGTERM)
            code, output = await finished(second)
        assert code == 0, output
        assert any(line.startswith('{"seal":') for line in logs.texts)
        before = len(logs.texts)
        await register_device(owner)
        code, output = await audit(service, "stream", *target, "--once")
        assert code == 0, output
        new = set(await exported(service)) - wanted
        assert new <= set(logs.texts)
        assert len(logs.texts) - before < len(wanted)  # resumed, not begun again
    await _verify(service, tmp_path / "collected.log", logs.texts)


async def _verify(service: Service, file: Path, received: list[str]) -> None:
    """As a log server writes what it has received."""
    file.write_text("".join(f"Nov 27 10:00:00 host latchboard - {line}\n" for line in received), encoding="utf-8")
    key = (await audit(service, "public-key"))[1].split()[0]
    code, output = await audit(service, "verify", file, "--public-key", key)
    assert (code, "the stream" in output, "came more than once" in output) == (0, True, True), output
    file.write_text(file.read_text(encoding="utf-8").replace("device_registered", "device_deleted", 1), encoding="utf-8")
    code, output = await audit(service, "verify", file, "--public-key", key)
    assert (code, "NOT PROVEN" in output) == (1, True), output


async def test_sigterm_ends_a_stream_whose_receiver_hangs(service: Service, tmp_path: Path) -> None:
    async with (
        syslog_receiver(read_and_hang) as logs,
        streaming(service, f"syslog+tcp://127.0.0.1:{logs.port}", "--cursor", tmp_path / "cursor.json") as process,
    ):
        await logs.wait_until(lambda: bool(logs.texts))
        process.send_signal(signal.SIGTERM)
        code, output = await finished(process)
        assert code == 0, output


async def test_tls_to_a_receiver_that_is_trusted(service: Service, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(chain, key)
    async with syslog_receiver(tls=tls) as logs:
        target = f"syslog+tls://127.0.0.1:{logs.port}", "--cursor", tmp_path / "cursor.json", "--once"
        code, output = await audit(service, "stream", *target)
        assert (code, "not trusted" in output) == (1, True), output
        code, output = await audit(service, "stream", *target, "--ca-file", chain)
        assert code == 0, output
        assert set(await exported(service)) <= set(logs.texts)


async def test_datagrams(service: Service, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        datagrams.bind(("127.0.0.1", 0))
        target = f"syslog+udp://127.0.0.1:{datagrams.getsockname()[1]}"
        code, output = await audit(service, "stream", target, "--cursor", tmp_path / "cursor.json", "--once")
        assert code == 0, output
        datagrams.settimeout(TIMEOUT_S)
        lines = await exported(service)
        assert [text_of(datagrams.recv(65_536)) for line in lines if "record" in json.loads(line)] == [
            line for line in lines if "record" in json.loads(line)
        ]


async def test_signed_batches_over_http(service: Service, owner: ApiClient, tmp_path: Path) -> None:
    await register_device(owner)
    async with webhook_receiver(respond(503)) as log:
        options = "--cursor", tmp_path / "cursor.json", "--once"
        async with streaming(service, log.url, *options) as process:
            [refused] = await log.wait_for(1)
            assert "webhook-signature" not in refused.headers
            log.behave = respond(204, body=b"")
            code, output = await finished(process)
        assert (code, "answered 503" in output, "delivered again" in output) == (0, True, True), output
        repeated = log.requests[1]
        assert (repeated.body, repeated.headers["webhook-id"]) == (refused.body, refused.headers["webhook-id"])
        assert set(await exported(service)) <= set(repeated.body.decode().splitlines())
        await register_device(owner)
        code, output = await audit(service, "stream", log.url, *options, LATCHBOARD_AUDIT_STREAM_SECRET=SECRET)
        assert code == 0, output
        signed = log.requests[-1]
        assert signed.signed_with(SECRET)
        Webhook(SECRET).verify(signed.body, signed.headers)
        log.behave = respond(401)
        await register_device(owner)
        code, output = await audit(service, "stream", log.url, *options)
        assert (code, "answered 401" in output) == (1, True), output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("logs.example.com",), "Give a receiver such as"),
        (("syslog+tcp://logs.example.com:x",), "is no URL"),
        (("syslog+tcp://logs.example.com/path",), "no path"),
        (("syslog+tcp://127.0.0.1", "--account", "acc_none"), "no account acc_none"),
        (("syslog+tls://127.0.0.1", "--ca-file", "missing.pem"), "cannot be used"),
    ],
)
async def test_wrong_options_are_explained(service: Service, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    code, output = await audit(service, "stream", *arguments, "--cursor", tmp_path / "cursor.json")
    assert (code, said in output) == (1, True), output


async def test_a_cursor_file_is_checked_and_belongs_to_one_stream(service: Service, tmp_path: Path) -> None:
    cursor = tmp_path / "cursor.json"
    for content, said in (("{}", "no cursor"), ('{"account": "acc_x", "seal": 0, "writers": {}}', "of account acc_x")):
        cursor.write_text(content)
        code, output = await audit(service, "stream", "syslog+tcp://127.0.0.1", "--cursor", cursor)
        assert (code, said in output) == (1, True), output
    cursor.unlink()
    async with syslog_receiver(read_and_hang) as logs:
        target = f"syslog+tcp://127.0.0.1:{logs.port}", "--cursor", cursor
        async with streaming(service, *target):
            await logs.wait_until(lambda: bool(logs.texts))
            code, output = await audit(service, "stream", *target)
            assert (code, "Another `audit stream`" in output) == (1, True), output
