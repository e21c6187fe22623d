"""Keeps the packets of an aiomqtt connection moving when the event loop has lost sight of its socket.

aiomqtt registers paho's socket with the event loop by its number. When an earlier socket of that number ended with an error,
uvloop may still hold its closed watcher, and the registration fails. Nothing is then written, not even a ping, until the keep
alive ends. So the connection also looks itself, a few times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiomqtt

INTERVAL_S = 0.25
KEEP_ALIVE_S = 15
"""A connection that is dead without a word is noticed within twice this time."""


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
