"""Whether the service can do its work now: the database answers, the broker is up, no worker is in trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from app.supervisor import Supervisor
from domain.kernel.errors import DomainError

ANSWER_WITHIN_S = 2.0


class Checked(Protocol):
    async def check(self) -> None:
        """Raises Unavailable when it would not work now."""
        ...


class Health:
    def __init__(self, database: Checked, supervisor: Supervisor) -> None:
        self._database = database
        self._supervisor = supervisor
        self.phase = "starting"
        """`starting`, `running` or `stopping`; set by the lifecycle."""
        self.broker_up = False

    async def troubles(self) -> Mapping[str, str]:
        """What ails, by part; empty when all is well."""
        found: dict[str, str] = {}
        if self.phase != "running":
            found["service"] = self.phase
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._database.check()
        except (DomainError, TimeoutError, OSError) as error:
            found["database"] = str(error) or type(error).__name__
        if not self.broker_up:
            found["broker"] = "not listening"
        for name, trouble in self._supervisor.troubles().items():
            found[f"worker {name}"] = trouble
        return found
