"""Debian's Mosquitto on a free port, with the password and ACL files that the service writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.mqtt.mosquitto import MosquittoFilePaths, acl_text
from support.certificate import certificate
from support.ports import free_ports
from support.waiting import TIMEOUT_S

BINARY = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def require_mosquitto() -> None:
    if BINARY is None and not os.environ.get("LATCHBOARD_REQUIRE_MOSQUITTO"):
        pytest.skip("mosquitto is not installed; set LATCHBOARD_REQUIRE_MOSQUITTO=1 to make this a failure")
    assert BINARY is not None, "mosquitto is not installed and LATCHBOARD_REQUIRE_MOSQUITTO is set"


@dataclass
class Mosquitto:
    port: int
    ws_port: int
    files: MosquittoFilePaths
    tls_port: int


@contextlib.asynccontextmanager
async def mosquitto(folder: Path, service_user: str) -> AsyncIterator[Mosquitto]:
    """`chain.pem` in the folder is the certificate of its TLS port."""
    require_mosquitto()
    chain, key = certificate(folder)
    files = MosquittoFilePaths(folder / "passwords", folder / "acl", folder / "mosquitto.pid")
    files.password_file.write_text("", encoding="utf-8")
    files.acl_file.write_text(acl_text(service_user), encoding="utf-8")
    for path in (files.password_file, files.acl_file):
        path.chmod(0o600)
    port, ws_port, tls_port = free_ports(3)
    configuration = folder / "mosquitto.conf"
    configuration.write_text(
        f"""user root
pid_file {files.pid_file}
log_dest none
listener {port} 127.0.0.1
listener {ws_port} 127.0.0.1
protocol websockets
listener {tls_port} 127.0.0.1
certfile {chain}
keyfile {key}
allow_anonymous false
password_file {files.password_file}
acl_file {files.acl_file}
use_username_as_clientid true
max_inflight_messages 1000
persistence false
""",
        encoding="utf-8",
    )
    assert BINARY is not None
    process = await asyncio.create_subprocess_exec(
        BINARY, "-c", str(configuration), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await _listening(port, files.pid_file)
        yield Mosquitto(port, ws_port, files, tls_port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), TIMEOUT_S)


@contextlib.asynccontextmanager
async def open_mosquitto(folder: Path) -> AsyncIterator[int]:
    """One that lets everybody in; the port."""
    require_mosquitto()
    [port], configuration, pid_file = free_ports(1), folder / "mosquitto.conf", folder / "mosquitto.pid"
    configuration.write_text(f"user root\npid_file {pid_file}\nlog_dest none\nlistener {port} 127.0.0.1\nallow_anonymous true\n")
    assert BINARY is not None
    process = await asyncio.create_subprocess_exec(BINARY, "-c", str(configuration))
    try:
        await _listening(port, pid_file)
        yield port
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), TIMEOUT_S)


async def _listening(port: int, pid_file: Path) -> None:
    """Wait until it answers: it opens its ports before it can handle the reload signal."""
    hello = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x0a\x00\x03abc"
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(hello)
                answered = await reader.read(1)
                writer.close()
                await writer.wait_closed()
                if answered and pid_file.exists():
                    return
            await asyncio.sleep(0.02)
