"""One door to all profiles: the domain's `DeviceCodec`, by dispatch on the device's profile."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from adapters.mqtt.profiles import esphome, native, shelly, tasmota
from domain.devices.codec import Downlink, Order, PlanRow, Report
from domain.devices.model import Profile
from domain.kernel.ids import DeviceId

_PROFILES: dict[Profile, ModuleType] = {
    Profile.NATIVE: native,
    Profile.TASMOTA: tasmota,
    Profile.ESPHOME: esphome,
    Profile.SHELLY: shelly,
}


class ProfileCodec:
    def encode(self, profile: Profile, device_id: DeviceId, order: Order, now_ms: int) -> Sequence[Downlink]:
        messages: Sequence[Downlink] = _PROFILES[profile].encode(device_id, order, now_ms)
        return messages

    def decode(self, profile: Profile, topic: str, payload: bytes, retain: bool) -> Sequence[Report]:
        reports: Sequence[Report] = _PROFILES[profile].decode(topic, payload, retain)
        return reports

    def listens(self, profile: Profile, topic_filter: str) -> bool:
        return bool(_PROFILES[profile].listens(topic_filter))

    def greeting(self, profile: Profile) -> Sequence[Downlink]:
        messages: Sequence[Downlink] = _PROFILES[profile].greeting()
        return messages

    def plan(
        self, profile: Profile, device_id: DeviceId, revision: int, rows: Sequence[PlanRow], now_ms: int
    ) -> Sequence[Downlink]:
        messages: Sequence[Downlink] = _PROFILES[profile].plan(device_id, revision, rows, now_ms)
        return messages

    def time(self, now_ms: int) -> Downlink:
        return native.time(now_ms)
