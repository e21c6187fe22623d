"""A device and its lifecycle, and what is known about it: credentials, type, groups, health.

PENDING (registered, cannot connect) → ACTIVE (has credentials) ↔ DISABLED; any → REVOKED; new credentials bring a REVOKED
device back to ACTIVE. `TRANSITIONS` is the only definition of this. DELETING is never shown: the device counts as absent while
its rows are deleted, and a row in this state lets a restart finish the work. `device_no` is a small integer that the engine,
the broker and the readings use instead of the id.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from domain.devices.channels import RELAY_CHANNEL, Channel, ChannelKind
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.errors import Conflict
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, GroupId, ProjectId


class DeviceStatus(StrEnum):
    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    DISABLED = "DISABLED"
    REVOKED = "REVOKED"
    DELETING = "DELETING"


class DeviceLifecycleAction(StrEnum):
    GENERATE = "generate credentials"
    DISABLE = "disable"
    ENABLE = "enable"
    REVOKE = "revoke"
    DELETE = "delete"


TRANSITIONS: dict[tuple[DeviceStatus, DeviceLifecycleAction], DeviceStatus] = {
    (DeviceStatus.PENDING, DeviceLifecycleAction.GENERATE): DeviceStatus.ACTIVE,
    (DeviceStatus.REVOKED, DeviceLifecycleAction.GENERATE): DeviceStatus.ACTIVE,
    (DeviceStatus.ACTIVE, DeviceLifecycleAction.GENERATE): DeviceStatus.ACTIVE,
    (DeviceStatus.DISABLED, DeviceLifecycleAction.GENERATE): DeviceStatus.DISABLED,
    (DeviceStatus.ACTIVE, DeviceLifecycleAction.DISABLE): DeviceStatus.DISABLED,
    (DeviceStatus.DISABLED, DeviceLifecycleAction.ENABLE): DeviceStatus.ACTIVE,
    (DeviceStatus.PENDING, DeviceLifecycleAction.REVOKE): DeviceStatus.REVOKED,
    (DeviceStatus.ACTIVE, DeviceLifecycleAction.REVOKE): DeviceStatus.REVOKED,
    (DeviceStatus.DISABLED, DeviceLifecycleAction.REVOKE): DeviceStatus.REVOKED,
    (DeviceStatus.REVOKED, DeviceLifecycleAction.REVOKE): DeviceStatus.REVOKED,
    (DeviceStatus.PENDING, DeviceLifecycleAction.DELETE): DeviceStatus.DELETING,
    (DeviceStatus.ACTIVE, DeviceLifecycleAction.DELETE): DeviceStatus.DELETING,
    (DeviceStatus.DISABLED, DeviceLifecycleAction.DELETE): DeviceStatus.DELETING,
    (DeviceStatus.REVOKED, DeviceLifecycleAction.DELETE): DeviceStatus.DELETING,
}


class FirmwareProfile(StrEnum):
    """The firmware's MQTT topics: our own, or those of a stock firmware below the same prefix."""

    NATIVE = "native"
    TASMOTA = "tasmota"
    ESPHOME = "esphome"
    SHELLY = "shelly"


@fast_frozen
@dataclass(frozen=True, slots=True)
class DeviceMetadata:
    """Descriptive fields; no decision depends on them."""

    description: str | None = None
    location: str | None = None
    manufacturer: str | None = None
    model: str | None = None
    industry: str | None = None
    tags: tuple[str, ...] = ()


@fast_frozen
@dataclass(frozen=True, slots=True)
class Device:
    device_id: DeviceId
    device_no: int
    account_id: AccountId
    project_id: ProjectId
    name: str
    board_type: str
    app_type: str
    app_type_other: str | None
    status: DeviceStatus
    profile: FirmwareProfile
    device_type_id: DeviceTypeId | None
    about: DeviceMetadata
    created_ms: int
    version: int = 1
    relay: bool | None = None
    is_online: bool = False
    last_seen_ms: int | None = None
    sched_rev: int = 0
    """Revision of the device's schedule plan; it increases whenever the plan changes."""
    sched_rev_device: int | None = None
    """The plan revision that the device last reported."""
    external_id: str | None = None
    """The user's own id of the device, unique in the account."""
    has_left_edges: bool = False
    """Edges of its slots were left to it while it was offline, and are not resolved yet."""
    group_ids: tuple[GroupId, ...] = ()
    """The groups that the device is a member of, in order of their ids."""
    relay_ms: int | None = None
    """When the device reported its relay state, Unix ms."""
    channels: tuple[Channel, ...] = ()
    """Those that were named, by number. `all_channels` has channel 1 in any case, and its relay state."""

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """With the relay state in channel 1, which every device has that describes no other one there."""
        channels = self.channels
        if not channels or channels[0].channel != RELAY_CHANNEL:
            channels = (Channel(RELAY_CHANNEL, ChannelKind.RELAY, "Relay"), *channels)
        return (self._with_relay(channels[0]), *channels[1:])

    @property
    def has_one_relay(self) -> bool:
        """Nothing else was named: it is shown as a device that knows no channels."""
        return all(each.channel == RELAY_CHANNEL and each.kind is ChannelKind.RELAY for each in self.channels)

    def channel(self, number: int) -> Channel | None:
        """None for a channel that the device lacks."""
        return next((each for each in self.all_channels if each.channel == number), None)

    def _with_relay(self, each: Channel) -> Channel:
        if not each.kind.is_switched:
            return each
        times = [at_ms for at_ms in (each.reported_ms, self.relay_ms) if at_ms is not None]
        return replace(each, state=replace(each.state, on=self.relay), reported_ms=max(times, default=None))

    @property
    def places(self) -> tuple[str, ...]:
        """The ids of what a grant that covers the device can be on: the device, its project, its groups."""
        return (self.device_id, self.project_id, *self.group_ids)

    @property
    def has_unused_credentials(self) -> bool:
        """No connection was made with them yet: who asked for them may not have got the answer."""
        return self.status is DeviceStatus.ACTIVE and self.last_seen_ms is None and not self.is_online

    @property
    def is_active(self) -> bool:
        return self.status is DeviceStatus.ACTIVE

    def transition(self, trigger: DeviceLifecycleAction) -> Device:
        """Raises Conflict `DEVICE_STATE` when the table has no such transition."""
        status = TRANSITIONS.get((self.status, trigger))
        if status is None:
            raise Conflict(
                f"This is not possible while the device is {self.status}. "
                + ("Generate credentials first." if self.status in (DeviceStatus.PENDING, DeviceStatus.REVOKED) else ""),
                code="DEVICE_STATE",
            )
        return replace(self, status=status)


