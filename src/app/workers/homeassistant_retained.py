"""Tracks the retained messages on Home Assistant's broker and publishes only what differs from them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from domain.devices.model import Device
from domain.homeassistant.bridge import DeviceFingerprint, device_fingerprint
from domain.homeassistant.discovery import RetainedMessages
from domain.kernel.ids import DeviceId

if TYPE_CHECKING:  # it imports an MQTT client
    from adapters.mqtt.homeassistant import MqttHomeAssistantConnection

MAX_IN_FLIGHT = 32
"""Messages that may wait for their PUBACK at the same time."""


class HomeAssistantRetainedPublisher:
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
