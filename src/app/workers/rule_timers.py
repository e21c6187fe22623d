"""Evaluates rules that depend on time (`forSeconds`, `silent`) at the engine's next deadline, without polling."""

from __future__ import annotations

import asyncio

import structlog

from app.workers.wake_event import WakeEvent
from domain.ingest.telemetry import IngestResult, IngestService, IngestTx
from domain.kernel.clock import Clock
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryEngine

MAX_SLEEP_S = 30.0
"""The wall clock may be adjusted while the worker sleeps; this bounds the delay until it notices."""
RETRY_PAUSE_S = 1.0

log = structlog.get_logger("rule_timers")


class RuleTimerWorker:
    name = "rule_timers"

    def __init__(
        self,
        *,
        engine: TelemetryEngine,
        ingest: IngestService,
        uow: UnitOfWork[IngestTx],
        clock: Clock,
        engine_commit_lock: asyncio.Lock,
        wake_event: WakeEvent,
    ) -> None:
        self._engine = engine
        self._ingest = ingest
        self._uow = uow
        self._clock = clock
        self._engine_commit_lock = engine_commit_lock
        self._wake_event = wake_event

    async def run(self) -> None:
        while True:
            due_ms = self._engine.next_timer_ms()
            now_ms = self._clock.now_ms()
            if due_ms is None or due_ms > now_ms:
                sleep_s = MAX_SLEEP_S if due_ms is None else min((due_ms - now_ms) / 1000, MAX_SLEEP_S)
                await self._wake_event.wait(sleep_s)
                continue
            async with self._engine_commit_lock:
                await self._store_with_fallback(IngestResult.of(self._engine.tick(now_ms)))

    async def _store_with_fallback(self, result: IngestResult) -> None:
        """Store the result in one transaction, or device by device when that fails: the engine does not give it twice."""
        try:
            await self._store(result)
        except Exception:
            log.exception("cannot store the due rules; storing them device by device", fired=len(result.rule_firings))
            for part in result.split():
                try:
                    await self._store(part)
                except Exception:
                    log.critical("dropped the due rules of a device", fired=part.rule_firings, exc_info=True)

    async def _store(self, result: IngestResult) -> None:
        while not result.is_empty:
            try:
                async with self._uow.write(caller=None) as tx:
                    await self._ingest.store(tx, result)
                return
            except Unavailable as error:
                log.warning("the database does not answer; rules wait", error=str(error))
                await asyncio.sleep(RETRY_PAUSE_S)
