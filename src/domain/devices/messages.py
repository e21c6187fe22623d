"""Messages from and to devices, independent of their firmware.

The codec turns a received message into reports and a command into outbound messages. It decides nothing: a report is what the
device claims, and the parts above decide what follows. All topics are below the device's prefix `devices/<deviceId>/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from domain.devices.channels import RELAY_CHANNEL, ChannelKind, ChannelState, DeclaredChannel, InputAction
from domain.devices.model import FirmwareProfile
from domain.kernel.domain_event import Json
from domain.kernel.ids import DeviceId

PlanRow: TypeAlias = tuple[int, int, int, bool, int]
"""(slot, onTs, offTs, enabled, channel), Unix seconds."""

ChannelReference: TypeAlias = int | str
"""The number of a channel, or its component (`DeclaredChannel.component`) where the firmware has no number for it."""


@dataclass(frozen=True, slots=True)
class OutboundCommand:
    """One command for one device. The device repeats `execution_id` in its answer; `expires_ms` is the deadline, Unix ms."""

    execution_id: str
    cmd: str
    params: Json
    expires_ms: int
    channel: int = RELAY_CHANNEL
    kind: ChannelKind = ChannelKind.RELAY
    component: str | None = None
    """What the firmware calls the channel, as `DeclaredChannel.component`."""

    def expiry_s(self, now_ms: int) -> int:
        """The remaining time as a message expiry interval: rounded up, at least 1."""
        return max(1, -(-(self.expires_ms - now_ms) // 1000))


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """One MQTT PUBLISH to a device. `topic` is below the device's prefix; `expiry_s` is the message expiry interval.
    `is_optional`: the command counts as sent without it, because not every configuration of the firmware subscribes to it."""

    topic: str
    payload: bytes
    retain: bool = False
    expiry_s: int | None = None
    qos: int = 1
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class PresenceReport:
    """`online` or `offline`, published by the device or by its will."""

    online: bool


@dataclass(frozen=True, slots=True)
class RelayReport:
    """Whether a channel is on. `execution_id`: the command that caused the state; `cause`: what the device itself gives as the
    cause."""

    relay: bool
    execution_id: str | None = None
    cause: str | None = None
    channel: ChannelReference = RELAY_CHANNEL


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What else is known of a channel: its level, position, colour or target. `state.on` is not used: see `RelayReport`."""

    channel: ChannelReference
    state: ChannelState
    execution_id: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class InputReport:
    """A button was pressed, or a contact has changed. The codec also gives the reading that rules see."""

    channel: ChannelReference
    action: InputAction


@dataclass(frozen=True, slots=True)
class ChannelsReport:
    """Channels that the firmware names. `is_complete`: these are all; else others that it has named stay."""

    channels: tuple[DeclaredChannel, ...]
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class CommandResultReport:
    """`status` is `ack`, `done`, `error` or `expired`. `relay` is that of the command's channel."""

    execution_id: str
    status: str
    code: str | None = None
    relay: bool | None = None
    data: Json = None


@dataclass(frozen=True, slots=True)
class DevicePlanRevisionReport:
    """The revision of the schedule plan that the device stores."""

    rev: int


@dataclass(frozen=True, slots=True)
class DeviceClockReadyReport:
    """The device's clock runs in UTC, as the jobs of the schedule plan of this revision need it."""

    rev: int


@dataclass(frozen=True, slots=True)
class HelloReport:
    """`channels`: all that the firmware names. None: the firmware does not know channels, and has one relay."""

    firmware: str | None
    rev: int | None
    channels: tuple[DeclaredChannel, ...] | None = None


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """The device asks for the current time."""


@dataclass(frozen=True, slots=True)
class StockFirmwareTelemetryReport:
    """Readings of a stock firmware as a native telemetry payload. Native telemetry does not use this type."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class StateQuestion:
    """What the device said is not believed as it is: `message` asks it."""

    message: OutboundMessage


@dataclass(frozen=True, slots=True)
class UnreadableMessage:
    """A message, or a part of it, that is not kept. `code` is counted; `reason` is logged at most once a minute per device.
    `topic` is below the device's prefix; `metric`: the first of the `count` values, when single values were dropped."""

    code: str
    reason: str = field(default="")
    topic: str = ""
    metric: str | None = None
    count: int = 1


DeviceReport: TypeAlias = (
    PresenceReport
    | RelayReport
    | ChannelReport
    | InputReport
    | ChannelsReport
    | CommandResultReport
    | DevicePlanRevisionReport
    | DeviceClockReadyReport
    | HelloReport
    | TimeRequest
    | StockFirmwareTelemetryReport
    | StateQuestion
    | UnreadableMessage
)


class DeviceCodec(Protocol):
    """Stock firmware answers with several messages, so the codec remembers the last ones of each device, and what it was sent.
    What it remembers is lost in a restart: then it asks, or leaves a command unanswered, and never takes one for done."""

    def encode_command(
        self, profile: FirmwareProfile, device_id: DeviceId, command: OutboundCommand, now_ms: int
    ) -> Sequence[OutboundMessage]:
        """The messages that carry the command; empty when this firmware cannot express it."""

    def decode(
        self,
        profile: FirmwareProfile,
        topic: str,
        payload: bytes,
        retain: bool,
        device_id: DeviceId | None = None,
        at_ms: int = 0,
    ) -> Sequence[DeviceReport]:
        """Never raises because of what a device sends, and never loses a value without a report of it. Call it in the order of
        arrival (`at_ms`, Unix ms). Without `device_id` nothing is remembered."""

    def is_command_subscription(self, profile: FirmwareProfile, topic_filter: str) -> bool:
        """Whether a subscription to this filter (below the device's prefix) covers its commands."""

    def publishes_elsewhere_on_connect(self, profile: FirmwareProfile) -> bool:
        """Whether a correctly configured device publishes to topics that it may not use, right after it has connected."""

    def state_queries(self, profile: FirmwareProfile) -> Sequence[OutboundMessage]:
        """The messages that ask a device for its state after it has come online."""

    def encode_plan(
        self, profile: FirmwareProfile, device_id: DeviceId, revision: int, rows: Sequence[PlanRow], now_ms: int
    ) -> Sequence[OutboundMessage]:
        """The messages that make the device store exactly this plan and report its revision; empty if it cannot store one. A
        firmware whose clock must be set before answers with a `DeviceClockReadyReport`, and then gets `encode_plan_jobs`."""

    def encode_plan_jobs(
        self, device_id: DeviceId, revision: int, rows: Sequence[PlanRow], now_ms: int
    ) -> Sequence[OutboundMessage]:
        """The plan for a device that has sent a `DeviceClockReadyReport` of this revision."""

    def encode_time(self, now_ms: int) -> OutboundMessage: ...
