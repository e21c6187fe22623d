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
from domain.kernel.ids import ExecutionId

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
