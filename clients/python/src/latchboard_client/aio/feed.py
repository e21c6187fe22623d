"""The live feed. It connects again by itself and resumes after the last event, without a gap and without a repetition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Self
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from latchboard_client.errors import api_error
from latchboard_client.events import FeedEvent, FeedState, close_error
from latchboard_client.retries import backoff_s

OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 1.0
WATCHDOG_S = 20.0
"""A connection that does not answer a ping for so long is given up and made again."""
LARGEST_MESSAGE = 64 * 1024 * 1024
log = logging.getLogger("latchboard_client")


class AsyncFeed:
    """An iterator of events. `cursor` is that of the newest one given: store it to resume after a restart of your program.

    Iterating raises UnauthenticatedError, ForbiddenError or InvalidRequestError when connecting again would not help; every other
    end of a connection is followed by a new one, after a pause that grows to 30 s and is logged as a warning.
    """

    def __init__(
        self, url: str, query: dict[str, str], cursor: str | None, credentials: Callable[[], dict[str, str]], watchdog_s: float
    ) -> None:
        self._url, self._query, self._credentials, self._watchdog_s = url, query, credentials, watchdog_s
        self._state = FeedState(cursor)
        self._socket: ClientConnection | None = None
        self._open = AsyncExitStack()
        self._failures = 0

    @property
    def cursor(self) -> str | None:
        return self._state.cursor

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._socket = None
        await self._open.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FeedEvent:
        while True:
            try:
                event = await self._receive()
            except InvalidStatus as refused:
                if refused.response.status_code < 500:
                    raise api_error(refused.response.status_code, None) from refused
                await self._pause(refused)
            except ConnectionClosed as closed:
                code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (None, "")
                if error := close_error(code, reason):
                    raise error from closed
                await self._pause(closed)
            except (OSError, TimeoutError, WebSocketException) as error:
                await self._pause(error)
            else:
                if event is not None:
                    return event

    async def _receive(self) -> FeedEvent | None:
        socket = self._socket or await self._connect()
        message = await socket.recv()
        self._failures = 0
        return self._state.accept(message)

    async def _connect(self) -> ClientConnection:
        query = self._query | ({"cursor": self._state.cursor} if self._state.cursor else {})
        connection = connect(
            f"{self._url}?{urlencode(query)}",
            additional_headers=self._credentials(),
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=self._watchdog_s,
            ping_timeout=self._watchdog_s,
            max_size=LARGEST_MESSAGE,
            compression=None,
        )
        self._socket = await self._open.enter_async_context(connection)
        return self._socket

    async def _pause(self, error: Exception) -> None:
        await self.aclose()
        self._failures += 1
        pause = backoff_s(self._failures)
        log.warning("The feed is interrupted (%r); connecting again in %.1f s.", error, pause)
        await asyncio.sleep(pause)
