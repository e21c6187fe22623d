"""One Chromium for all tests of a process: the start of Chromium and of Playwright's driver takes a second of processor time.

The driver runs as a server, and each test connects to it in its own event loop. Contexts of a test have their own cookies, storage
and cache, and end with its connection. Playwright's own `connect` starts a second driver for each connection, so the messages go
over a WebSocket of this file.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from playwright._impl._driver import compute_driver_executable, get_driver_env
from playwright._impl.connection import Connection
from playwright._impl.utils.tasks import wait_for_next_task
from playwright.async_api import Browser
from websockets.asyncio.client import ClientConnection, connect

from support.waiting import TIMEOUT_S


@asynccontextmanager
async def shared_chromium(binary: str) -> AsyncIterator[Browser]:
    """This process's Chromium, with no contexts."""
    async with connect(_address(binary), max_size=None, compression=None, ping_interval=None) as socket:
        connection = Connection(asyncio.get_running_loop())
        unsent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        connection.onmessage = unsent.put_nowait
        transfers = [asyncio.create_task(_send(socket, unsent)), asyncio.create_task(_receive(socket, connection))]
        try:
            playwright = await connection.initialize_playwright()
            yield Browser(playwright._pre_launched_browser())
        finally:
            for transfer in transfers:
                transfer.cancel()
            await asyncio.gather(*transfers, return_exceptions=True)


async def _send(socket: ClientConnection, unsent: asyncio.Queue[dict[str, Any]]) -> None:
    while True:
        await socket.send(json.dumps(await unsent.get()))


async def _receive(socket: ClientConnection, connection: Connection) -> None:
    """At its end no call of the test waits any longer for an answer."""
    try:
        async for message in socket:
            try:
                connection.dispatch(json.loads(message))
            except Exception as error:  # of a test's event listener; the test's next call raises it
                connection._on_event_listener_error(error)
            await wait_for_next_task()
    finally:
        connection.close()


@cache
def _address(binary: str) -> str:
    """The address of the driver, which is started with a Chromium if it does not run yet."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="latchboard-") as folder:
        options = Path(folder) / "options.json"
        options.write_text(json.dumps({"executablePath": binary, "args": arguments, "host": "127.0.0.1", "port": 0}))
        driver = subprocess.Popen(
            [*compute_driver_executable(), "launch-server", "--browser", "chromium", "--config", options],
            env=get_driver_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert driver.stdout is not None
        address = driver.stdout.readline().strip()
    assert address.startswith("ws://"), f"Playwright's driver has not started: {address}"

    def stop() -> None:
        driver.terminate()
        driver.communicate(timeout=TIMEOUT_S)

    atexit.register(stop)
    return address