def takes_channel(device: Device, channel: int) -> bool:
    """Whether the firmware understands a command for the channel. Native firmware that has not named it would switch its relay;
    stock firmware has a topic for each."""
    if channel == RELAY_CHANNEL or device.profile is not FirmwareProfile.NATIVE:
        return True
    return any(each.channel == channel and each.is_declared for each in device.channels)


@dataclass(frozen=True, slots=True)
class DeviceCredentials:
    """`sealed`: the MQTT password, encrypted with the key ring and bound to the device id. Revoking deletes the row."""

    device_id: DeviceId
    sealed: bytes = field(repr=False)
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeviceType:
    device_type_id: DeviceTypeId
    account_id: AccountId
    name: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """A named set of devices of one project. `name` is unique in the project."""

    group_id: GroupId
    account_id: AccountId
    project_id: ProjectId
    name: str
    description: str | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class LastDroppedMessage:
    """The last message, or part of one, that the service did not keep."""

    reason: str
    at_ms: int


class RefusalReason(StrEnum):
    """Why the broker refuses a known device, its will or its subscription; never a reason of dropped messages."""

    CLIENT_ID = "CLIENT_ID"
    IDENTITY_USED_TWICE = "IDENTITY_USED_TWICE"
    NOT_OFFERED = "NOT_OFFERED"
    OTHER_USERNAME = "OTHER_USERNAME"
    PROTOCOL_ERROR = "PROTOCOL_ERROR"
    QOS_2 = "QOS_2"
    TOO_MANY_SUBSCRIPTIONS = "TOO_MANY_SUBSCRIPTIONS"
    TOPIC_NOT_ALLOWED = "TOPIC_NOT_ALLOWED"
    WRONG_PASSWORD = "WRONG_PASSWORD"  # noqa: S105 - a code


_REFUSALS = frozenset(RefusalReason)


@dataclass(frozen=True, slots=True)
class LastRefusal:
    """When the broker last refused the device, its will or a subscription. `topic`: the topic or filter, where there is one."""

    reason: str
    at_ms: int
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    clock_offset_ms: int | None = None
    """How far the device's clock is ahead of the service's; negative when it is behind."""
    last_drop: LastDroppedMessage | None = None
    last_refusal: LastRefusal | None = None
    reconnects: int = 0
    """Connections after the first one."""
    firmware: str | None = None
    max_packet_size: int | None = None
    """Bytes; what the last connection announced (MQTT 5). None: no limit, or not known."""


UNKNOWN_HEALTH = DeviceHealth()


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Messages of one device that were dropped for one reason, or refusals of the device for one `RefusalReason`. `at_ms`,
    `topic` (below the device's prefix, if it is there) and `metric` are those of the last one, as far as they are known; `detail`
    is for the log."""

    device_no: int
    reason: str
    count: int
    at_ms: int
    topic: str | None = None
    metric: str | None = None
    detail: str = ""

    @property
    def is_refusal(self) -> bool:
        return self.reason in _REFUSALS

    def shown_in(self, health: DeviceHealth) -> DeviceHealth:
        """The health of a device of which this is the last one."""
        if self.is_refusal:
            return replace(health, last_refusal=LastRefusal(self.reason, self.at_ms, self.topic))
        return replace(health, last_drop=LastDroppedMessage(self.reason, self.at_ms))


@dataclass(frozen=True, slots=True)
class NewConnectionsSummary:
    """New connections of a device, and what the last of them announced."""

    count: int
    max_packet_size: int | None
