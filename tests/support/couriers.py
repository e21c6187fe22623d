"""Both couriers, and a way to post one thing and wait for what becomes of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TypeAlias

from adapters.delivery.httpx_courier import HttpxCourier
from adapters.delivery.native_courier import NativeCourier
from domain.webhooks.ports import Courier, WebhookRequest, WebhookResponse

KINDS: list[type[NativeCourier] | type[HttpxCourier]] = [NativeCourier, HttpxCourier]
Made: TypeAlias = NativeCourier | HttpxCourier
PATIENCE = 30.0


class Counter:
    """Where posts are handed in one by one."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[WebhookResponse]] = {}
        self.heard: list[int] = []
        courier.on_responses(self._heard)

    async def post(self, post: WebhookRequest) -> WebhookResponse:
        return (await self.posts([post]))[0]

    async def posts(self, posts: Sequence[WebhookRequest]) -> list[WebhookResponse]:
        futures = [self.hand_in(post)[1] for post in posts]
        return await asyncio.wait_for(asyncio.gather(*futures), PATIENCE)

    def hand_in(self, post: WebhookRequest) -> tuple[int, asyncio.Future[WebhookResponse]]:
        ticket = next(self._tickets)
        future: asyncio.Future[WebhookResponse] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self.courier.send([(ticket, post)])
        return ticket, future

    def _heard(self, replies: Sequence[tuple[int, WebhookResponse]]) -> None:
        for ticket, reply in replies:
            self.heard.append(ticket)
            self._waiting.pop(ticket).set_result(reply)
