"""The shapes of commands, their definitions and executions on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from adapters.http.schema import SEEN, Body, Change, OneLine, Query, Reply
from domain.commands.definitions import Draft
from domain.commands.device_types import TypeWithCommands
from domain.commands.model import CommandKind, Definition, Execution, ExecutionStatus, Shape, TriggeredBy
from domain.kernel.clock import iso

MAX_WAIT_S = 30

Label = Annotated[
    str, StringConstraints(min_length=1, max_length=64, strip_whitespace=True), OneLine, Field(json_schema_extra=SEEN)
]
Text = Annotated[str, StringConstraints(max_length=500)]
CommandName = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9_]{1,64}$")]


class Command(Body):
    cmd: str = Field(min_length=1, max_length=64, examples=["ON"])
    params: Any = Field(default=None, description="Any JSON value that the command's schema takes.")
    ttl_seconds: int | None = Field(default=None, ge=1, le=86_400, description="How long it may wait for the device; 60.")
    wait_seconds: float | None = Field(
        default=None, ge=0, le=MAX_WAIT_S, description="Hold the answer until the device's result, at most this long."
    )
    queued_at: Any = Field(default=None, description="Taken from older clients and passed over.")
    target: None = Field(default=None, description="Taken from older clients: always null.")


class Accepted(Reply):
    """On its way. `status` is where it is now; nothing has been executed because it was published."""

    ok: bool = True
    execution_id: str
    status: ExecutionStatus

    @classmethod
    def of(cls, execution: Execution) -> Accepted:
        return cls(execution_id=execution.execution_id, status=execution.status)


class Answered(Accepted):
    """With `waitSeconds`: what the device said, null while it has said nothing."""

    result: Any

    @classmethod
    def of(cls, execution: Execution) -> Answered:
        return cls(execution_id=execution.execution_id, status=execution.status, result=execution.result)


class Waiting(Reply):
    """The command waits for the approval of an Owner or Admin."""

    ok: bool = True
    approval_required: bool = True
    approval_id: str


class NewDefinition(Body):
    name: CommandName = Field(examples=["SET_LEVEL"])
    label: Label
    description: Text | None = None
    kind: CommandKind = CommandKind.ACTION
    params_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema 2020-12, local $ref only.")
    shape: Shape = Shape.BUTTON
    requires_approval: bool = False

    def draft(self) -> Draft:
        return Draft(**{name: getattr(self, name) for name in type(self).model_fields})


class DefinitionChanges(Change):
    """What is left out stays."""

    nullable = frozenset({"description", "params_schema"})

    name: CommandName | None = None
    label: Label | None = None
    description: Text | None = None
    kind: CommandKind | None = None
    params_schema: dict[str, Any] | None = None
    shape: Shape | None = None
    requires_approval: bool | None = None

    def changes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields_set}


class CommandId(Reply):
    command_id: str


class DefinitionReply(Reply):
    command_id: str | None = Field(description="null for a built-in command.")
    name: str
    label: str
    description: str | None
    kind: CommandKind
    params_schema: dict[str, Any] | None
    shape: Shape
    requires_approval: bool

    @classmethod
    def of(cls, definition: Definition) -> DefinitionReply:
        return cls(**{name: getattr(definition, name) for name in cls.model_fields})


class ExecutionsQuery(Query):
    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, max_length=64)


class ExecutionReply(Reply):
    execution_id: str
    cmd: str
    params: Any
    status: ExecutionStatus
    source: TriggeredBy
    result: Any = Field(description="What the device said: `{code, relay, data}`; null until then.")
    created_at: str
    expires_at: str
    finished_at: str | None

    @classmethod
    def of(cls, execution: Execution) -> ExecutionReply:
        return cls(
            execution_id=execution.execution_id,
            cmd=execution.cmd,
            params=execution.params,
            status=execution.status,
            source=execution.source,
            result=execution.result,
            created_at=iso(execution.created_ms),
            expires_at=iso(execution.expires_ms),
            finished_at=iso(execution.finished_ms) if execution.finished_ms is not None else None,
        )


class ExecutionsPage(Reply):
    data: list[ExecutionReply]
    has_more: bool
    cursor: str | None


class NewDeviceType(Body):
    name: Label
    commands: list[NewDefinition] = Field(default_factory=list, max_length=100)


class DeviceTypeChanges(Change):
    """`commands` replaces the whole list; a command that keeps its name keeps its id."""

    name: Label | None = None
    commands: list[NewDefinition] | None = Field(default=None, max_length=100)


class DeviceTypeReply(Reply):
    device_type_id: str
    name: str
    commands: list[DefinitionReply]

    @classmethod
    def of(cls, found: TypeWithCommands) -> DeviceTypeReply:
        return cls(
            device_type_id=found.device_type.device_type_id,
            name=found.device_type.name,
            commands=[DefinitionReply.of(one) for one in found.commands],
        )
