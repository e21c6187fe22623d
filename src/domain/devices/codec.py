"""What devices say and are told, whatever firmware they run.

A profile's codec turns a publish into reports and an order into messages. It decides nothing: a report is the device's claim,
and the parts above decide what follows from it. All topics are below the device's own prefix `devices/<deviceId>/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from domain.devices.model import FirmwareProfile
from domain.kernel.domain_events import Json
from domain.kernel.ids import DeviceId

PlanRow: TypeAlias = tuple[int, int, int, bool]
"""(slot, onTs, offTs, enabled), Unix seconds."""


@dataclass(frozen=True, slots=True)
class DeviceCommand:
    """One command for one device. `execution_id` is what the device answers with; `expires_ms`, Unix ms, its deadline."""

    execution_id: str
    cmd: str
    params: Json
    expires_ms: int


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    topic: str
    payload: bytes
    retain: bool = False
    expiry_s: int | None = None
    qos: int = 1


@dataclass(frozen=True, slots=True)
class PresenceReport:
    """`online`/`offline` by the device itself or by its will."""

    online: bool


@dataclass(frozen=True, slots=True)
class RelayReport:
    """`execution_id` names the command that caused it; `by` is the device's own word for the cause."""

    relay: bool
    execution_id: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResultReport:
    """`status` is `ack`, `done`, `error` or `expired`."""

    execution_id: str
    status: str
    code: str | None = None
    relay: bool | None = None
    data: Json = None


@dataclass(frozen=True, slots=True)
class PlanRevisionReport:
    """The revision of the schedule plan the device holds."""

    rev: int


@dataclass(frozen=True, slots=True)
class HelloReport:
    firmware: str | None
    rev: int | None


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """The device wants to know what time it is."""


@dataclass(frozen=True, slots=True)
class TelemetryReport:
    """Readings of a stock firmware as a native telemetry payload; native telemetry never comes this way."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class UnreadableMessage:
    """Not understood. `code` is counted, `why` goes to the log at most once a minute a device."""

    code: str
    reason: str = field(default="")


DeviceReport: TypeAlias = (
    PresenceReport
    | RelayReport
    | CommandResultReport
    | PlanRevisionReport
    | HelloReport
    | TimeRequest
    | TelemetryReport
    | UnreadableMessage
)


class DeviceCodec(Protocol):
    def encode_command(
        self, profile: FirmwareProfile, device_id: DeviceId, order: DeviceCommand, now_ms: int
    ) -> Sequence[OutboundMessage]:
        """The messages that carry the order; empty when this firmware cannot express it."""
        ...

    def decode(self, profile: FirmwareProfile, topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
        """Never raises for what a device sends."""
        ...

    def is_command_subscription(self, profile: FirmwareProfile, topic_filter: str) -> bool:
        """Whether a device that subscribed to this filter (below its prefix) now hears its commands."""
        ...

    def state_queries(self, profile: FirmwareProfile) -> Sequence[OutboundMessage]:
        """What to ask a device that has just come online, so that it says how it stands."""
        ...

    def encode_plan(
        self, profile: FirmwareProfile, device_id: DeviceId, revision: int, rows: Sequence[PlanRow], now_ms: int
    ) -> Sequence[OutboundMessage]:
        """The messages that make the device hold exactly this plan and say its revision; empty where it cannot hold one."""
        ...

    def encode_time(self, now_ms: int) -> OutboundMessage: ...
