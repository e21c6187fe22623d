"""What is kept how long, and forgotten in small steps: no step holds the writer for more than a few milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.clock import DAY_MS, MINUTE_MS, Clock
from domain.kernel.unit_of_work import UnitOfWork
from domain.telemetry.ports import TelemetryTx
from domain.webhooks.ports import DeliveryRepository


@dataclass(frozen=True, slots=True)
class Keep:
    """Days."""

    readings: int = 30
    events: int = 365
    executions: int = 90
    deliveries: int = 30
    schedules: int = 365
    known_places: int = 30
    """From where somebody has signed in: as long as a refresh token lives."""


class RetentionTx(TelemetryTx, Protocol):
    """Everything that grows."""

    @property
    def deliveries(self) -> DeliveryRepository: ...


class RetentionService:
    STEP = 2_000

    def __init__(self, *, uow: UnitOfWork[RetentionTx], clock: Clock, keep: Keep) -> None:
        self._uow = uow
        self._clock = clock
        self._keep = keep

    async def steps(self) -> AsyncIterator[int]:
        """Forget a little and say how many rows went; between two steps the owner lets others write. Ends when all is done."""
        for forget in (
            self._readings,
            self._events,
            self._executions,
            self._deliveries,
            self._schedules,
            self._uses,
            self._sessions,
            self._logins,
            self._places,
            self._answers,
        ):
            while True:
                async with self._uow.write() as tx:
                    gone = await forget(tx, self._clock.now_ms())
                yield gone
                if gone < self.STEP:
                    break

    async def _readings(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.readings.forget_before(now_ms - self._keep.readings * DAY_MS, self.STEP)

    async def _events(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.events.forget_before(now_ms - self._keep.events * DAY_MS, self.STEP)

    async def _executions(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.executions.forget_before(now_ms - self._keep.executions * DAY_MS, self.STEP)

    async def _deliveries(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.deliveries.forget_before(now_ms - self._keep.deliveries * DAY_MS, self.STEP)

    async def _schedules(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.schedules.forget_before(now_ms - self._keep.schedules * DAY_MS, self.STEP)

    async def _uses(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.grants.forget_uses_before(now_ms - 2 * MINUTE_MS, self.STEP)

    async def _sessions(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.refresh_tokens.forget_before(now_ms, self.STEP)

    async def _logins(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.login_failures.forget_before(now_ms - DAY_MS, self.STEP)

    async def _places(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.login_failures.forget_places_before(now_ms - self._keep.known_places * DAY_MS, self.STEP)

    async def _answers(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.answers.forget_before(now_ms - DAY_MS, self.STEP)
