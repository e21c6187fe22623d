"""What happened, as the account's log will tell it.

A change of state records its facts in its own transaction (`Transaction.record`). The events part turns a fact into a row
of the log, and those of the five public types into a payload for the live feed and the webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from domain.kernel.ids import AccountId, DeviceId

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]


@dataclass(frozen=True, slots=True)
class Fact:
    """`kind` is the wire's event type (`relay_changed`, `grant_created`, …); `source` is who did it (a caller's label)."""

    account_id: AccountId
    kind: str
    description: str
    at_ms: int
    source: str
    device_id: DeviceId | None = None
    data: Mapping[str, Json] = field(default_factory=dict)
    address: str = ""
    device_name: str | None = None
    """Where it is at hand; else it is looked up."""
