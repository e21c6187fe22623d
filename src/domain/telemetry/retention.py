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
class RetentionPeriods:
    """Days."""

    readings: int = 30
    rollups: int = 365
    events: int = 365
    executions: int = 90
    deliveries: int = 30
    schedules: int = 365
    known_login_addresses: int = 30
    """From where somebody has signed in: as long as a refresh token lives."""


class RetentionTx(TelemetryTx, Protocol):
    """Everything that grows."""

    @property
    def deliveries(self) -> DeliveryRepository: ...


FindDevices = Callable[[RetentionTx, int], Awaitable[Sequence[int]]]
DeleteRows = Callable[[RetentionTx, int, int], Awaitable[int]]


class RetentionService:
    ROWS_PER_STEP = 2_000
    """Rows that go in one transaction."""
    EVENTS_PER_STEP = 250
    """The same of the log, whose rows stand in eight indexes."""
    DEVICES_PER_STEP = 200
    """Devices that are looked for, and served, at a time."""

    def __init__(self, *, uow: UnitOfWork[RetentionTx], clock: Clock, keep: RetentionPeriods) -> None:
        self._uow = uow
        self._clock = clock
        self._periods = keep

    async def purge_steps(self) -> AsyncIterator[int]:
        """Forget a little and say how many rows went; between two steps the owner lets others write. Ends when all is done."""
        async for gone in self._purge_by_device(self._devices_with_old_readings, self._delete_readings):
            yield gone
        async for gone in self._purge_by_device(self._devices_with_old_rollups, self._delete_rollups):
            yield gone
        for forget in (
            self._delete_events,
            self._delete_approvals,
            self._delete_executions,
            self._delete_deliveries,
            self._delete_schedules,
            self._delete_grant_uses,
            self._delete_refresh_tokens,
            self._delete_login_failures,
            self._delete_known_addresses,
            self._delete_stored_responses,
        ):
            while True:
                async with self._uow.write() as tx:
                    gone = await forget(tx, self._clock.now_ms())
                yield gone
                if gone < (self.EVENTS_PER_STEP if forget == self._delete_events else self.ROWS_PER_STEP):
                    break

    async def _purge_by_device(self, old: FindDevices, forget: DeleteRows) -> AsyncIterator[int]:
        """Devices are looked for by a reader, so that the writer only ever deletes."""
        first = 0
        while True:
            async with self._uow.read() as tx:
                devices = await old(tx, first)
            waiting = list(devices)
            while waiting:
                async with self._uow.write() as tx:
                    gone = 0
                    while waiting and gone < self.ROWS_PER_STEP:
                        went = await forget(tx, waiting[-1], self.ROWS_PER_STEP - gone)
                        if gone + went < self.ROWS_PER_STEP:
                            waiting.pop()
                        gone += went
                yield gone
            if len(devices) < self.DEVICES_PER_STEP:
                return
            first = devices[-1] + 1

    async def _devices_with_old_readings(self, tx: RetentionTx, first: int) -> Sequence[int]:
        return await tx.readings.list_devices_with_rows_before(await self._readings_cutoff_ms(tx), first, self.DEVICES_PER_STEP)

    async def _delete_readings(self, tx: RetentionTx, device_no: int, limit: int) -> int:
        return await tx.readings.delete_batch(device_no, limit, await self._readings_cutoff_ms(tx))

    async def _readings_cutoff_ms(self, tx: RetentionTx) -> int:
        """Whole hours, and none that waits to be summed up."""
        hour = (self._clock.now_ms() - self._periods.readings * DAY_MS) // HOUR_MS
        due = await tx.rollups.find_oldest_due_hour()
        return (hour if due is None else min(hour, due)) * HOUR_MS

    async def _devices_with_old_rollups(self, tx: RetentionTx, first: int) -> Sequence[int]:
        return await tx.rollups.list_devices_with_rollups_before(self._rollups_cutoff_hour(), first, self.DEVICES_PER_STEP)

    async def _delete_rollups(self, tx: RetentionTx, device_no: int, limit: int) -> int:
        return await tx.rollups.delete_older_than(device_no, self._rollups_cutoff_hour(), limit)

    def _rollups_cutoff_hour(self) -> int:
        return (self._clock.now_ms() - self._periods.rollups * DAY_MS) // HOUR_MS

    async def _delete_events(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.events.delete_older_than(now_ms - self._periods.events * DAY_MS, self.EVENTS_PER_STEP)

    async def _delete_approvals(self, tx: RetentionTx, now_ms: int) -> int:
        """Who decided what is part of the log, and kept as long."""
        return await tx.approvals.delete_older_than(now_ms - self._periods.events * DAY_MS, self.EVENTS_PER_STEP)

    async def _delete_executions(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.executions.delete_older_than(now_ms - self._periods.executions * DAY_MS, self.ROWS_PER_STEP)

    async def _delete_deliveries(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.deliveries.delete_older_than(now_ms - self._periods.deliveries * DAY_MS, self.ROWS_PER_STEP)

    async def _delete_schedules(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.schedules.delete_older_than(now_ms - self._periods.schedules * DAY_MS, self.ROWS_PER_STEP)

    async def _delete_grant_uses(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.grants.delete_uses_older_than(now_ms - 2 * MINUTE_MS, self.ROWS_PER_STEP)

    async def _delete_refresh_tokens(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.refresh_tokens.delete_older_than(now_ms, self.ROWS_PER_STEP)

    async def _delete_login_failures(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.login_failures.delete_older_than(now_ms - DAY_MS, self.ROWS_PER_STEP)

    async def _delete_known_addresses(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.login_failures.delete_known_logins_older_than(
            now_ms - self._periods.known_login_addresses * DAY_MS, self.ROWS_PER_STEP
        )

    async def _delete_stored_responses(self, tx: RetentionTx, now_ms: int) -> int:
        return await tx.stored_responses.delete_older_than(now_ms - DAY_MS, self.ROWS_PER_STEP)
