"""Domain events: what happened, recorded in the account's event log.

A change of state emits its events in its own transaction (`Transaction.emit`). The events part stores each one as a row of the
log and turns those of the five public types into payloads for the live feed and the webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from domain.kernel.caller import Caller, SessionCaller
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.ids import AccountId, DeviceId

_SignInKind = Literal[
    "login", "logout", "login_failed", "login_throttled", "identity_linked", "session_revoked", "service_session_created"
]
_FactorKind = Literal["second_factor_enabled", "second_factor_failed", "second_factor_removed", "recovery_codes_renewed"]
_PasskeyKind = Literal["passkey_added", "passkey_removed", "step_up", "step_up_failed", "unlock_requested", "unlock_used"]
_PasswordKind = Literal["otp_requested", "password_changed", "password_change_failed"]
_MemberKind = Literal["member_changed", "member_invited", "member_invitation_revoked"]
_ProjectKind = Literal["project_created", "project_changed", "project_deleted"]
_KeyKind = Literal[
    "key_created", "key_enabled", "key_changed", "key_rotated", "key_deleted", "access_refused", "response_replayed"
]
_ChannelKind = Literal["channel_added", "channel_confirmed", "channel_deleted"]
_GrantKind = Literal[
    "grant_created", "grant_updated", "grant_revoked", "approval_requested", "approval_decided", "approval_refused"
]
_DeviceKind = Literal["device_registered", "device_updated", "device_enabled", "device_disabled", "device_deleted"]
_LinkKind = Literal["device_online", "device_offline", "device_refused"]
_HealthKind = Literal["device_message_dropped", "device_message_set_aside", "device_clock_skew"]
_ProvisioningKind = Literal["provisioning_code_created", "provisioning_code_revoked"]
_ClaimKind = Literal["device_claim_requested", "device_claim_decided", "device_claimed"]
_GroupKind = Literal["group_created", "group_updated", "group_deleted", "group_members_changed"]
_DeviceTypeKind = Literal["device_type_created", "device_type_updated", "device_type_deleted"]
_CredentialsKind = Literal["credentials_generated", "credentials_revealed", "credentials_reveal_refused", "credentials_revoked"]
_CommandKind = Literal[
    "command_defined", "command_updated", "command_removed", "command_sent", "command_sent_to_group", "command_result"
]
_ReportKind = Literal["relay_changed", "state_changed", "input_changed", "telemetry"]
_ScheduleKind = Literal[
    "schedule_created", "schedule_replaced", "schedule_updated", "schedule_cancelled", "schedule_fired", "schedule_skipped"
]
_RuleKind = Literal[
    "rule_created", "rule_updated", "rule_deleted", "rule_matched", "rule_skipped", "rule_suppressed", "rule_disabled"
]
_ClockKind = Literal["clock_doubted", "clock_trusted"]
_WebhookKind = Literal[
    "webhook_created",
    "webhook_updated",
    "webhook_secret_rotated",
    "webhook_deleted",
    "webhook_disabled",
    "webhook_recovery_started",
    "webhook_recovery_ended",
]
_ServiceKind = Literal["database_restored"]
EventKind = Literal[
    _SignInKind,
    _FactorKind,
    _PasskeyKind,
    _PasswordKind,
    _MemberKind,
    _ProjectKind,
    _KeyKind,
    _ChannelKind,
    _GrantKind,
    _DeviceKind,
    _LinkKind,
    _HealthKind,
    _ProvisioningKind,
    _ClaimKind,
    _GroupKind,
    _DeviceTypeKind,
    _CredentialsKind,
    _CommandKind,
    _ReportKind,
    _ScheduleKind,
    _RuleKind,
    _ClockKind,
    _WebhookKind,
    _ServiceKind,
]
"""All event types. A stored type is never renamed: it stays in logs, and client programs depend on it."""


Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]


@fast_frozen
@dataclass(frozen=True, slots=True)
class DomainEvent:
    """`kind` is the event type of the wire contract (`relay_changed`, `grant_created`, …); `source` is a caller's label."""

    account_id: AccountId
    kind: EventKind
    description: str
    at_ms: int
    source: str
    device_id: DeviceId | None = None
    data: Mapping[str, Json] = field(default_factory=dict)
    address: str = ""
    device_name: str | None = None
    """None: the event log looks the name up when it stores the event."""

    @classmethod
    def from_caller(
        cls,
        caller: Caller,
        kind: EventKind,
        description: str,
        at_ms: int,
        *,
        device_id: DeviceId | None = None,
        device_name: str | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> DomainEvent:
        """The event of a change that `caller` made: account, source and address are the caller's. That of a service session says
        so, because its source is the member who made it."""
        if isinstance(caller, SessionCaller) and caller.operations is not None:
            description = f"{description} (service session {caller.session_id})"
        return cls(caller.account_id, kind, description, at_ms, caller.label, device_id, data or {}, caller.address, device_name)


class NamedDevice(Protocol):
    """What an event says of its device. `Device` is one; the kernel lies below it."""

    @property
    def device_id(self) -> DeviceId: ...

    @property
    def name(self) -> str: ...


def event_of(
    caller: Caller, kind: EventKind, text: str, now_ms: int, device: NamedDevice | DeviceId | None = None, /, **data: Json
) -> DomainEvent:
    """The event of a change that `caller` made: account, source and address are the caller's. That of a service session says so,
    because its source is the member who made it. Where only the id of the device is at hand, the event log looks its name up."""
    if isinstance(caller, SessionCaller) and caller.operations is not None:
        text = f"{text} (service session {caller.session_id})"
    if device is None or isinstance(device, str):
        device_id, name = device, None
    else:
        device_id, name = device.device_id, device.name
    return DomainEvent(caller.account_id, kind, text, now_ms, caller.label, device_id, data, caller.address, name)
