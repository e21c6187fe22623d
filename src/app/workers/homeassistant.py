"""Publishes the devices to Home Assistant's broker, and submits the commands that arrive from it.

The worker remembers what it has published and sends only differences. A device change arrives through the feed and is published
at once. The visible devices are reloaded when access may have changed, and every 30 seconds. The worker clears the topics of
devices that are no longer visible, topics that an earlier run has left, and every topic when the API key is disabled. A slow or
unreachable broker affects only its own updates: the feed queue is bounded, and after an overflow the current state is published
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import structlog

from domain.devices.model import Device
from domain.events.feed_model import FeedFilter
from domain.events.model import INPUT_CHANGED, TELEMETRY
from domain.events.ports import FeedHub, FeedSubscription
from domain.homeassistant.bridge import DeviceFingerprint, HomeAssistantBridge, device_fingerprint
from domain.homeassistant.discovery import (
    HomeAssistantTopics,
    RetainedMessages,
    discovery_filters,
    find_stale_topics,
    press_message,
)
from domain.kernel.backoff import Backoff
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, Unauthenticated, Unavailable
from domain.kernel.ids import AccountId, DeviceId

if TYPE_CHECKING:
    from adapters.mqtt.homeassistant import HomeAssistantMqttClient, MqttHomeAssistantConnection

MAX_IN_FLIGHT = 32
"""Messages that may wait for their PUBACK at the same time."""
RECONNECT_BACKOFF = Backoff((0.5, 2.0, 5.0, 15.0, 30.0))
STABLE_AFTER_S = 30.0
REFRESH_INTERVAL_S = 30.0
MIN_REFRESH_INTERVAL_S = 1.0
"""Registering a fleet changes the visible devices with every new device; this limits the reloads."""
DEBOUNCE_S = 0.2
"""Events that arrive within this time are published together."""
MIN_READINGS_INTERVAL_S = 1.0
"""Shortest time between two updates of a metric: Home Assistant stores every update."""
RETAINED_QUIET_S = 2.0
CLEAR_TIMEOUT_S = 30.0
BATCH_SIZE = 100
"""Devices per step; other work can run between steps."""
MAX_PAYLOAD_BYTES = 1_000
"""Of a command: a number, or an option of a select."""
PRESS_EXPIRY_S = 60
"""A press that Home Assistant has not got by then does nothing any more."""
MAX_STALE_TOPICS = 10_000
TYPE_CHANGED = "device_type_updated"

log = structlog.get_logger("homeassistant")


@service
class HomeAssistantWorker:
    name = "homeassistant"

    bridge: HomeAssistantBridge
    broker: HomeAssistantMqttClient
    hub: FeedHub
    _is_cleared: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._counts = dict.fromkeys(("connected", "connections", "commands", "refused", "ignored"), 0)
        self._publisher = HomeAssistantRetainedPublisher()
        self._refusing: set[DeviceId] = set()
        """Devices with a new refusal, which is shown if Home Assistant sees them."""
        self._feed: FeedSubscription | None = None

    def metrics(self) -> Mapping[str, float]:
        return {**self._counts, "published": self._publisher.published, "devices": len(self._publisher.device_ids)}

    async def run(self) -> None:
        loop, attempt = asyncio.get_running_loop(), 0
        while True:
            started = loop.time()
            try:
                await self._run_connection()
            except DomainError as error:
                attempt = 0 if loop.time() - started > STABLE_AFTER_S else attempt
                attempt += 1
                pause_s = RECONNECT_BACKOFF.pause_s(attempt)
                log.warning("cannot update Home Assistant; connecting again later", error=error.message, pause_s=pause_s)
                await asyncio.sleep(pause_s)

    async def _run_connection(self) -> None:
        """Run until the connection is lost or the API key is disabled."""
        accounts = await self.bridge.list_account_ids()
        try:
            caller, topics = await self.bridge.authenticate()
        except Unauthenticated:
            if not self._is_cleared:
                await self._clear_retained(accounts)
            raise
        self._is_cleared = False
        async with self.broker.connect(
            discovery_filters(topics.discovery_prefix), topics.command_filter, topics.status_topic
        ) as connection:
            self._counts["connections"] += 1
            self._counts["connected"] = 1
            self._publisher.reset(connection)
            tasks = (
                asyncio.create_task(self._receive(connection, topics, accounts)),
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
        """Clear every retained topic of our accounts, because the API key is disabled."""
        filters = self.bridge.owned_topic_filters()
        async with self.broker.connect(filters) as connection:
            stale_topics: set[str] = set()
            messages = connection.messages()
            try:
                async with asyncio.timeout(CLEAR_TIMEOUT_S):
                    while len(stale_topics) < MAX_STALE_TOPICS:
                        async with asyncio.timeout(RETAINED_QUIET_S):
                            topic, payload, _ = await anext(messages)
                        stale_topics |= find_stale_topics(accounts, topic, payload)
            except (TimeoutError, StopAsyncIteration):
                pass
            self._publisher.reset(connection)
            self._publisher.stale_topics = stale_topics
            await self._publisher.clear_stale()
        self._is_cleared = True

    async def _publish_changes(self, caller: ApiKeyCaller, topics: HomeAssistantTopics) -> None:
        while True:
            self._publisher.forget_states()
            with self.hub.subscribe(FeedFilter(caller.account_id, audit=True)) as subscription:
                self._feed = subscription
                await self._follow_feed(caller, topics, subscription)

    async def _follow_feed(self, caller: ApiKeyCaller, topics: HomeAssistantTopics, feed: FeedSubscription) -> None:
        """Publish changes until the feed queue overflows; the caller then publishes the whole state again."""
        loop, delayed = asyncio.get_running_loop(), set[DeviceId]()
        refresh_at = refreshed_at = readings_at = 0.0
        while not feed.overflowed:
            due_at = min(refresh_at, refreshed_at + MIN_REFRESH_INTERVAL_S) if feed.access_stale else refresh_at
            if loop.time() >= due_at:
                due_at = refresh_at = loop.time() + await self._refresh(caller, topics, feed)
                refreshed_at = loop.time()
            await feed.wait(max(0.0, min(due_at, readings_at if delayed else due_at) - loop.time()))
            await asyncio.sleep(DEBOUNCE_S)
            if feed.access_stale:
                continue  # refresh first: publish nothing that the key may no longer see
            due, self._refusing = self._refusing & (feed.allowed_devices or frozenset()), set()
            presses = list[tuple[str, str] | None]()
            for frame in feed.drain():
                if frame.kind == TYPE_CHANGED:
                    self._publisher.forget_states()  # the commands of its devices may be others now
                    refresh_at = 0.0
                if frame.device_id is not None and frame.device_id in (feed.allowed_devices or ()):
                    (delayed if frame.kind == TELEMETRY else due).add(frame.device_id)
                    if frame.kind == INPUT_CHANGED:
                        presses.append(press_message(topics, frame.device_id, frame.unclosed_json + b"}"))
            if loop.time() >= readings_at:
                due, delayed, readings_at = due | delayed, set(), loop.time() + MIN_READINGS_INTERVAL_S
            await self._publish_devices(topics, due)
            await self._publisher.send_once(list(filter(None, presses)), PRESS_EXPIRY_S)

    async def _refresh(self, caller: ApiKeyCaller, topics: HomeAssistantTopics, feed: FeedSubscription) -> float:
        """Load the visible devices and publish their state. Returns the seconds until the next refresh is due."""
        feed.access_stale = False
        feed.allowed_devices = None  # queue every event during the load and filter afterwards
        visible = await self.bridge.find_visible_devices(caller)
        if visible is None:
            await self._publisher.publish({device_id: {} for device_id in self._publisher.device_ids})
            raise Unauthenticated("The API key of Home Assistant has been revoked or disabled.")
        devices, valid_for_s = visible
        feed.allowed_devices = frozenset(device.device_id for device in devices)
        self.bridge.forget_refusals(feed.allowed_devices)
        await self._publisher.publish({device_id: {} for device_id in self._publisher.device_ids - feed.allowed_devices})
        changed = self._publisher.diff(devices)
        for start in range(0, len(changed), BATCH_SIZE):
            await self._publisher.publish(await self.bridge.retained_by_device(topics, changed[start : start + BATCH_SIZE]))
            await asyncio.sleep(0)
        await self._publisher.clear_stale()
        return min(REFRESH_INTERVAL_S, valid_for_s)

    async def _publish_devices(self, topics: HomeAssistantTopics, device_ids: Iterable[DeviceId]) -> None:
        due = list(device_ids)
        for start in range(0, len(due), BATCH_SIZE):
            batch = due[start : start + BATCH_SIZE]
            devices = await self.bridge.reload_devices(topics, batch)
            self._publisher.diff(devices)
            await self._publisher.publish(
                {device_id: {} for device_id in batch} | dict(await self.bridge.retained_by_device(topics, devices))
            )

    async def _receive(
        self, connection: MqttHomeAssistantConnection, topics: HomeAssistantTopics, accounts: frozenset[AccountId]
    ) -> None:
        async for topic, payload, retain in connection.messages():
            addressed = topics.parse_command_topic(topic)
            if addressed is not None:
                await self._submit_command(*addressed, payload, retain=retain)
            elif payload and len(self._publisher.stale_topics) < MAX_STALE_TOPICS:
                self._publisher.stale_topics |= find_stale_topics(accounts, topic, payload)
        raise Unavailable("The connection to Home Assistant's broker was closed.")

    async def _submit_command(self, device_id: DeviceId, name: str | None, channel: int, body: bytes, *, retain: bool) -> None:
        """`name`: of the command that has an entity; None for the entity of a channel, whose payload says the command."""
        payload = body[:MAX_PAYLOAD_BYTES].decode("utf-8", "replace").strip()
        if retain:
            self._counts["ignored"] += 1
            return
        try:
            if not await self.bridge.submit_command(device_id, name, channel, payload):
                self._counts["ignored"] += 1
                return
        except DomainError as error:
            self._counts["refused"] += 1
            log.warning("denied a command of Home Assistant", device_id=device_id, cmd=name or payload, code=error.code)
            if self._feed is not None:
                self._refusing.add(device_id)
                self._feed.wake()
        self._counts["commands"] += 1


async def _cancel_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class HomeAssistantRetainedPublisher:
    """Tracks the retained messages on Home Assistant's broker and publishes only what differs from them."""

    def __init__(self) -> None:
        self._connection: MqttHomeAssistantConnection | None = None
        self._published_messages: dict[DeviceId, dict[str, str]] = {}
        self._published_states: dict[DeviceId, DeviceFingerprint] = {}
        self.stale_topics: set[str] = set()
        """Topics that an earlier run may have left on the broker."""
        self.published = 0

    @property
    def device_ids(self) -> frozenset[DeviceId]:
        return frozenset(self._published_messages)

    def reset(self, connection: MqttHomeAssistantConnection) -> None:
        """Start a new connection: the messages on the broker are unknown again."""
        self._connection = connection
        self._published_messages, self.stale_topics = {}, set()
        self._published_states.clear()

    def forget_states(self) -> None:
        """After a loss of feed messages: `diff` returns every device again."""
        self._published_states.clear()

    def diff(self, devices: Iterable[Device]) -> Sequence[Device]:
        """Return the devices that have changed since the last call, and remember their state. Readings do not count."""
        changed = [device for device in devices if self._published_states.get(device.device_id) != device_fingerprint(device)]
        self._published_states.update((device.device_id, device_fingerprint(device)) for device in changed)
        return changed

    async def publish(self, wanted: Mapping[DeviceId, RetainedMessages]) -> None:
        """Publish the differences. Raises Unavailable; the broker's state is unknown then, so call `reset` next."""
        for device_id, retained in wanted.items():
            published = self._published_messages.get(device_id, {})
            removed = [(topic, "") for topic in published if topic not in retained]
            changed = [(topic, payload) for topic, payload in retained.items() if published.get(topic) != payload]
            await self._send([*removed, *changed])
            if retained:
                self._published_messages[device_id] = dict(retained)
            else:
                self._published_messages.pop(device_id, None)
                self._published_states.pop(device_id, None)

    async def clear_stale(self) -> None:
        """Clear what an earlier run left. Call it after all wanted messages have been published."""
        wanted = {topic for published in self._published_messages.values() for topic in published}
        stale, self.stale_topics = self.stale_topics, set()
        await self._send([(topic, "") for topic in sorted(stale - wanted)])

    async def send_once(self, messages: Sequence[tuple[str, str]], expiry_s: int) -> None:
        """Messages that are not retained, in this order. Raises Unavailable."""
        for topic, payload in messages:
            if self._connection is not None:
                await self._connection.publish(topic, payload, expiry_s)
                self.published += 1

    async def _send(self, messages: Sequence[tuple[str, str]]) -> None:
        if self._connection is None:
            return
        for start in range(0, len(messages), MAX_IN_FLIGHT):
            batch = messages[start : start + MAX_IN_FLIGHT]
            results = await asyncio.gather(*(self._connection.publish(*message) for message in batch), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            self.published += len(batch)
