"""A board of stock firmware as its codec sees it: what it says becomes reports, and commands become messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from domain.devices.messages import DeviceReport, OutboundCommand, StockFirmwareTelemetryReport
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId

DEVICE = DeviceId("dev_aaaaaaaaaaaaaaaaaaaa")
NOW = 1_800_000_000_000
Report = TypeVar("Report")


class Board:
    """One codec with one board."""

    def __init__(self, profile: FirmwareProfile) -> None:
        self.codec = ProfileDispatchingDeviceCodec()
        self.profile = profile
        self.now_ms = NOW

    def says(self, topic: str, payload: Any, retain: bool = False, after_ms: int = 10) -> list[DeviceReport]:
        """`payload`: a word, or what becomes JSON."""
        self.now_ms += after_ms
        raw = payload if isinstance(payload, str) else json.dumps(payload)
        return list(self.codec.decode(self.profile, topic, raw.encode(), retain, DEVICE, self.now_ms))

    def send(self, cmd: str, params: Any = None, execution_id: str = "exe_1", **channel: Any) -> list[tuple[str, str]]:
        """(topic, payload) of each message. `channel`: the fields of the command's channel."""
        command = OutboundCommand(execution_id, cmd, params, self.now_ms + 60_000, **channel)
        messages = self.codec.encode_command(self.profile, DEVICE, command, self.now_ms)
        return [(message.topic, message.payload.decode()) for message in messages]


def only(kind: type[Report], reports: Sequence[DeviceReport]) -> list[Report]:
    return [report for report in reports if isinstance(report, kind)]


def readings(reports: Sequence[DeviceReport]) -> list[Any]:
    return [json.loads(each.payload) for each in only(StockFirmwareTelemetryReport, reports)]


def metrics(reports: Sequence[DeviceReport]) -> dict[str, Any]:
    """Those that last."""
    return {name: value for each in readings(reports) if isinstance(each, dict) for name, value in each["m"].items()}
