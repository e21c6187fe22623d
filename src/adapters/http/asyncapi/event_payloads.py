"""The payloads of the public events, one model per type: the same object goes to the feed and, as `data`, to webhooks.

The service builds payloads as dictionaries where the event happens; these models describe them, and tests hold that each real
payload fits its model.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapters.http.core.schemas import ResponseModel, Timestamp
from domain.approvals.model import ApprovalStatus
from domain.commands.model import ExecutionStatus, TriggeredBy
from domain.schedules.model import SwitchEdge

UnixMilliseconds = Annotated[int, Field(description="Unix milliseconds.", examples=[1_795_233_602_120])]


class BaseEventPayload(ResponseModel):
    """What every event has."""

    type: str
    event_id: str = Field(description="The same for every delivery of the event; use it to recognise one that comes twice.")
    account_id: str
    device_id: str
    timestamp: UnixMilliseconds


class RelayChangedEvent(BaseEventPayload):
    """The device's relay has switched."""

    type: Literal["relay_changed"]
    relay: Literal["ON", "OFF"]
    triggered_by: TriggeredBy


class TelemetryEvent(BaseEventPayload):
    """One reading. A number or boolean is in `value`, a text in `valueText`."""

    type: Literal["telemetry"]
    metric: str
    value: float | None
    value_text: str | None
    unit: str | None


class DeviceOnlineEvent(BaseEventPayload):
    """The device has connected."""

    type: Literal["device_online"]
    reason: Literal["connected"]


class DeviceOfflineEvent(BaseEventPayload):
    """The device is not connected any more."""

    type: Literal["device_offline"]
    reason: Literal["disconnected", "lost", "revoked"]


class ScheduleFiredEvent(BaseEventPayload):
    """A schedule has switched on or off."""

    type: Literal["schedule_fired"]
    schedule_id: str
    slot: int
    edge: SwitchEdge
    command: str
    late_seconds: int
    execution_id: str | None = Field(
        default=None, exclude_if=lambda value: value is None, description="Absent if the device ran the schedule by itself."
    )


class ApprovalRequestedEvent(BaseEventPayload):
    """A command waits for an Owner or Admin."""

    type: Literal["approval_requested"]
    approval_id: str
    cmd: str
    requested_by: str = Field(description="The actor: `user:…` or `apikey:…`.")
    reason: str | None
    expires_at: Timestamp


class ApprovalDecidedEvent(BaseEventPayload):
    """An approval was decided, or has expired."""

    type: Literal["approval_decided"]
    approval_id: str
    cmd: str
    status: Literal[ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.EXPIRED]
    requested_by: str = Field(description="The actor: `user:…` or `apikey:…`.")
    execution_id: str | None
    decided_by: str | None
    note: str | None = Field(examples=["Yes, until noon."])


class CommandResultEvent(BaseEventPayload):
    """A command has ended."""

    type: Literal["command_result"]
    execution_id: str
    cmd: str
    status: Literal[ExecutionStatus.DONE, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.EXPIRED]
    code: str | None = Field(description="Why it failed, if it did.")
    requested_by: str = Field(description="The actor: `user:…`, `apikey:…`, `schedule:…`, `rule:…`.")


class RuleDisabledEvent(BaseEventPayload):
    """The service has disabled a rule that can no longer run."""

    type: Literal["rule_disabled"]
    rule_id: str
    command: str


class DeviceClockSkewEvent(BaseEventPayload):
    """The device's clock is more than two minutes wrong."""

    type: Literal["device_clock_skew"]
    clock_offset_ms: int = Field(description="Positive: ahead of the service's clock.", examples=[180_000])


EVENT_PAYLOADS: tuple[type[BaseEventPayload], ...] = (
    RelayChangedEvent,
    TelemetryEvent,
    DeviceOnlineEvent,
    DeviceOfflineEvent,
    ScheduleFiredEvent,
    ApprovalRequestedEvent,
    ApprovalDecidedEvent,
    CommandResultEvent,
    RuleDisabledEvent,
    DeviceClockSkewEvent,
)


def event_type(model: type[BaseEventPayload]) -> str:
    """The value of `type`, such as `relay_changed`."""
    (name,) = model.model_fields["type"].annotation.__args__  # type: ignore[union-attr]
    return str(name)
