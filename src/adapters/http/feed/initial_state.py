"""The first message of a feed: the state of the devices, and the cursor to resume from."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from domain.devices.model import Device
from domain.events.cursors import FeedCursor
from domain.kernel.clock import to_iso


def initial_state_message(devices: Iterable[Device], cursor: FeedCursor) -> bytes:
    shown = [_shown_device(device) for device in devices]
    return msgspec.json.encode({"type": "initial_state", "cursor": cursor.encode(), "devices": shown})


def _shown_device(device: Device) -> dict[str, object]:
    return {
        "deviceId": device.device_id,
        "name": device.name,
        "relay": None if device.relay is None else "ON" if device.relay else "OFF",
        "isOnline": device.is_online,
        "lastSeen": None if device.last_seen_ms is None else to_iso(device.last_seen_ms),
    }
