"""Committed commands on their way to the dispatcher in this process, so that it need not look for them in the database.

Only a shortcut: what is lost here (too many at once, a crash) is still in QUEUED, and the dispatcher looks through the whole
queue at its start, now and then, and whenever this says that it has dropped something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from domain.commands.model import Execution
from domain.devices.model import Device
from domain.kernel.ids import DeviceId, ExecutionId

MAX_QUEUED = 20_000


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """`device` as it was in the transaction that queued the command."""

    device: Device
    execution: Execution


class DispatchQueue:
    def __init__(self, wake: Callable[[], None]) -> None:
        """`bell` wakes the dispatcher."""
        self._wake = wake
        self._queued: dict[ExecutionId, QueuedCommand] = {}
        self.has_overflowed = False
        """Some were not kept; set back by whoever looks through the queue instead."""

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def oldest_created_ms(self) -> int | None:
        """When the oldest command in the queue was created; None when the queue is empty."""
        oldest = next(iter(self._queued.values()), None)
        return None if oldest is None else oldest.execution.created_ms

    def put(self, offers: Sequence[QueuedCommand]) -> None:
        """After the commit that queued them, in its order."""
        if len(self._queued) + len(offers) > MAX_QUEUED:
            self._queued.clear()
            self.has_overflowed = True
        else:
            self._queued.update((offer.execution.execution_id, offer) for offer in offers)
        self._wake()

    def pop_batch(self, limit: int) -> Sequence[QueuedCommand]:
        """The oldest ones."""
        return [self._queued.pop(execution_id) for execution_id in list(islice(self._queued, limit))]

    def discard(self, execution_id: ExecutionId) -> None:
        """Somebody has found this one already."""
        self._queued.pop(execution_id, None)


QueuedForDevice = tuple[Device, dict[ExecutionId, Execution]]
"""What is offered for a device, in its order."""


def group_by_device(offers: Sequence[QueuedCommand]) -> dict[DeviceId, QueuedForDevice]:
    found: dict[DeviceId, QueuedForDevice] = {}
    for offer in offers:
        _, executions = found.setdefault(offer.device.device_id, (offer.device, {}))
        executions[offer.execution.execution_id] = offer.execution
    return found


def append_queued(found: Sequence[Execution], offered: QueuedForDevice | None) -> Sequence[Execution]:
    """What was queued since the snapshot in which `found` was read is only in the offers."""
    known = {execution.execution_id for execution in found}
    later = [] if offered is None else [one for key, one in offered[1].items() if key not in known]
    return [*found, *later]
