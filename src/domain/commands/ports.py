"""Ports of the commands part: its repositories, and the check of parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from domain.commands.model import CommandContext, CommandDefinition, Execution, ExecutionStatus
from domain.devices.model import Device
from domain.grants.model import GrantSubject
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.domain_event import Json, JsonObject
from domain.kernel.errors import FieldError
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, ExecutionId
from domain.kernel.ports import ResultNotifier
from domain.webhooks.ports import WebhooksTx

ExecutionTransition: TypeAlias = tuple[Execution, ExecutionStatus]
"""An execution after the transition, and the expected stored status before it."""


class CommandContextRepository(Protocol):
    async def get(self, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None) -> CommandContext | None:
        """None when the account has no such device. Without `subject`, no grants."""

    async def get_many(
        self, account_id: AccountId, device_ids: Sequence[DeviceId], subject: GrantSubject | None
    ) -> Mapping[DeviceId, CommandContext]:
        """`get` for many, without the devices that the account does not have. SQLite needs one thread hop for all."""

    async def list_reported(
        self, device_ids: Collection[DeviceId], execution_ids: Collection[ExecutionId]
    ) -> tuple[Sequence[Device], Sequence[Execution]]:
        """What the reports of a batch name, as far as it exists; in no particular order."""


class CommandDefinitionRepository(Protocol):
    async def add(self, definition: CommandDefinition) -> None:
        """Raises Conflict `COMMAND_EXISTS` when the device or type has one of this name."""

    async def get_for_update(self, account_id: AccountId, command_id: CommandId) -> CommandDefinition | None:
        """Lock the row until the writing transaction ends; read it this way before saving it."""

    async def list_by_device(self, device_id: DeviceId) -> Sequence[CommandDefinition]: ...

    async def list_by_device_type(self, device_type_id: DeviceTypeId) -> Sequence[CommandDefinition]: ...

    async def list_by_devices_and_types(
        self, device_ids: Collection[DeviceId], type_ids: Collection[DeviceTypeId]
    ) -> Sequence[CommandDefinition]:
        """The definitions of these devices and of these types, in one query."""

    async def save(self, definition: CommandDefinition) -> None: ...

    async def delete(self, command_id: CommandId) -> None: ...


class CommandExecutionRepository(Protocol):
    async def add_many(self, executions: Sequence[Execution]) -> None:
        """In this order: the database gives each a higher `seq` than the one before."""

    async def get(self, account_id: AccountId, execution_id: ExecutionId) -> Execution | None: ...

    async def find(self, execution_id: ExecutionId) -> Execution | None: ...

    async def list_by_ids(self, execution_ids: Collection[ExecutionId]) -> Sequence[Execution]:
        """Those that exist, in no particular order."""

    async def transition_many(self, moves: Sequence[ExecutionTransition]) -> Collection[ExecutionId]:
        """Write status, times and result of each execution whose stored status is the expected one. Returns the ids that changed;
        of concurrent callers, one wins."""

    async def record_many(self, moves: Sequence[ExecutionTransition]) -> None:
        """`transition_many` for a caller who need not know which changed. On SQLite it runs with the next statement of the
        transaction, or after its end."""

    async def mark_possibly_sent(self, at_ms: int, device_ids: Collection[DeviceId] | None = None) -> int:
        """Set `sent_ms` of the QUEUED executions of devices that are stored as online, or of these devices, where it is not set.
        Returns how many."""

    async def count_open_by_device(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, int]:
        """Number of QUEUED and SENT executions, for each device that has any."""

    async def list_open_by_device(self, device_id: DeviceId) -> Sequence[Execution]:
        """QUEUED and SENT executions of a device, by `seq`."""

    async def list_open_by_devices(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, Sequence[Execution]]:
        """`list_open_by_device` for each device that has any."""

    async def list_queued(self, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        """QUEUED executions of all devices, by `seq`."""

    async def list_queued_by_account(self, account_id: AccountId, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        """The same for the devices of one account."""

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Execution]:
        """Unfinished executions past `expires_ms`, oldest first."""

    async def next_expiry_ms(self) -> int | None: ...

    async def extend_sent(self, expires_ms: int) -> int:
        """Whatever was sent and is not answered has until then at least. Returns how many that changes."""

    async def shift_expiry(self, step_ms: int, now_ms: int, unshifted_from_ms: int) -> None:
        """The service's clock was set by `step_ms`, to `now_ms`: move the deadlines of unfinished executions along, so that each
        has as long as it had, and never longer than in all. Those created from `unshifted_from_ms` on until now stay."""

    async def page(
        self, device_id: DeviceId, *, limit: int, before: Position | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[Execution]:
        """Newest first; with `before`, a (`created_ms`, `seq`), only what is older."""

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        """Delete finished executions only. Returns how many."""


class ParamsValidator(Protocol):
    """JSON Schema 2020-12; compiled once per schema; remote references are refused."""

    def validate_schema(self, schema: JsonObject) -> Sequence[FieldError]:
        """The faults of the schema itself."""

    def validate(self, schema: JsonObject, params: Json) -> Sequence[FieldError]:
        """The faults of the parameters, each with its path (`params.level`)."""


ExecutionWaiter: TypeAlias = ResultNotifier[ExecutionId, Execution]
"""Of finished executions."""


class CommandsTx(WebhooksTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def definitions(self) -> CommandDefinitionRepository: ...

    @property
    def executions(self) -> CommandExecutionRepository: ...

    @property
    def command_contexts(self) -> CommandContextRepository: ...
