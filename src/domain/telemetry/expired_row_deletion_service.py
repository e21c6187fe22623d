"""Deletes expired rows in small steps, so that no step holds the writer for more than a few milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.approvals.ports import HasApprovals
from domain.commands.ports import HasCommandExecutions
from domain.events.ports import HasEvents
from domain.grants.ports import HasGrants
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.idempotency import HasStoredResponses
from domain.kernel.unit_of_work import UnitOfWork
from domain.oidc.ports import HasExternalIdentities
from domain.schedules.ports import HasSchedules
from domain.sign_in.ports import HasLoginFailures, HasPasskeys, HasRefreshTokens, HasSecondFactors, HasUserSessions
from domain.team.invitations import HasInvitations
from domain.telemetry.ports import HasRangePartitions, HasReadings, HasRollups
from domain.telemetry.reading_archive_store import expired_readings_ms
from domain.telemetry.reading_arrival_ports import LATE_KEPT_S, HasReadingArrivals
from domain.webhooks.ports import HasWebhookDeliveries


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """How many days rows are kept."""

    readings: int = 30
    rollups: int = 365
    events: int = 365
    executions: int = 90
    deliveries: int = 7
    schedules: int = 365
    expired_invitations: int = 30
    known_login_addresses: int = 30
    """Addresses of successful logins: kept as long as a refresh token is valid."""


class RetentionTx(
    HasApprovals,
    HasReadingArrivals,
    HasWebhookDeliveries,
    HasEvents,
    HasCommandExecutions,
    HasExternalIdentities,
    HasGrants,
    HasInvitations,
    HasLoginFailures,
    HasPasskeys,
    HasReadings,
    HasRefreshTokens,
    HasRollups,
    HasSchedules,
    HasSecondFactors,
    HasStoredResponses,
    HasRangePartitions,
    HasUserSessions,
    Protocol,
):
    """Every repository whose rows expire."""


FindDevices = Callable[[RetentionTx, int], Awaitable[Sequence[int]]]
DeleteRows = Callable[[RetentionTx, int, int], Awaitable[int]]
DeleteExpired = Callable[[RetentionTx, int], Awaitable[int]]
"""With the most rows that it may delete; returns how many it did."""


@service
class RetentionService:
    ROWS_PER_STEP = 2_000
    """Rows deleted per transaction."""
    EVENTS_PER_STEP = 250
    """Rows of the event log deleted per transaction; each is in eight indexes."""
    DEVICES_PER_STEP = 200
    """Devices found and processed at a time."""

    uow: UnitOfWork[RetentionTx]
    clock: Clock
    periods: RetentionPeriods
    moves_readings: bool = False
    """Expired readings are left to `OldReadingMover`."""

    async def purge_steps(self) -> AsyncIterator[int]:
        """Yield after each transaction how many rows it deleted, so that the caller can pause. Ends when nothing is left to
        delete."""
        async with self.uow.write(caller=None) as tx:
            await tx.range_partitions.prepare(self.clock.now_ms())
            dropped = await tx.range_partitions.drop_before(
                await self._readings_cutoff_ms(tx), self._rollups_cutoff_hour(), keep_readings=self.moves_readings
            )
        yield dropped
        if not self.moves_readings:
            async for deleted in self._purge_by_device(self._devices_with_old_readings, self._delete_readings):
                yield deleted
        async for deleted in self._purge_by_device(self._devices_with_old_rollups, self._delete_rollups):
            yield deleted
        for delete_expired, limit in self._steps():
            while True:
                async with self.uow.write(caller=None) as tx:
                    deleted = await delete_expired(tx, limit)
                yield deleted
                if deleted < limit:
                    break

    async def _purge_by_device(self, find_devices: FindDevices, delete_rows: DeleteRows) -> AsyncIterator[int]:
        """Find the devices in a read transaction, so that the writer only deletes."""
        first = 0
        while True:
            async with self.uow.read() as tx:
                devices = await find_devices(tx, first)
            waiting = list(devices)
            while waiting:
                async with self.uow.write(caller=None) as tx:
                    total = 0
                    while waiting and total < self.ROWS_PER_STEP:
                        total += await delete_rows(tx, waiting[-1], self.ROWS_PER_STEP - total)
                        if total < self.ROWS_PER_STEP:
                            waiting.pop()
                yield total
            if len(devices) < self.DEVICES_PER_STEP:
                return
            first = devices[-1] + 1

    async def _devices_with_old_readings(self, tx: RetentionTx, first: int) -> Sequence[int]:
        return await tx.readings.list_devices_with_rows_before(await self._readings_cutoff_ms(tx), first, self.DEVICES_PER_STEP)

    async def _delete_readings(self, tx: RetentionTx, device_no: int, limit: int) -> int:
        return await tx.readings.delete_batch(device_no, limit, await self._readings_cutoff_ms(tx))

    async def _readings_cutoff_ms(self, tx: RetentionTx) -> int:
        return await expired_readings_ms(tx, self.clock.now_ms(), self.periods.readings)

    async def _devices_with_old_rollups(self, tx: RetentionTx, first: int) -> Sequence[int]:
        return await tx.rollups.list_devices_with_rollups_before(self._rollups_cutoff_hour(), first, self.DEVICES_PER_STEP)

    async def _delete_rollups(self, tx: RetentionTx, device_no: int, limit: int) -> int:
        return await tx.rollups.delete_older_than(device_no, self._rollups_cutoff_hour(), limit)

    def _rollups_cutoff_hour(self) -> int:
        return self._days_ago_ms(self.periods.rollups) // HOUR_MS

    def _steps(self) -> Sequence[tuple[DeleteExpired, int]]:
        """What deletes the expired rows of a kind, and how many at a time."""
        days, rows = self.periods, self.ROWS_PER_STEP
        return (
            (lambda tx, limit: tx.events.delete_older_than(self._days_ago_ms(days.events), limit), self.EVENTS_PER_STEP),
            # Decisions on approvals are kept as long as the event log.
            (lambda tx, limit: tx.approvals.delete_older_than(self._days_ago_ms(days.events), limit), self.EVENTS_PER_STEP),
            (lambda tx, limit: tx.executions.delete_older_than(self._days_ago_ms(days.executions), limit), rows),
            (lambda tx, limit: tx.deliveries.delete_older_than(self._days_ago_ms(days.deliveries), limit), rows),
            (lambda tx, limit: tx.schedules.delete_older_than(self._days_ago_ms(days.schedules), limit), rows),
            (lambda tx, limit: tx.grants.delete_uses_older_than(self.clock.now_ms() - 2 * MINUTE_MS, limit), rows),
            (lambda tx, limit: tx.refresh_tokens.delete_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.user_sessions.delete_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.second_factors.delete_challenges_older_than(self.clock.now_ms(), limit), rows),
            # Expired invitations are listed for a month, to be sent again.
            (lambda tx, limit: tx.invitations.delete_older_than(self._days_ago_ms(days.expired_invitations), limit), rows),
            (lambda tx, limit: tx.passkeys.delete_challenges_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.external_identities.delete_states_older_than(self.clock.now_ms(), limit), rows),
            (lambda tx, limit: tx.login_failures.delete_older_than(self._days_ago_ms(1), limit), rows),
            (self._delete_known_logins, rows),
            (lambda tx, limit: tx.stored_responses.delete_older_than(self.clock.steady_ms() - DAY_MS, limit), rows),
            (_delete_late_marks, rows),
        )

    def _days_ago_ms(self, days: int) -> int:
        return self.clock.now_ms() - days * DAY_MS

    async def _delete_known_logins(self, tx: RetentionTx, limit: int) -> int:
        before_ms = self._days_ago_ms(self.periods.known_login_addresses)
        return await tx.login_failures.delete_known_logins_older_than(before_ms, limit)


async def _delete_late_marks(tx: RetentionTx, limit: int) -> int:
    """By the store time, which is that of the cursors too."""
    oldest_ms = (await tx.arrivals.store_time() - LATE_KEPT_S) * SECOND_MS
    return await tx.arrivals.delete_late_before(oldest_ms // MINUTE_MS, limit)
