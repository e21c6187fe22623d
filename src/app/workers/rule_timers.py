"""Rules that wait for time to pass (`forSeconds`, `silent`): woken at the engine's next deadline, never by polling."""

from __future__ import annotations

import asyncio

import structlog

from app.workers.wake_event import WakeEvent
from domain.ingest.telemetry import IngestResult, IngestService
from domain.kernel.clock import Clock
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryEngine
from domain.telemetry.ports import TelemetryTx

MAX_SLEEP_S = 30.0
"""The wall clock may be set while we sleep; half a minute bounds how long we would not notice."""
RETRY_PAUSE_S = 1.0

log = structlog.get_logger("rule_timers")


class RuleTimerWorker:
    name = "rule_timers"

    def __init__(
        self,
        *,
        engine: TelemetryEngine,
        ingest: IngestService,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        turnstile: asyncio.Lock,
        bell: WakeEvent,
    ) -> None:
        self._engine = engine
        self._ingest = ingest
        self._uow = uow
        self._clock = clock
        self._engine_commit_lock = turnstile
        self._wake_event = bell

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

    async def _store_with_fallback(self, verdict: IngestResult) -> None:
        """The engine has moved on: what it said is stored, if not together then each device's by itself."""
        try:
            await self._store(verdict)
        except Exception:
            log.exception("what was due failed; trying it device by device", fired=len(verdict.rule_firings))
            for part in verdict.split_by_device():
                try:
                    await self._store(part)
                except Exception:
                    log.critical("gave up on a device's rules that were due", fired=part.rule_firings, exc_info=True)

    async def _store(self, verdict: IngestResult) -> None:
        while not verdict.is_empty:
            try:
                async with self._uow.write() as tx:
                    await self._ingest.store(tx, verdict)
                return
            except Unavailable as error:
                log.warning("the database does not answer; rules wait", error=str(error))
                await asyncio.sleep(RETRY_PAUSE_S)
