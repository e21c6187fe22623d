"""Both couriers, and a way to post one thing and wait for what becomes of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TypeAlias

from adapters.delivery.native import NativeCourier
from adapters.delivery.plain import PlainCourier
from domain.webhooks.ports import Courier, Post, Reply

KINDS: list[type[NativeCourier] | type[PlainCourier]] = [NativeCourier, PlainCourier]
Made: TypeAlias = NativeCourier | PlainCourier
PATIENCE = 30.0


class Counter:
    """Where posts are handed in one by one."""

    def __init__(self, courier: Courier) -> None:
        self.courier = courier
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self.heard: list[int] = []
        courier.hear(self._heard)

    async def post(self, post: Post) -> Reply:
        return (await self.posts([post]))[0]

    async def posts(self, posts: Sequence[Post]) -> list[Reply]:
        futures = [self.hand_in(post)[1] for post in posts]
        return await asyncio.wait_for(asyncio.gather(*futures), PATIENCE)

    def hand_in(self, post: Post) -> tuple[int, asyncio.Future[Reply]]:
        ticket = next(self._tickets)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self.courier.send([(ticket, post)])
        return ticket, future

    def _heard(self, replies: Sequence[tuple[int, Reply]]) -> None:
        for ticket, reply in replies:
            self.heard.append(ticket)
            self._waiting.pop(ticket).set_result(reply)
