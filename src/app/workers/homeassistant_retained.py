"""What stands on Home Assistant's broker, as far as we know: only differences to it go out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from domain.devices.model import Device
from domain.homeassistant.bridge import DeviceFingerprint, RetainedMessages, device_fingerprint
from domain.kernel.ids import DeviceId

MAX_IN_FLIGHT = 32
"""Messages under way; each waits for its acknowledgement."""


class MqttPublisher(Protocol):
    async def publish(self, topic: str, payload: str) -> None: ...


class RetainedPublisher:
    def __init__(self) -> None:
        self._connection: MqttPublisher | None = None
        self._published_messages: dict[DeviceId, dict[str, str]] = {}
        self._published_states: dict[DeviceId, DeviceFingerprint] = {}
        self.stale_topics: set[str] = set()
        """Topics that an earlier run may have left behind."""
        self.published = 0

    @property
    def device_ids(self) -> frozenset[DeviceId]:
        return frozenset(self._published_messages)

    def reset(self, line: MqttPublisher) -> None:
        """A new connection: what stood there is no longer known."""
        self._connection = line
        self._published_messages, self.stale_topics = {}, set()
        self._published_states.clear()

    def forget_states(self) -> None:
        """News were lost, so every device must be looked at again."""
        self._published_states.clear()

    def diff(self, devices: Iterable[Device]) -> Sequence[Device]:
        """Those of them that look other than when they were last asked for. Readings are no part of a face."""
        found = [device for device in devices if self._published_states.get(device.device_id) != device_fingerprint(device)]
        self._published_states.update((device.device_id, device_fingerprint(device)) for device in found)
        return found

    async def publish(self, wanted: Mapping[DeviceId, RetainedMessages]) -> None:
        """Raises Unavailable; what stands there is unknown then, and `begin` is next."""
        for device_id, retained in wanted.items():
            standing = self._published_messages.get(device_id, {})
            gone = [(topic, "") for topic in standing if topic not in retained]
            await self._send([*gone, *(each for each in retained.items() if standing.get(each[0]) != each[1])])
            if retained:
                self._published_messages[device_id] = dict(retained)
            else:
                self._published_messages.pop(device_id, None)
                self._published_states.pop(device_id, None)

    async def clear_stale(self) -> None:
        """Once everything that is wanted stands."""
        wanted = {topic for standing in self._published_messages.values() for topic in standing}
        left, self.stale_topics = self.stale_topics, set()
        await self._send([(topic, "") for topic in sorted(left - wanted)])

    async def _send(self, messages: Sequence[tuple[str, str]]) -> None:
        if self._connection is None:
            return
        for start in range(0, len(messages), MAX_IN_FLIGHT):
            stretch = messages[start : start + MAX_IN_FLIGHT]
            answers = await asyncio.gather(*(self._connection.publish(*each) for each in stretch), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
            self.published += len(stretch)
