"""Keeps the packets of an aiomqtt connection moving when the event loop has lost sight of its socket.

aiomqtt registers paho's socket with the event loop by its number. When an earlier socket of that number ended with an error,
uvloop may still hold its closed watcher, and the registration fails. Nothing is then written, not even a ping, until the keep
alive ends. So the connection also looks itself, a few times a second.

The opposite ends the process: libuv aborts when a socket is closed that it still watches. aiomqtt starts to watch a socket for
writing in a later turn of the loop than paho asks for it, when paho may have written all, or closed it; nobody then ends the
watch. `guard_socket` looks again in that turn, and ends every watch before the socket is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiomqtt

INTERVAL_S = 0.25
KEEP_ALIVE_S = 15
"""A connection that is dead without a word is noticed within twice this time."""


def guard_socket(client: aiomqtt.Client) -> None:
    """Call this before the client connects."""
    paho, loop = client._client, asyncio.get_running_loop()
    on_close = paho.on_socket_close

    def register(_paho: Any, _data: Any, sock: Any) -> None:
        loop.call_soon_threadsafe(lambda: watch_writes(client, sock))  # paho calls this from the thread that connects, too

    def close(_paho: Any, data: Any, sock: Any) -> None:
        if sock.fileno() > -1:
            loop.remove_writer(sock.fileno())
        if on_close is not None:
            on_close(paho, data, sock)

    paho.on_socket_register_write, paho.on_socket_close = register, close


def watch_writes(client: aiomqtt.Client, sock: Any) -> None:
    if sock.fileno() > -1 and client._client._registered_write:
        asyncio.get_running_loop().add_writer(sock.fileno(), _write, client)


def _write(client: aiomqtt.Client) -> None:
    try:
        client._client.loop_write()
    except Exception as error:  # as aiomqtt does: the connection is broken
        if not client._disconnected.done():
            client._disconnected.set_exception(error)


def close_socket(client: aiomqtt.Client) -> None:
    """Call this when the client is not used any more: aiomqtt leaves the socket open when a connection fails half way, and a
    thread may be opening it just now."""
    paho, loop = client._client, asyncio.get_running_loop()

    def close_opened(_paho: Any, _data: Any, _sock: Any) -> None:
        loop.call_soon_threadsafe(paho._sock_close)

    paho.on_socket_open = close_opened
    paho._sock_close()


@contextlib.asynccontextmanager
async def kept_flowing(client: aiomqtt.Client) -> AsyncIterator[None]:
    """While the context is open, waiting packets of the connected client are read and written whatever the event loop does."""
    task = asyncio.create_task(_keep_flowing(client), name="MQTT socket")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _keep_flowing(client: aiomqtt.Client) -> None:
    paho = client._client
    while not client._disconnected.done():
        await asyncio.sleep(INTERVAL_S)
        try:
            paho.loop_read()
            if paho.want_write():
                paho.loop_write()
        except Exception as error:  # as aiomqtt does in its own callbacks: the connection is broken
            if not client._disconnected.done():
                client._disconnected.set_exception(error)
