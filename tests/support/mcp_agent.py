"""A scripted agent: the SDK's own client, and what its tools answer."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support.service import Service, environment


class Agent:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a tool."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        found: dict[str, Any] = result.structured_content or json.loads(result.content[0].text)  # type: ignore[union-attr]
        return found


@asynccontextmanager
async def agent_over_http(service: Service, key: str) -> AsyncIterator[Agent]:
    async with (
        httpx2.AsyncClient(headers={"X-Api-Key": key}, timeout=60) as http,
        Client(streamable_http_client(f"{service.url}/mcp", http_client=http)) as client,
    ):
        yield Agent(client)


@asynccontextmanager
async def agent_over_stdio(service: Service, key: str) -> AsyncIterator[Agent]:
    variables = environment(LATCHBOARD_API_KEY=key)
    command = ["-c", "from app.cli.main import main; main()", "mcp", "--url", service.url]
    async with Client(StdioServerParameters(command=sys.executable, args=command, env=variables)) as client:
        yield Agent(client)
