"""Models of what the service sends beside responses, for both documents: public events, messages of the live feed, webhooks.

An event is one object, which goes to the feed and, as `data` in an envelope, to webhooks. The service builds payloads as
dictionaries where the event happens; these models describe them, and tests hold that each real payload fits its model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from adapters.http.core.schemas import RequestBodyModel, ResponseModel, Timestamp
from domain.approvals.model import ApprovalStatus
from domain.commands.model import ExecutionStatus, TriggeredBy
from domain.devices.channels import ChannelKind, InputAction
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
    """The device's relay, or another channel, has switched."""

    type: Literal["relay_changed"]
    relay: Literal["ON", "OFF"]
    channel: int
    triggered_by: TriggeredBy


class StateChangedEvent(BaseEventPayload):
    """A channel's level, colour, position (when it has stopped), target or mode has changed."""

    type: Literal["state_changed"]
    channel: int
    name: str
    state: Any = Field(description="As `state` of the device's channel.", examples=[{"position": 40, "moving": None}])
    triggered_by: TriggeredBy


class InputChangedEvent(BaseEventPayload):
    """A button was pressed, or a contact has changed."""

    type: Literal["input_changed"]
    channel: int
    name: str
    action: InputAction


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
    channel: int
    late_seconds: int
    execution_id: str | None = Field(
        default=None, exclude_if=lambda value: value is None, description="Absent if the device ran the schedule by itself."
    )


class ApprovalRequestedEvent(BaseEventPayload):
    """A command waits for an Owner or Admin."""

    type: Literal["approval_requested"]
    approval_id: str
    cmd: str
    channel: int
    requested_by: str = Field(description="The actor: `user:…` or `apikey:…`.")
    reason: str | None
    expires_at: Timestamp


class ApprovalDecidedEvent(BaseEventPayload):
    """An approval was decided, or has expired."""

    type: Literal["approval_decided"]
    approval_id: str
    cmd: str
    channel: int
    status: Literal[ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.WITHDRAWN, ApprovalStatus.EXPIRED]
    requested_by: str = Field(description="The actor: `user:…` or `apikey:…`.")
    execution_id: str | None
    decided_by: str | None
    note: str | None = Field(examples=["Yes, until noon."])


class CommandResultEvent(BaseEventPayload):
    """A command has ended."""

    type: Literal["command_result"]
    execution_id: str
    cmd: str
    channel: int
    status: Literal[
        ExecutionStatus.DONE,
        ExecutionStatus.FAILED,
        ExecutionStatus.TIMED_OUT,
        ExecutionStatus.EXPIRED,
        ExecutionStatus.CANCELLED,
    ]
    code: str | None = Field(description="Why it failed or was called off, if so.")
    requested_by: str = Field(description="The actor: `user:…`, `apikey:…`, `schedule:…`, `rule:…`.")


class RuleDisabledEvent(BaseEventPayload):
    """The service has disabled a rule that can no longer run."""

    type: Literal["rule_disabled"]
    rule_id: str
    command: str
    channel: int


class DeviceClockSkewEvent(BaseEventPayload):
    """The device's clock is more than two minutes wrong."""

    type: Literal["device_clock_skew"]
    clock_offset_ms: int = Field(description="Positive: ahead of the service's clock.", examples=[180_000])


