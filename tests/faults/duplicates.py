"""A device that sends each message again as MQTT allows it: with DUP before the PUBACK, and once more on its next connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time

from faults.workload import Workload
from support.device import Device, create_device
from support.mqtt_packets import PUBACK, open_connected, publish

MESSAGES = 50
DUP = 0x08


class DuplicatingDevice:
    """Publishes numbered readings with their own time, each two or three times."""

    def __init__(self, workload: Workload, device: Device) -> None:
        self._workload = workload
        self._device = device
        self.acknowledged: set[int] = set()
        self._next = 0
        self._unfinished: list[tuple[int, bytes]] = []

    @classmethod
    async def create(cls, workload: Workload) -> DuplicatingDevice:
        device = await create_device(workload.api, "Duplicator")
        made = cls(workload, device)
        workload.published[device.device_id] = made.acknowledged
        return made

    async def send_round(self) -> None:
        """The messages of the last round once more, then new ones, each twice; the connection ends without a word."""
        raw = await open_connected(self._workload.service.mqtt_port, self._device.credentials, self._device.device_id)
        try:
            for packet_id, payload in self._unfinished:
                await raw.send(self._packet(packet_id, payload, again=True))
            acknowledged = await self._read_acks(raw, len(self._unfinished))
            self._finish(acknowledged)
            self._unfinished = [self._new_message(packet_id) for packet_id in range(1, MESSAGES + 1)]
            for packet_id, payload in self._unfinished:
                await raw.send(self._packet(packet_id, payload) + self._packet(packet_id, payload, again=True))
            self._finish(await self._read_acks(raw, MESSAGES), keep=True)
        finally:
            await raw.close()

    def _new_message(self, packet_id: int) -> tuple[int, bytes]:
        self._next += 1
        return packet_id, json.dumps({"ts": int(time.time() * 1000) + self._next % 1000, "m": {"seq": self._next}}).encode()

    def _packet(self, packet_id: int, payload: bytes, *, again: bool = False) -> bytes:
        packet = publish(self._device.topic("telemetry"), payload, qos=1, packet_id=packet_id)
        return bytes([packet[0] | (DUP if again else 0)]) + packet[1:]

    def _finish(self, packet_ids: set[int], *, keep: bool = False) -> None:
        """Note what is acknowledged; `keep`: all the same it is sent again, as by a device that crashed before it noted that."""
        for packet_id, payload in self._unfinished:
            if packet_id in packet_ids:
                self.acknowledged.add(json.loads(payload)["m"]["seq"])
        if not keep:
            self._unfinished = []

    async def _read_acks(self, raw: object, count: int) -> set[int]:
        """The packet ids of so many PUBACKs, or of those that come before the connection ends."""
        found: set[int] = set()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while len(found) < count:
                head, body = await raw.next_packet()  # type: ignore[attr-defined]
                if head == PUBACK:
                    found.add(struct.unpack(">H", body[:2])[0])
        return found
