"""What is kept how long, and forgotten in small steps: no step holds the writer for more than a few milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, Clock
from domain.kernel.unit_of_work import UnitOfWork
from domain.telemetry.ports import TelemetryTx
from domain.webhooks.ports import DeliveryRepository


@dataclass(frozen=True, slots=True)
class Keep:
    """Days."""

    readings: int = 30
    rollups: int = 365
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


FindOld = Callable[[RetentionTx, int], Awaitable[Sequence[int]]]
ForgetOld = Callable[[RetentionTx, int, int], Awaitable[int]]


class RetentionService:
    STEP = 2_000
    """Rows that go in one transaction."""
    EVENTS = 250
    """The same of the log, whose rows stand in eight indexes."""
    DEVICES = 200
    """Devices that are looked for, and served, at a time."""

    def __init__(self, *, uow: UnitOfWork[RetentionTx], clock: Clock, keep: Keep) -> None:
        self._uow = uow
        self._clock = clock
        self._keep = keep

    async def steps(self) -> AsyncIterator[int]:
        """Forget a little and say how many rows went; between two steps the owner lets others write. Ends when all is done."""
        async for gone in self._by_device(self._old_readings, self._forget_readings):
            yield gone
        async for gone in self._by_device(self._old_rollups, self._forget_rollups):
            yield gone
        for forget in (
            self._events,
            self._approvals,
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
                if gone < (self.EVENTS if forget == self._events else self.STEP):
                    break

    async def _by_device(self, old: FindOld, forget: ForgetOld) -> AsyncIterator[int]:
        """Devices are looked for by a reader, so that the writer only ever deletes."""
        first = 0
        while True:
            async with self._uow.read() as tx:
                devices = await old(tx, first)
            waiting = list(devices)
            while waiting:
                async with self._uow.write() as tx:
                    gone = 0
                    while waiting and gone < self.STEP:
                        went = await forget(tx, waiting[-1], self.STEP - gone)
                        if gone + went < self.STEP:
                            waiting.pop()
                        gone += went
                yield gone
            if len(devices) < self.DEVICES:
                return
            first = devices[-1] + 1

    async def _old_readings(self, tx: RetentionTx, first: int) -> Sequence[int]:
        return await tx.readings.older_than(await self._readings_before(tx), first, self.DEVICES)

    async def _forget_readings(self, tx: RetentionTx, device_no: int, limit: int) -> int:
        return await tx.readings.delete_some(device_no, limit, await self._readings_before(tx))

    async def _readings_before(self, tx: RetentionTx) -> int:
        """Whole hours, and none that waits to be summed up."""
        hour = (self._clock.now_ms() - self._keep.readings * DAY_MS) // HOUR_MS
        due = await tx.rollups.oldest_due()
        return (hour if due is None else min(hour, due)) * HOUR_MS

    async def _old_rollups(self, tx: RetentionTx, first: int) -> Sequence[int]:
        return await tx.rollups.older_than(self._rollups_before(), first, self.DEVICES)

    async def _forget_rollups(self, tx: RetentionTx, device_no: int, limit: int) -> int:
        return await tx.rollups.forget_before(device_no, self._rollups_before(), limit)

    def _rollups_before(self) -> int:
        return (self._clock.now_ms() - self._keep.rollups * DAY_MS) // HOUR_MS

    async def _events(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.events.forget_before(now_ms - self._keep.events * DAY_MS, self.EVENTS)

    async def _approvals(self, tx: RetentionTx, now_ms: int) -> int:
        """Who decided what is part of the log, and kept as long."""
        return await tx.approvals.forget_before(now_ms - self._keep.events * DAY_MS, self.EVENTS)

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
