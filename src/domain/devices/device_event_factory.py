"""The event of what a device did, or what became known about it."""

from __future__ import annotations

from domain.devices.model import Device
from domain.kernel.domain_event import DomainEvent, EventKind, JsonObject


def device_event(device: Device, kind: EventKind, description: str, at_ms: int, data: JsonObject | None = None) -> DomainEvent:
    name = device.name
    return DomainEvent(device.account_id, kind, description, at_ms, "device", device.device_id, data or {}, device_name=name)
