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

from app.workers.homeassistant_retained import RetainedPublisher
from domain.events.model import TELEMETRY, FeedFilter
from domain.events.ports import FeedHub, FeedSubscription
from domain.homeassistant.bridge import HomeAssistantBridge, HomeAssistantTopics, find_stale_topics
from domain.kernel.backoff import Backoff
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.errors import DomainError, Unauthenticated, Unavailable
from domain.kernel.ids import AccountId, DeviceId

RECONNECT_BACKOFF = Backoff((0.5, 2.0, 5.0, 15.0, 30.0))
STABLE_AFTER_S = 30.0
REFRESH_INTERVAL_S = 30.0
MIN_REFRESH_INTERVAL_S = 1.0
"""A fleet that is being registered changes what may be seen with every device."""
DEBOUNCE_S = 0.2
"""News that comes together is told together."""
MIN_READINGS_INTERVAL_S = 1.0
"""A metric is told at most that often: Home Assistant writes down every one."""
RETAINED_QUIET_S = 2.0
CLEAR_TIMEOUT_S = 30.0
BATCH_SIZE = 100
"""Devices told between two looks at what else is to be done."""
COMMAND_PAYLOADS = frozenset({"ON", "OFF"})
MAX_STALE_TOPICS = 10_000

log = structlog.get_logger("homeassistant")


