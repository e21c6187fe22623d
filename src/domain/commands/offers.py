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

MOST = 20_000


@dataclass(frozen=True, slots=True)
class Offer:
    """`device` as it was in the transaction that queued the command."""

    device: Device
    execution: Execution


class Offers:
    def __init__(self, bell: Callable[[], None]) -> None:
        """`bell` wakes the dispatcher."""
        self._bell = bell
        self._waiting: dict[ExecutionId, Offer] = {}
        self.dropped = False
        """Some were not kept; set back by whoever looks through the queue instead."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, offers: Sequence[Offer]) -> None:
        """After the commit that queued them, in its order."""
        if len(self._waiting) + len(offers) > MOST:
            self._waiting.clear()
            self.dropped = True
        else:
            self._waiting.update((offer.execution.execution_id, offer) for offer in offers)
        self._bell()

    def take(self, limit: int) -> Sequence[Offer]:
        """The oldest ones."""
        return [self._waiting.pop(execution_id) for execution_id in list(islice(self._waiting, limit))]

    def drop(self, execution_id: ExecutionId) -> None:
        """Somebody has found this one already."""
        self._waiting.pop(execution_id, None)


Offered = tuple[Device, dict[ExecutionId, Execution]]
"""What is offered for a device, in its order."""


def by_device(offers: Sequence[Offer]) -> dict[DeviceId, Offered]:
    found: dict[DeviceId, Offered] = {}
    for offer in offers:
        _, executions = found.setdefault(offer.device.device_id, (offer.device, {}))
        executions[offer.execution.execution_id] = offer.execution
    return found


def and_later(found: Sequence[Execution], offered: Offered | None) -> Sequence[Execution]:
    """What was queued since the snapshot in which `found` was read is only in the offers."""
    known = {execution.execution_id for execution in found}
    later = [] if offered is None else [one for key, one in offered[1].items() if key not in known]
    return [*found, *later]
