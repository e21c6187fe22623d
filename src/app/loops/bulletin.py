"""What stands on Home Assistant's broker, as far as we know: only differences to it go out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from domain.devices.model import Device
from domain.kernel.ids import DeviceId
from domain.telemetry.homeassistant import Face, Retained, face

AT_ONCE = 32
"""Messages under way; each waits for its acknowledgement."""


class Line(Protocol):
    async def publish(self, topic: str, payload: str) -> None: ...


class Bulletin:
    def __init__(self) -> None:
        self._line: Line | None = None
        self._standing: dict[DeviceId, dict[str, str]] = {}
        self._faces: dict[DeviceId, Face] = {}
        self.left: set[str] = set()
        """Topics that an earlier run may have left behind."""
        self.published = 0

    @property
    def devices(self) -> frozenset[DeviceId]:
        return frozenset(self._standing)

    def begin(self, line: Line) -> None:
        """A new connection: what stood there is no longer known."""
        self._line = line
        self._standing, self.left = {}, set()
        self._faces.clear()

    def forget_faces(self) -> None:
        """News were lost, so every device must be looked at again."""
        self._faces.clear()

    def changed(self, devices: Iterable[Device]) -> Sequence[Device]:
        """Those of them that look other than when they were last asked for. Readings are no part of a face."""
        found = [device for device in devices if self._faces.get(device.device_id) != face(device)]
        self._faces.update((device.device_id, face(device)) for device in found)
        return found

    async def show_all(self, wanted: Mapping[DeviceId, Retained]) -> None:
        """Raises Unavailable; what stands there is unknown then, and `begin` is next."""
        for device_id, retained in wanted.items():
            standing = self._standing.get(device_id, {})
            gone = [(topic, "") for topic in standing if topic not in retained]
            await self._publish([*gone, *(each for each in retained.items() if standing.get(each[0]) != each[1])])
            if retained:
                self._standing[device_id] = dict(retained)
            else:
                self._standing.pop(device_id, None)
                self._faces.pop(device_id, None)

    async def clear_left(self) -> None:
        """Once everything that is wanted stands."""
        wanted = {topic for standing in self._standing.values() for topic in standing}
        left, self.left = self.left, set()
        await self._publish([(topic, "") for topic in sorted(left - wanted)])

    async def _publish(self, messages: Sequence[tuple[str, str]]) -> None:
        if self._line is None:
            return
        for start in range(0, len(messages), AT_ONCE):
            stretch = messages[start : start + AT_ONCE]
            answers = await asyncio.gather(*(self._line.publish(*each) for each in stretch), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
            self.published += len(stretch)
