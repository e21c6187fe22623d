"""Constructs the services of stored telemetry: queries, roll-ups, retention, and the moving of old readings to ClickHouse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.config.settings import Settings
from app.wiring.adapters import ServiceAdapters
from app.workers.retention import OldReadingMoverWorker
from domain.grants.authorizer import Authorizer
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import MetricValue
from domain.telemetry.downsampling import DownsamplingQueryService
from domain.telemetry.dry_run import RuleDryRunService
from domain.telemetry.history import DatabaseAndArchiveReadingHistory, ReadingArchiveWithCutoff, TelemetryQueryService
from domain.telemetry.ports import MAX_TIME_MS
from domain.telemetry.retention import OldReadingMover, RetentionPeriods, RetentionService
from domain.telemetry.rollups import RollupService

if TYPE_CHECKING:
    from adapters.clickhouse.reading_store import ClickHouseReadingStore


class StoredTelemetryServices:
    def __init__(self, uow: UnitOfWork[Any], settings: Settings, adapters: ServiceAdapters, authorizer: Authorizer) -> None:
        clock, engine, days = adapters.clock, adapters.engine, settings.readings_days
        self.store = _create_store(settings)
        """None: the database keeps all readings."""
        self._older = None if self.store is None else ReadingArchiveWithCutoff(self.store, clock, days)
        stored = DatabaseAndArchiveReadingHistory(self._older)
        shared: dict[str, Any] = {"uow": uow, "clock": clock, "engine": engine.engine}
        reading: dict[str, Any] = {**shared, "authorizer": authorizer, "stored": stored}
        self.queries = TelemetryQueryService(
            **reading, create_engine=engine.create_engine, is_stored_elsewhere=adapters.is_stored_elsewhere
        )
        self.downsampling = DownsamplingQueryService(**reading)
        self.rollups = RollupService(**shared)
        self.rule_dry_runs = RuleDryRunService(
            **shared, create_engine=engine.create_engine, make_batch=engine.make_batch, encode=_encode_telemetry, stored=stored
        )
        periods = RetentionPeriods(
            readings=days, rollups=settings.rollups_days, events=settings.events_days, deliveries=settings.deliveries_days
        )
        self.retention = RetentionService(uow=uow, clock=clock, periods=periods, moves_readings=self.store is not None)
        self.mover: OldReadingMoverWorker | None = None
        if self.store is not None:
            self.mover = OldReadingMoverWorker(
                mover=OldReadingMover(uow=uow, clock=clock, store=self.store, days=days), clock=clock
            )

    def moved_before_ms(self) -> int:
        """Older readings may be in the store."""
        return -MAX_TIME_MS if self._older is None else self._older.end_ms()

    async def close(self) -> None:
        if self.store is not None:
            await self.store.close()


def _encode_telemetry(at_ms: int, values: Mapping[str, MetricValue]) -> bytes:
    """As a native payload, so that a rule dry run can replay history."""
    return json.dumps({"ts": at_ms, "m": dict(values)}).encode()


def _create_store(settings: Settings) -> ClickHouseReadingStore | None:
    if settings.clickhouse_url is None:
        return None
    from adapters.clickhouse.reading_store import ClickHouseConnectionConfig, ClickHouseReadingStore  # imports httpx

    address = ClickHouseConnectionConfig.parse(settings.clickhouse_url.get_secret_value())
    return ClickHouseReadingStore(address, days=settings.clickhouse_days)
