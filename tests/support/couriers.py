"""Both couriers, and a client that sends one webhook request and waits for its response."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TypeAlias

from adapters.delivery.courier import NativeCourier
from domain.webhooks.ports import Courier, OutboundHttpRequest, OutboundHttpResponse
from support.reference_courier import HttpxCourier
from support.waiting import TIMEOUT_S

COURIERS: list[type[NativeCourier] | type[HttpxCourier]] = [NativeCourier, HttpxCourier]
AnyCourier: TypeAlias = NativeCourier | HttpxCourier


class CourierClient:
    """Sends requests through a courier, one call for each."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier
        self._next_ticket = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[OutboundHttpResponse]] = {}
        self.answered: list[int] = []
        courier.on_responses(self._on_responses)

    async def send(self, post: OutboundHttpRequest) -> OutboundHttpResponse:
        return (await self.send_all([post]))[0]

    async def send_all(self, posts: Sequence[OutboundHttpRequest]) -> list[OutboundHttpResponse]:
        futures = [self.submit(post)[1] for post in posts]
        return await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)

    def submit(self, post: OutboundHttpRequest) -> tuple[int, asyncio.Future[OutboundHttpResponse]]:
        ticket = next(self._next_ticket)
        future: asyncio.Future[OutboundHttpResponse] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self.courier.send([(ticket, post)])
        return ticket, future

    def _on_responses(self, replies: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        for ticket, reply in replies:
            self.answered.append(ticket)
            self._waiting.pop(ticket).set_result(reply)
