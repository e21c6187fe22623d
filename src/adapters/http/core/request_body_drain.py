"""A response that begins while the request's body is still arriving.

The server reads the next request of a connection only after the body. If an application answers early, such as with a refusal,
the rest is read first; if it does not arrive, the response says that the connection closes. Otherwise the client would send its
next request on a connection that the server is about to close.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from adapters.http.core.body_limits import MAX_BODY_BYTES

DRAIN_BODY_TIMEOUT_S = 1.0
"""How long an early response waits for the rest of the request body."""


async def run_with_whole_body(app: Any, scope: Any, receive: Any, send: Any) -> None:
    """Run an ASGI application for one HTTP request."""
    is_arriving = True

    async def receive_part() -> Any:
        nonlocal is_arriving
        event = await receive()
        is_arriving = bool(event.get("more_body"))
        return event

    async def drain() -> None:
        read = 0
        async with asyncio.timeout(DRAIN_BODY_TIMEOUT_S):
            while is_arriving and read <= MAX_BODY_BYTES:
                read += len((await receive_part()).get("body", b""))

    async def send_after_body(event: Any) -> None:
        if event["type"] == "http.response.start" and is_arriving:
            with contextlib.suppress(TimeoutError):
                await drain()
            if is_arriving:
                event = {**event, "headers": [*event["headers"], (b"connection", b"close")]}
        await send(event)

    await app(scope, receive_part, send_after_body)
