"""The life of a database: a random id that every cursor carries.

Positions only grow within one life. A restored backup, a standby that took over without the last commits, and the target of a
move are another life: what a cursor of the earlier one names may not be there, or may be something else. A life that lost changes
is pending until a service has drawn the consequences (`schedules/recovery.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from domain.kernel.dataclasses import service


class LifeCause(StrEnum):
    """Why a life began, where changes of the life before it may be missing."""

    BACKUP = "BACKUP"
    """A copy that `latchboard backup` wrote."""
    RESTORE = "RESTORE"
    FAILOVER = "FAILOVER"
    """The database has gone back while a service ran: an older standby took over."""


@dataclass(frozen=True, slots=True)
class StoredLife:
    """`began_ms`: Unix ms up to which changes of an earlier life may be missing, 0 where none are. `pending`: None once a
    service has drawn the consequences."""

    life: str
    began_ms: int = 0
    pending: LifeCause | None = None


class LifeRepository(Protocol):
    """Of every transaction."""

    async def get(self) -> StoredLife: ...

    async def renew(self, before: str, after: StoredLife) -> bool:
        """False if the life is not `before` any more."""

    async def mark_recovered(self, life: str, began_ms: int) -> bool:
        """Its consequences are drawn. False if somebody else has done it, or the life is another."""


@service
class DatabaseLife:
    """The life that this process works with. A change of it is made at one place, and heard by all that hold something of it."""

    current: str = ""
    began_ms: int = 0
    pending: LifeCause | None = None
    is_stale: bool = False
    """This process holds things that it has read in the life before."""
    _listeners: list[Callable[[], None]] = field(default_factory=list, init=False)

    @property
    def is_recovered(self) -> bool:
        """Whether the consequences of a change are drawn, by this process too. Until then it sends nothing and ends nothing: what
        waits may have been sent, and other processes may not know which devices it has."""
        return self.pending is None and not self.is_stale

    def on_change(self, call: Callable[[], None]) -> None:
        """`call` must be quick and must not raise."""
        self._listeners.append(call)

    def adopt(self, stored: StoredLife) -> None:
        """From now on the database is of this life."""
        changed = bool(self.current) and stored.life != self.current
        self.current, self.began_ms, self.pending = stored.life, stored.began_ms, stored.pending
        if changed:
            for call in self._listeners:
                call()

    def is_unannounced(self, found: StoredLife, *, went_back: bool) -> bool:
        """Whether the database has gone back, and no process has renewed its life for that. `went_back`: it does not have what
        this process has committed. A life that began before the present one is of a copy that is older than that too."""
        if found.life == self.current:
            return went_back
        return found.pending is None and found.began_ms < self.began_ms

    def may_have_run(self, due_ms: int) -> bool:
        """Whether what was due then may have been done in an earlier life that this one does not remember."""
        return due_ms <= self.began_ms
