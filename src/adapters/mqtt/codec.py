"""The `DeviceCodec` for all firmware profiles: it dispatches to the module of the device's profile, whose `decode` raises what
msgspec raises for a payload that is not the expected JSON. Of the devices whose firmware needs it, it keeps the profile's
memory; those that have been silent for the longest time are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import msgspec

from adapters.mqtt.profiles import esphome, esphome_channels, native, shelly, tasmota
from domain.devices.messages import DeviceReport, OutboundCommand, OutboundMessage, PlanRow, UnreadableMessage
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId

_CODECS: dict[FirmwareProfile, ModuleType] = {
    FirmwareProfile.NATIVE: native,
    FirmwareProfile.TASMOTA: tasmota,
    FirmwareProfile.ESPHOME: esphome,
    FirmwareProfile.SHELLY: shelly,
}


_MEMORIES: dict[FirmwareProfile, Callable[[DeviceId], Any]] = {
    FirmwareProfile.TASMOTA: lambda _: tasmota.TasmotaState(),
    FirmwareProfile.ESPHOME: lambda _: esphome_channels.EspHomeState(),
    FirmwareProfile.SHELLY: shelly.ShellyState,
}
MAX_REMEMBERED = 20_000
"""Devices; forgetting one makes an answer less precise, never wrong."""


class ProfileDispatchingDeviceCodec:
    def __init__(self) -> None:
        self._memories: OrderedDict[tuple[FirmwareProfile, DeviceId], Any] = OrderedDict()

    def encode_command(
        self, profile: FirmwareProfile, device_id: DeviceId, command: OutboundCommand, now_ms: int
    ) -> Sequence[OutboundMessage]:
        messages: Sequence[OutboundMessage] = _CODECS[profile].encode_command(
            device_id, command, now_ms, self._memory(profile, device_id)
        )
        return messages

    def decode(
        self,
        profile: FirmwareProfile,
        topic: str,
        payload: bytes,
        retain: bool,
        device_id: DeviceId | None = None,
        at_ms: int = 0,
    ) -> Sequence[DeviceReport]:
        memory = None if device_id is None else self._memory(profile, device_id)
        reports: Sequence[DeviceReport]
        try:
            reports = _CODECS[profile].decode(topic, payload, retain, memory, at_ms)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reports = (UnreadableMessage("MALFORMED", str(error)),)
        return tuple(replace(one, topic=topic) if isinstance(one, UnreadableMessage) else one for one in reports)

    def _memory(self, profile: FirmwareProfile, device_id: DeviceId) -> Any:
        make = _MEMORIES.get(profile)
        if make is None:
            return None
        memory = self._memories.pop((profile, device_id), None) or make(device_id)
        self._memories[profile, device_id] = memory
        if len(self._memories) > MAX_REMEMBERED:
            self._memories.popitem(last=False)
        return memory

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
