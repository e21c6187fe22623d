"""2,000 silent sockets, at a limit of 1,024 open files: every request is answered, and every device comes in."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import httpx
import pytest

from support.device import Device, create_device
from support.service import ApiClient, Service, environment, program_command
from support.waiting import TIMEOUT_S

OPEN_FILES = 1_024
STRANGERS = 2_000
FEWER = 300
"""More than HTTP's share of the files."""
REQUESTS = 20


class LimitedService(Service):
    def launch(self, *arguments: str) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                ["prlimit", f"--nofile={OPEN_FILES}:{OPEN_FILES}", *program_command(), *arguments],
                cwd=self.folder,
                env=environment(**self.settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))  # our own ends of the sockets
    try:
        with LimitedService(tmp_path_factory.mktemp("limited")) as service:
            yield service
            assert not [line for line in service.error_lines() if "Too many open files" in line]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@asynccontextmanager
async def strangers(port: int, first_words: bytes = b"", *, count: int = STRANGERS) -> AsyncIterator[None]:
    """They stay until the end, and say nothing after their first words."""
    loop = asyncio.get_running_loop()
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            client = socket.socket()
            client.setblocking(False)
            held.append(client)
            await loop.sock_connect(client, ("127.0.0.1", port))
            if first_words:
                await loop.sock_sendall(client, first_words)
        yield
    finally:
        for client in held:
            client.close()


async def answers(service: Service) -> list[int]:
    """Each request over a connection of its own."""
    paths = ("/healthz", "/readyz", "/api/v1/catalog/boards", "/metrics")
    async with httpx.AsyncClient(timeout=15, limits=httpx.Limits(max_keepalive_connections=0), verify=False) as client:
        return [(await client.get(service.url + paths[number % 4])).status_code for number in range(REQUESTS)]


NEVER_ENDS = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.parametrize(
    "first_words",
    [b"", b"GET / HTTP/1.1\r\nHost: ", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", NEVER_ENDS],
    ids=["silence", "half a head", "one request", "half a body"],
)
async def test_every_request_is_answered_while_strangers_hold_http_connections(limited: Service, first_words: bytes) -> None:
    async with strangers(limited.port, first_words, count=FEWER if first_words else STRANGERS):
        assert await answers(limited) == [200] * REQUESTS


async def test_a_client_with_credentials_gets_its_feed_while_strangers_hold_connections(limited: Service) -> None:
    handshake = (
        "GET /api/v1/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    async with limited.api() as owner, strangers(limited.port, handshake.encode(), count=FEWER):
        assert await answers(limited) == [200] * REQUESTS
        async with limited.feed(owner, "") as feed:
            assert feed.state["type"] == "initial_state"


async def test_a_device_comes_in_and_requests_are_answered_while_strangers_hold_mqtt_connections(limited: Service) -> None:
    async with limited.api() as owner:
        pump = await create_device(owner, "Pump")
        for port in (limited.mqtt_port, limited.ws_port):
            async with strangers(port):
                assert await answers(limited) == [200] * REQUESTS
                await wait_until_it_connects(limited, owner, pump)


async def wait_until_it_connects(service: Service, owner: ApiClient, pump: Device) -> None:
    """As a device does: it tries again."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                async with pump.online(service) as _:
                    await owner.wait_until(pump.path, lambda found: found["isOnline"])
                    return
            except (aiomqtt.MqttError, OSError):
                await asyncio.sleep(0.2)


async def test_the_page_of_metrics_tells_what_was_closed_and_refused(limited: Service) -> None:
    async with httpx.AsyncClient(timeout=15) as client:
        page = (await client.get(f"{limited.url}/metrics")).text
    for name in (
        'latchboard_http_connections{state="pending"}',
        'latchboard_http_connections_evicted_total{state="pending"}',
        "latchboard_http_banned_addresses",
        "latchboard_mqtt_pending",
        "latchboard_mqtt_banned_addresses",
        'latchboard_mqtt_refused_total{reason="full"}',
        'latchboard_mqtt_refused_total{reason="banned"}',
        f"process_max_fds {float(OPEN_FILES)}",
    ):
        assert name in page


async def test_an_address_that_sends_no_http_is_refused_for_a_while_and_a_health_check_is_not(tmp_path: Path) -> None:
    banning = {"LATCHBOARD_BAN_AFTER": 3, "LATCHBOARD_UNLIMITED_ADDRESSES": "127.0.0.1"}
    with Service(tmp_path, **banning) as service:

        async def say(words: bytes, source: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port, local_addr=(source, 0))
            try:
                if not words:
                    return b""
                writer.write(words)
                async with asyncio.timeout(TIMEOUT_S):
                    return await reader.read(12)
            except ConnectionError:
                return b""
            finally:
                writer.close()

        request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(10):
            assert await say(b"", "127.0.0.3") == b""
        assert await say(request, "127.0.0.3") == b"HTTP/1.1 200"
        while await say(b"\x16\x03\x01 no http\r\n\r\n", "127.0.0.2") != b"":
            pass
        assert await say(request, "127.0.0.1") == b"HTTP/1.1 200"
        async with httpx.AsyncClient(timeout=15) as client:
            page = (await client.get(f"{service.url}/metrics")).text
        assert 'latchboard_http_connections_refused_total{reason="banned"}' in page


async def test_the_start_says_that_few_files_may_be_open(limited: Service) -> None:
    assert "few files may be open" in limited.log_file.read_text(encoding="utf-8")