EVENT_PAYLOADS: tuple[type[BaseEventPayload], ...] = (
    RelayChangedEvent,
    StateChangedEvent,
    InputChangedEvent,
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


CURSOR_DESCRIPTION = "Connect with `?cursor=` to continue after this message."


class FeedAuthMessage(RequestBodyModel):
    """The first message of a client without credentials in query or header; later, renewed credentials. One of the two."""

    type: Literal["auth"]
    token: str | None = Field(default=None, description="An access token, or an API key.")
    api_key: str | None = None


class FeedPing(RequestBodyModel):
    """Answered with `pong`."""

    type: Literal["ping"]


class FeedChannel(ResponseModel):
    channel: int
    kind: ChannelKind
    name: str
    state: Any = Field(description="As `state` of the device's channel.", examples=["ON"])


class FeedDevice(ResponseModel):
    device_id: str
    name: str
    relay: Literal["ON", "OFF"] | None
    is_online: bool
    last_seen: Timestamp | None
    channels: list[FeedChannel] | None = Field(
        default=None, exclude_if=lambda value: value is None, description="Of a device that has more, or another, than a relay."
    )


class FeedInitialState(ResponseModel):
    """The first message after authentication. Events follow."""

    type: Literal["initial_state"]
    cursor: str = Field(description=CURSOR_DESCRIPTION)
    devices: list[FeedDevice]


class FeedResync(ResponseModel):
    """The client's cursor is too old or unreadable, or more than 10,000 readings were missed: some events are lost to it. A new
    initial state follows."""

    type: Literal["resync"]


class FeedAuthenticated(ResponseModel):
    """The answer to renewed credentials."""

    type: Literal["authenticated"]
    expires_at: Timestamp | None = Field(description="null for an API key, which does not expire.")


class FeedPong(ResponseModel):
    type: Literal["pong"]


class FeedAuditEvent(ResponseModel):
    """Any other event of the log, for sessions that connect with `?audit=true`."""

    type: Literal["audit"]
    event_type: str
    event_id: str
    account_id: str
    device_id: str | None
    device_name: str | None
    description: str
    source: str
    timestamp: UnixMilliseconds
    cursor: str = Field(description=CURSOR_DESCRIPTION)


def _feed_event(payload: type[BaseEventPayload]) -> type[ResponseModel]:
    fields: dict[str, Any] = {"cursor": (str, Field(description=CURSOR_DESCRIPTION))}
    name = f"Feed{payload.__name__}"
    return create_model(name, __base__=payload, __doc__=payload.__doc__, **fields)


SENT_MESSAGES: dict[str, type[ResponseModel]] = {
    "initial_state": FeedInitialState,
    **{event_type(payload): _feed_event(payload) for payload in EVENT_PAYLOADS},
    "audit": FeedAuditEvent,
    "resync": FeedResync,
    "authenticated": FeedAuthenticated,
    "pong": FeedPong,
}
"""From the service, by `type`."""
RECEIVED_MESSAGES: dict[str, type[RequestBodyModel]] = {"auth": FeedAuthMessage, "ping": FeedPing}
"""From the client, by `type`."""


DELIVERY_ID = "whd_8h6f4d2b0z9x7v5t3r1p"


class PingPayload(ResponseModel):
    """The test message of `POST …/ping`."""

    type: Literal["ping"]
    event_id: str
    account_id: str
    webhook_id: str
    timestamp: UnixMilliseconds


class WebhookEnvelopeSchema(ResponseModel):
    """The body of a delivery."""

    id: str = Field(description="The attempt; each retry has its own.", examples=[DELIVERY_ID])
    type: str
    created_at: Timestamp


def _envelope(name: str, payload: type[ResponseModel]) -> type[WebhookEnvelopeSchema]:
    fields: dict[str, Any] = {"type": (payload.model_fields["type"].annotation, ...), "data": (payload, ...)}
    return create_model(f"{name}Webhook", __base__=WebhookEnvelopeSchema, __doc__=payload.__doc__, **fields)


WEBHOOK_ENVELOPES: dict[str, type[WebhookEnvelopeSchema]] = {
    **{event_type(payload): _envelope(payload.__name__.removesuffix("Event"), payload) for payload in EVENT_PAYLOADS},
    "ping": _envelope("Ping", PingPayload),
}
"""By event type."""

WEBHOOK_HEADERS = {
    "X-Service-Event": "The event type, as in the body.",
    "X-Service-Delivery": "The id of the attempt, as in the body.",
    "X-Service-Signature": "`sha256=` and the HMAC-SHA256 of the exact body, in hexadecimal, keyed with the webhook's secret.",
    "webhook-id": "The event's id, the same for every attempt (Standard Webhooks).",
    "webhook-timestamp": "Unix seconds of the attempt (Standard Webhooks).",
    "webhook-signature": "`v1,` and the Base64 signature of `id.timestamp.body` (Standard Webhooks).",
}