class HomeAssistantMessage(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def retain(self) -> bool: ...


class HomeAssistantConnection(Protocol):
    async def publish(self, topic: str, payload: str) -> None: ...

    def messages(self) -> AsyncIterator[HomeAssistantMessage]: ...


class HomeAssistantBroker(Protocol):
    def connect(
        self, listen: Sequence[str], commands: str | None = None, status: str | None = None
    ) -> AbstractAsyncContextManager[HomeAssistantConnection]: ...


class HomeAssistantWorker:
    name = "homeassistant"

    def __init__(self, *, bridge: HomeAssistantBridge, peer: HomeAssistantBroker, hub: FeedHub) -> None:
        self._bridge = bridge
        self._broker = peer
        self._hub = hub
        self._is_cleared = False
        self._counts = dict.fromkeys(("connected", "connections", "commands", "refused", "ignored"), 0)
        self._publisher = RetainedPublisher()

    def metrics(self) -> Mapping[str, float]:
        return {**self._counts, "published": self._publisher.published, "devices": len(self._publisher.device_ids)}

    async def run(self) -> None:
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await self._run_connection()
            except DomainError as error:
                attempt = 0 if loop.time() - began > STABLE_AFTER_S else attempt
                attempt += 1
                pause_s = RECONNECT_BACKOFF.pause_s(attempt)
                log.warning("Home Assistant is not told anything", error=error.message, pause_s=pause_s)
                await asyncio.sleep(pause_s)

    async def _run_connection(self) -> None:
        """Until the connection is lost or the key is dead."""
        accounts = await self._bridge.list_account_ids()
        try:
            caller, topics = await self._bridge.authenticate()
        except Unauthenticated:
            if not self._is_cleared:
                await self._clear_retained(accounts)
            raise
        self._is_cleared = False
        async with self._broker.connect(topics.discovery_filters(), topics.command_filter, topics.status_topic) as line:
            self._counts["connections"] += 1
            self._counts["connected"] = 1
            self._publisher.reset(line)
            tasks = (
                asyncio.create_task(self._receive(line, topics, accounts)),
                asyncio.create_task(self._publish_changes(caller, topics)),
            )
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                self._counts["connected"] = 0
                await _cancel_tasks(tasks)

    async def _clear_retained(self, accounts: frozenset[AccountId]) -> None:
        """The key is dead, so whatever stands on the broker for any account of ours goes."""
        filters = self._bridge.owned_topic_filters()
        async with self._broker.connect(filters) as line:
            left: set[str] = set()
            heard = line.messages()
            try:
                async with asyncio.timeout(CLEAR_TIMEOUT_S):
                    while len(left) < MAX_STALE_TOPICS:
                        async with asyncio.timeout(RETAINED_QUIET_S):
                            message = await anext(heard)
                        left |= find_stale_topics(accounts, message.topic, message.payload)
            except (TimeoutError, StopAsyncIteration):
                pass
            self._publisher.reset(line)
            self._publisher.stale_topics = left
            await self._publisher.clear_stale()
        self._is_cleared = True

    async def _publish_changes(self, caller: ApiKeyCaller, topics: HomeAssistantTopics) -> None:
        while True:
            self._publisher.forget_states()
            with self._hub.subscribe(FeedFilter(caller.account_id)) as news:
                await self._follow_feed(caller, topics, news)

    async def _follow_feed(self, caller: ApiKeyCaller, topics: HomeAssistantTopics, news: FeedSubscription) -> None:
        """Until the queue has run over; then all is told anew."""
        loop, later = asyncio.get_running_loop(), set[DeviceId]()
        look_at = looked_at = readings_at = 0.0
        while not news.overflowed:
            due_at = min(look_at, looked_at + MIN_REFRESH_INTERVAL_S) if news.access_stale else look_at
            if loop.time() >= due_at:
                due_at = look_at = loop.time() + await self._refresh(caller, topics, news)
                looked_at = loop.time()
            await news.wait(max(0.0, min(due_at, readings_at if later else due_at) - loop.time()))
            await asyncio.sleep(DEBOUNCE_S)
            if news.access_stale:
                continue  # nothing is told before it is known who may see it
            prompt = set[DeviceId]()
            for frame in news.drain():
                if frame.device_id is not None and frame.device_id in (news.allowed_devices or ()):
                    (later if frame.kind == TELEMETRY else prompt).add(frame.device_id)
            if loop.time() >= readings_at:
                prompt, later, readings_at = prompt | later, set(), loop.time() + MIN_READINGS_INTERVAL_S
            await self._publish_devices(topics, prompt)

    async def _refresh(self, caller: ApiKeyCaller, topics: HomeAssistantTopics, news: FeedSubscription) -> float:
        """What may be seen, and how it stands; the seconds until it must be asked again."""
        news.access_stale = False
        news.allowed_devices = None  # all is queued while we look, and chosen afterwards
        seen = await self._bridge.find_visible_devices(caller)
        if seen is None:
            await self._publisher.publish({device_id: {} for device_id in self._publisher.device_ids})
            raise Unauthenticated("The API key of Home Assistant has been revoked or disabled.")
        news.allowed_devices = frozenset(device.device_id for device in seen.devices)
        await self._publisher.publish({device_id: {} for device_id in self._publisher.device_ids - news.allowed_devices})
        changed = self._publisher.diff(seen.devices)
        for start in range(0, len(changed), BATCH_SIZE):
            await self._publisher.publish(self._bridge.retained_by_device(topics, changed[start : start + BATCH_SIZE]))
            await asyncio.sleep(0)
        await self._publisher.clear_stale()
        return min(REFRESH_INTERVAL_S, seen.valid_for_s)

    async def _publish_devices(self, topics: HomeAssistantTopics, device_ids: Iterable[DeviceId]) -> None:
        waiting = list(device_ids)
        for start in range(0, len(waiting), BATCH_SIZE):
            stretch = waiting[start : start + BATCH_SIZE]
            devices = await self._bridge.reload_devices(topics, stretch)
            self._publisher.diff(devices)
            await self._publisher.publish({each: {} for each in stretch} | dict(self._bridge.retained_by_device(topics, devices)))

    async def _receive(self, line: HomeAssistantConnection, topics: HomeAssistantTopics, accounts: frozenset[AccountId]) -> None:
        async for message in line.messages():
            device_id = topics.parse_command_topic(message.topic)
            if device_id is not None:
                await self._submit_command(device_id, message)
            elif message.payload and len(self._publisher.stale_topics) < MAX_STALE_TOPICS:
                self._publisher.stale_topics |= find_stale_topics(accounts, message.topic, message.payload)
        raise Unavailable("The connection to Home Assistant's broker has ended.")

    async def _submit_command(self, device_id: DeviceId, message: HomeAssistantMessage) -> None:
        word = message.payload.strip().decode("ascii", "replace")
        if word not in COMMAND_PAYLOADS or message.retain:
            self._counts["ignored"] += 1
            return
        self._counts["commands"] += 1
        try:
            await self._bridge.submit_command(device_id, word)
        except DomainError as error:
            self._counts["refused"] += 1
            log.warning("Home Assistant was refused a command", device_id=device_id, cmd=word, code=error.code)


async def _cancel_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
