"""A TCP proxy whose network can fall silent: bytes are swallowed both ways, connections stay open, and nothing is reset."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from sqlalchemy import URL, make_url

from support.ports import free_ports

CHUNK = 65_536


class SilentNetwork:
    def __init__(self, target: URL) -> None:
        self._target = target
        [self.port] = free_ports(1)
        self.silent = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        """The target's URL by way of this network."""
        return self._target.set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += [writer, back]
        pumps = [asyncio.create_task(self._pump(reader, back)), asyncio.create_task(self._pump(there, writer))]
        self._tasks.update(pumps)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection that lost bytes never carries any again, as after a real gap."""
        lost = False
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                lost = lost or self.silent
                if not lost:
                    writer.write(data)
                    await writer.drain()
        if not lost:
            writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def silent_network(url: str) -> AsyncIterator[SilentNetwork]:
    network = SilentNetwork(make_url(url))
    server = await asyncio.start_server(network.serve, "127.0.0.1", network.port)
    try:
        yield network
    finally:
        server.close()
        await network.stop()
