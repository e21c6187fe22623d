"""`latchboard mcp`: the Model Context Protocol over standard input and output, for an agent that starts it as its tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from adapters.mcp.server import McpApiHttpClient, create_server
from app.version import VERSION


async def run_stdio_server(url: str, key: str) -> None:
    """Serve until standard input ends."""
    async with httpx.AsyncClient(base_url=f"{url.rstrip('/')}/api/v1", headers={"X-Api-Key": key}) as client:

        @asynccontextmanager
        async def connect(_ctx: Any) -> AsyncIterator[McpApiHttpClient]:
            yield McpApiHttpClient(client=client)

        await create_server(connect, version=VERSION).run_stdio_async()
