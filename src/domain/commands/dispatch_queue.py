"""Commands that this process has committed and not sent yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from domain.commands.model import Execution
from domain.commands.ports import CommandsTx
from domain.devices.model import Device
from domain.kernel.dataclasses import service
from domain.kernel.ids import ExecutionId

MAX_QUEUED = 20_000


@dataclass(frozen=True, slots=True)
class DispatchEntry:
    """An execution to dispatch. `device`: its state in the transaction that queued the command."""

    device: Device
    execution: Execution

    @classmethod
    async def load_devices(cls, tx: CommandsTx, page: Sequence[Execution]) -> Sequence[DispatchEntry]:
        """Stored executions with their devices, without those of deleted devices."""
        found = await tx.devices.list_by_ids({execution.device_id for execution in page})
        devices = {device.device_id: device for device in found}
        return [cls(devices[one.device_id], one) for one in page if one.device_id in devices]


@service
class DispatchQueue:
    """The commands that this process has committed, which saves the dispatcher a database query. `wake` wakes the dispatcher.

    It is only a shortcut. Commands that it loses (overflow, crash) are still QUEUED in the database."""

    wake: Callable[[], None]
    _queued: dict[ExecutionId, DispatchEntry] = field(default_factory=dict, init=False)
    has_overflowed: bool = field(default=False, init=False)
    """Commands were dropped. The dispatcher resets this when it scans the database instead."""

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def oldest_created_ms(self) -> int | None:
        """When the oldest command in the queue was created; None when the queue is empty."""
        oldest = next(iter(self._queued.values()), None)
        return None if oldest is None else oldest.execution.created_ms

    def put(self, commands: Sequence[DispatchEntry]) -> None:
        """Call after the commit, with the commands in their queue order."""
        if len(self._queued) + len(commands) > MAX_QUEUED:
            self.clear()
        else:
            self._queued.update((command.execution.execution_id, command) for command in commands)
        self.wake()

    def pop_batch(self, limit: int) -> Sequence[DispatchEntry]:
        """Remove and return the oldest commands."""
        return [self._queued.pop(execution_id) for execution_id in list(islice(self._queued, limit))]

    def clear(self) -> None:
        """Drop all; the dispatcher finds them in the database."""
        self._queued.clear()
        self.has_overflowed = True

    def discard(self, execution_id: ExecutionId) -> None:
        """Drop a command that the dispatcher has found in the database."""
        self._queued.pop(execution_id, None)
