"""The `DeviceCodec` for all firmware profiles: it dispatches to the module of the device's profile, whose `decode` raises what
msgspec raises for a payload that is not the expected JSON. It stands apart, because nothing else knows all profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import msgspec

from adapters.mqtt.profiles import esphome, native, shelly, tasmota
from domain.devices.messages import DeviceReport, OutboundCommand, OutboundMessage, PlanRow, UnreadableMessage
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId

_CODECS: dict[FirmwareProfile, ModuleType] = {
    FirmwareProfile.NATIVE: native,
    FirmwareProfile.TASMOTA: tasmota,
    FirmwareProfile.ESPHOME: esphome,
    FirmwareProfile.SHELLY: shelly,
}


class ProfileDispatchingDeviceCodec:
    def encode_command(
        self, profile: FirmwareProfile, device_id: DeviceId, command: OutboundCommand, now_ms: int
    ) -> Sequence[OutboundMessage]:
        messages: Sequence[OutboundMessage] = _CODECS[profile].encode_command(device_id, command, now_ms)
        return messages

    def decode(self, profile: FirmwareProfile, topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
        reports: Sequence[DeviceReport]
        try:
            reports = _CODECS[profile].decode(topic, payload, retain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reports = (UnreadableMessage("MALFORMED", f"{topic}: {error}"),)
        return reports

    def is_command_subscription(self, profile: FirmwareProfile, topic_filter: str) -> bool:
        return bool(_CODECS[profile].is_command_subscription(topic_filter))

    def publishes_elsewhere_on_connect(self, profile: FirmwareProfile) -> bool:
        """Tasmota clears a retained `cmnd/POWER` and announces itself on `tasmota/discovery`."""
        return profile is FirmwareProfile.TASMOTA

    def state_queries(self, profile: FirmwareProfile) -> Sequence[OutboundMessage]:
        messages: Sequence[OutboundMessage] = _CODECS[profile].state_queries()
        return messages

    def encode_plan(
        self, profile: FirmwareProfile, device_id: DeviceId, revision: int, rows: Sequence[PlanRow], now_ms: int
    ) -> Sequence[OutboundMessage]:
        messages: Sequence[OutboundMessage] = _CODECS[profile].encode_plan(device_id, revision, rows, now_ms)
        return messages

    def encode_plan_jobs(
        self, device_id: DeviceId, revision: int, rows: Sequence[PlanRow], now_ms: int
    ) -> Sequence[OutboundMessage]:
        return shelly.encode_plan_jobs(device_id, revision, rows, now_ms)

    def encode_time(self, now_ms: int) -> OutboundMessage:
        return native.encode_time(now_ms)
