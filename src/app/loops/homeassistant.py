"""Keeps Home Assistant's broker in step with the devices, and carries its commands in.

What is published is remembered and only differences go out. A change of a device is told at once because the feed says so; what
may be seen is read anew when the log says that it may have changed, and every half minute besides. What is no longer to be seen
is cleared, also what an earlier run left behind, and everything once the key is dead. A broker that is slow or away costs nothing
but its own news: the feed's queue is bounded, and what was missed is made good by telling how things stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import structlog

from app.loops.bulletin import Bulletin
from domain.events.model import TELEMETRY, Interest
from domain.events.ports import FeedHub, Subscription
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.errors import DomainError, Unauthenticated, Unavailable
from domain.kernel.ids import AccountId, DeviceId
from domain.telemetry.homeassistant import BridgeService, Topics, left_behind

PAUSES_S = (0.5, 2.0, 5.0, 15.0, 30.0)
STEADY_AFTER_S = 30.0
LOOK_AGAIN_S = 30.0
LOOK_APART_S = 1.0
"""A fleet that is being registered changes what may be seen with every device."""
GATHER_S = 0.2
"""News that comes together is told together."""
READINGS_S = 1.0
"""A metric is told at most that often: Home Assistant writes down every one."""
QUIET_S = 2.0
SWEEP_WITHIN_S = 30.0
STRETCH = 100
"""Devices told between two looks at what else is to be done."""
WORDS = frozenset({"ON", "OFF"})
MAX_LEFT = 10_000

log = structlog.get_logger("homeassistant")


class Message(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def retain(self) -> bool: ...


class Line(Protocol):
    async def publish(self, topic: str, payload: str) -> None: ...

    def heard(self) -> AsyncIterator[Message]: ...


class Peer(Protocol):
    def connected(
        self, listen: Sequence[str], commands: str | None = None, status: str | None = None
    ) -> AbstractAsyncContextManager[Line]: ...


class HomeAssistantLoop:
    name = "homeassistant"

    def __init__(self, *, bridge: BridgeService, peer: Peer, hub: FeedHub) -> None:
        self._bridge = bridge
        self._peer = peer
        self._hub = hub
        self._swept = False
        self._counts = dict.fromkeys(("connected", "connections", "commands", "refused", "ignored"), 0)
        self._board = Bulletin()

    def figures(self) -> Mapping[str, float]:
        return {**self._counts, "published": self._board.published, "devices": len(self._board.devices)}

    async def run(self) -> None:
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await self._turn()
            except DomainError as error:
                attempt = 0 if loop.time() - began > STEADY_AFTER_S else attempt
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                log.warning("Home Assistant is not told anything", error=error.message, pause_s=pause_s)
                await asyncio.sleep(pause_s)

    async def _turn(self) -> None:
        """Until the connection is lost or the key is dead."""
        accounts = await self._bridge.accounts()
        try:
            caller, topics = await self._bridge.identify()
        except Unauthenticated:
            if not self._swept:
                await self._sweep(accounts)
            raise
        self._swept = False
        async with self._peer.connected(topics.configs(), topics.commands, topics.status) as line:
            self._counts["connections"] += 1
            self._counts["connected"] = 1
            self._board.begin(line)
            tasks = (
                asyncio.create_task(self._listen(line, topics, accounts)),
                asyncio.create_task(self._tell(caller, topics)),
            )
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                self._counts["connected"] = 0
                await _ended(tasks)

    async def _sweep(self, accounts: frozenset[AccountId]) -> None:
        """The key is dead, so whatever stands on the broker for any account of ours goes."""
        filters = self._bridge.traces()
        async with self._peer.connected(filters) as line:
            left: set[str] = set()
            heard = line.heard()
            try:
                async with asyncio.timeout(SWEEP_WITHIN_S):
                    while len(left) < MAX_LEFT:
                        async with asyncio.timeout(QUIET_S):
                            message = await anext(heard)
                        left |= left_behind(accounts, message.topic, message.payload)
            except (TimeoutError, StopAsyncIteration):
                pass
            self._board.begin(line)
            self._board.left = left
            await self._board.clear_left()
        self._swept = True

    async def _tell(self, caller: ApiKeyCaller, topics: Topics) -> None:
        while True:
            self._board.forget_faces()
            with self._hub.subscribe(Interest(caller.account_id)) as news:
                await self._follow(caller, topics, news)

    async def _follow(self, caller: ApiKeyCaller, topics: Topics, news: Subscription) -> None:
        """Until the queue has run over; then all is told anew."""
        loop, later = asyncio.get_running_loop(), set[DeviceId]()
        look_at = looked_at = readings_at = 0.0
        while not news.lost:
            due_at = min(look_at, looked_at + LOOK_APART_S) if news.stale else look_at
            if loop.time() >= due_at:
                due_at = look_at = loop.time() + await self._look(caller, topics, news)
                looked_at = loop.time()
            await news.wait(max(0.0, min(due_at, readings_at if later else due_at) - loop.time()))
            await asyncio.sleep(GATHER_S)
            if news.stale:
                continue  # nothing is told before it is known who may see it
            prompt = set[DeviceId]()
            for frame in news.take():
                if frame.device_id is not None and frame.device_id in (news.allowed or ()):
                    (later if frame.kind == TELEMETRY else prompt).add(frame.device_id)
            if loop.time() >= readings_at:
                prompt, later, readings_at = prompt | later, set(), loop.time() + READINGS_S
            await self._show(topics, prompt)

    async def _look(self, caller: ApiKeyCaller, topics: Topics, news: Subscription) -> float:
        """What may be seen, and how it stands; the seconds until it must be asked again."""
        news.stale = False
        news.allowed = None  # all is queued while we look, and chosen afterwards
        seen = await self._bridge.seen(caller)
        if seen is None:
            await self._board.show_all({device_id: {} for device_id in self._board.devices})
            raise Unauthenticated("The API key of Home Assistant has been revoked or disabled.")
        news.allowed = frozenset(device.device_id for device in seen.devices)
        await self._board.show_all({device_id: {} for device_id in self._board.devices - news.allowed})
        changed = self._board.changed(seen.devices)
        for start in range(0, len(changed), STRETCH):
            await self._board.show_all(self._bridge.told(topics, changed[start : start + STRETCH]))
            await asyncio.sleep(0)
        await self._board.clear_left()
        return min(LOOK_AGAIN_S, seen.lasts_s)

    async def _show(self, topics: Topics, device_ids: Iterable[DeviceId]) -> None:
        waiting = list(device_ids)
        for start in range(0, len(waiting), STRETCH):
            stretch = waiting[start : start + STRETCH]
            devices = await self._bridge.present(topics, stretch)
            self._board.changed(devices)
            await self._board.show_all({each: {} for each in stretch} | dict(self._bridge.told(topics, devices)))

    async def _listen(self, line: Line, topics: Topics, accounts: frozenset[AccountId]) -> None:
        async for message in line.heard():
            device_id = topics.commanded(message.topic)
            if device_id is not None:
                await self._obey(device_id, message)
            elif message.payload and len(self._board.left) < MAX_LEFT:
                self._board.left |= left_behind(accounts, message.topic, message.payload)
        raise Unavailable("The connection to Home Assistant's broker has ended.")

    async def _obey(self, device_id: DeviceId, message: Message) -> None:
        word = message.payload.strip().decode("ascii", "replace")
        if word not in WORDS or message.retain:
            self._counts["ignored"] += 1
            return
        self._counts["commands"] += 1
        try:
            await self._bridge.command(device_id, word)
        except DomainError as error:
            self._counts["refused"] += 1
            log.warning("Home Assistant was refused a command", device_id=device_id, cmd=word, code=error.code)


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
