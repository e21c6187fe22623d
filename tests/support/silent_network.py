"""A TCP proxy whose network can fall silent: bytes are swallowed both ways, connections stay open, and nothing is reset."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence

from sqlalchemy import URL, make_url

from support.ports import free_ports
from support.waiting import TIMEOUT_S

CHUNK = 65_536


class SilentNetwork:
    def __init__(self, target: URL) -> None:
        self._target = target
        [self.port] = free_ports(1)
        self.silent = False
        self.silent_from: bytes | None = None
        """The network falls silent at the next answer of the target that contains this, and swallows that answer."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        """The target's URL by way of this network."""
        return self._target.set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += [writer, back]
        pumps = [asyncio.create_task(self._pump(reader, back)), asyncio.create_task(self._pump(there, writer, answers=True))]
        self._tasks.update(pumps)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        """A connection that lost bytes never carries any again, as after a real gap."""
        lost = False
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if answers and self.silent_from is not None and self.silent_from in data:
                    self.silent, self.silent_from = True, None
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


@contextlib.contextmanager
def silent_networks(urls: Sequence[str]) -> Iterator[Sequence[SilentNetwork]]:
    """One to each target, in a thread of their own: for those whose event loop stands still meanwhile."""
    loop, stack = asyncio.new_event_loop(), contextlib.AsyncExitStack()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def open_all() -> Sequence[SilentNetwork]:
        return [await stack.enter_async_context(silent_network(url)) for url in urls]

    try:
        yield asyncio.run_coroutine_threadsafe(open_all(), loop).result(TIMEOUT_S)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(TIMEOUT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(TIMEOUT_S)
        loop.close()
