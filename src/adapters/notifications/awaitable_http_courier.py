"""The webhooks' courier with one awaited call for each request."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from domain.webhooks.ports import Courier, OutboundHttpRequest, OutboundHttpResponse

EXTRA_S = 5.0
"""Beyond the deadline of a request; a courier that does not answer then has failed."""


class AwaitableHttpCourier:
    """One call for each request. `create` makes the courier with the first request: without channels there is none."""

    def __init__(self, create: Callable[[], Courier]) -> None:
        self._create = create
        self._courier: Courier | None = None
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[OutboundHttpResponse]] = {}

    async def send(self, request: OutboundHttpRequest) -> OutboundHttpResponse:
        if self._courier is None:
            self._courier = self._create()
            self._courier.on_responses(self._on_responses)
        ticket = next(self._tickets)
        waiting: asyncio.Future[OutboundHttpResponse] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = waiting
        try:
            self._courier.send([(ticket, request)])
            async with asyncio.timeout(request.deadline_s + EXTRA_S):
                return await waiting
        except TimeoutError:
            self._courier.cancel([ticket])
            return OutboundHttpResponse(None, "No response.", b"", 0)
        finally:
            self._waiting.pop(ticket, None)

    async def close(self) -> None:
        if self._courier is not None:
            await self._courier.close()

    def _on_responses(self, responses: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        for ticket, response in responses:
            waiting = self._waiting.get(ticket)
            if waiting is not None and not waiting.done():
                waiting.set_result(response)
