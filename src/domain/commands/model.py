"""The request for a command, and its execution; the definition is in `definition_model.py`. The device's answer decides how an
execution ends.

QUEUED (not yet sent) → SENT → ACKED → DONE or FAILED. At its deadline an execution becomes EXPIRED if it was never sent, and
TIMED_OUT if it was sent and not answered. `ALLOWED_TRANSITIONS` lists the transitions; a row in QUEUED or SENT is itself
the outbox entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from domain.commands.definition_model import CommandDefinition
from domain.devices.model import Device
from domain.grants.model import Grant
from domain.kernel.caller import ApiKeyCaller, SessionCaller, SystemCaller
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.domain_event import Json
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, GrantId

DEFAULT_TTL_MS = 60_000
MAX_TTL_MS = 24 * 3_600_000


class ExecutionStatus(StrEnum):
    QUEUED = "QUEUED"
    SENT = "SENT"
    ACKED = "ACKED"
    DONE = "DONE"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    EXPIRED = "EXPIRED"

    @property
    def is_final(self) -> bool:
        return not ALLOWED_TRANSITIONS[self]


ALLOWED_TRANSITIONS: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    ExecutionStatus.QUEUED: frozenset(
        {ExecutionStatus.SENT, ExecutionStatus.ACKED, ExecutionStatus.DONE, ExecutionStatus.FAILED, ExecutionStatus.EXPIRED}
    ),
    ExecutionStatus.SENT: frozenset(
        {ExecutionStatus.ACKED, ExecutionStatus.DONE, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.EXPIRED}
    ),
    ExecutionStatus.ACKED: frozenset({ExecutionStatus.DONE, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT}),
    ExecutionStatus.DONE: frozenset(),
    ExecutionStatus.FAILED: frozenset(),
    ExecutionStatus.TIMED_OUT: frozenset(),
    ExecutionStatus.EXPIRED: frozenset(),
}
"""QUEUED may go straight to ACKED or DONE: after a crash between sending and writing SENT, the device's answer still counts."""


class TriggeredBy(StrEnum):
    """`relay_changed.triggeredBy` in the API, and the `source` of an execution."""

    DEVICE = "device"
    USER = "user"
    APIKEY = "apikey"
    SCHEDULE = "schedule"
    RULE = "rule"

    @classmethod
    def of(cls, caller: SessionCaller | ApiKeyCaller) -> TriggeredBy:
        return cls.APIKEY if isinstance(caller, ApiKeyCaller) else cls.USER


@fast_frozen
@dataclass(frozen=True, slots=True)
class Execution:
    """`seq` orders the executions of a device (0 until stored). `result` is the device's answer: `{code, relay, data}`.
    `sent_ms` of a QUEUED one: it may have been sent at that time or before, and nobody has confirmed it."""

    execution_id: ExecutionId
    seq: int
    account_id: AccountId
    device_id: DeviceId
    device_no: int
    cmd: str
    params: Json
    status: ExecutionStatus
    source: TriggeredBy
    requested_by: str
    grant_id: GrantId | None
    created_ms: int
    expires_ms: int
    sent_ms: int | None = None
    finished_ms: int | None = None
    result: Json = None
    approval_id: ApprovalId | None = None
    """The approval that the command waited for."""


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command that a caller asks a device to run; nothing is stored yet."""

    device: Device
    cmd: str
    params: Json
    ttl_ms: int
    reason: str | None = None
    """Why the caller wants it: shown to who approves, and kept in the log."""


@dataclass(frozen=True, slots=True)
class AutomationCommand:
    """A command of a schedule or rule, which runs while nobody is signed in."""

    caller: SystemCaller
    request: CommandRequest
    triggered_by: TriggeredBy


@dataclass(slots=True)
class CommandContext:
    """Everything that decides whether a device's command is accepted, read once.

    `open_count`: QUEUED and SENT executions of the device, plus those that this transaction adds. `grants`: what the requesting
    subject holds on the device, oldest first, expired ones included.
    """

    device: Device
    device_definitions: Mapping[str, CommandDefinition]
    type_definitions: Mapping[str, CommandDefinition]
    open_count: int
    grants: Sequence[Grant] = ()

    @classmethod
    def from_definitions(
        cls, device: Device, definitions: Sequence[CommandDefinition], open_count: int, grants: Sequence[Grant]
    ) -> CommandContext:
        """`definitions`: those of the device and those of its type, together."""
        own = {definition.name: definition for definition in definitions if definition.device_id is not None}
        of_type = {definition.name: definition for definition in definitions if definition.device_id is None}
        return cls(device, own, of_type, open_count, grants)
