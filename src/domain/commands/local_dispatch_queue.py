"""The in-process queue of committed commands, which saves the dispatcher a database query.

It is only a shortcut. Commands that it loses (overflow, crash) are still QUEUED in the database, which the dispatcher scans at
startup, periodically, and when this queue has overflowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from domain.commands.model import Execution
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.ids import DeviceId, ExecutionId

MAX_QUEUED = 20_000


@dataclass(frozen=True, slots=True)
class DispatchEntry:
    """An execution to dispatch. `device`: its state in the transaction that queued the command."""

    device: Device
    execution: Execution

    @classmethod
    async def load_devices(cls, tx: HasDevices, page: Sequence[Execution]) -> Sequence[DispatchEntry]:
        """Stored executions with their devices, without those of deleted devices."""
        found = await tx.devices.list_by_ids({execution.device_id for execution in page})
        devices = {device.device_id: device for device in found}
        return [cls(devices[one.device_id], one) for one in page if one.device_id in devices]


class DispatchQueue:
    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` wakes the dispatcher."""
        self._wake = wake
        self._queued: dict[ExecutionId, DispatchEntry] = {}
        self.has_overflowed = False
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
        self._wake()

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


QueuedForDevice = tuple[Device, dict[ExecutionId, Execution]]
"""A device and its queued executions, in order."""


def group_by_device(commands: Sequence[DispatchEntry]) -> dict[DeviceId, QueuedForDevice]:
    by_device: dict[DeviceId, QueuedForDevice] = {}
    for command in commands:
        _, executions = by_device.setdefault(command.device.device_id, (command.device, {}))
        executions[command.execution.execution_id] = command.execution
    return by_device


def append_queued(stored: Sequence[Execution], queued: QueuedForDevice | None) -> Sequence[Execution]:
    """`stored` plus the commands that were queued after it was read."""
    known = {execution.execution_id for execution in stored}
    later = [] if queued is None else [one for key, one in queued[1].items() if key not in known]
    return [*stored, *later]
