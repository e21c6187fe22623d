"""Domain events: what happened, recorded in the account's event log.

A change of state emits its events in its own transaction (`Transaction.emit`). The events part stores each one as a row of the
log and turns those of the five public types into payloads for the live feed and the webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from domain.kernel.caller import Caller, SessionCaller
from domain.kernel.event_kinds import EventKind
from domain.kernel.fast_frozen_dataclass import fast_frozen
from domain.kernel.ids import AccountId, DeviceId

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
