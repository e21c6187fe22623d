"""Rules that wait for time to pass (`forSeconds`, `silent`): woken at the engine's next deadline, never by polling."""

from __future__ import annotations

import asyncio

import structlog

from app.loops.doorbell import Doorbell
from domain.kernel.clock import Clock
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine
from domain.telemetry.ingest import IngestService, Verdict
from domain.telemetry.ports import TelemetryTx

LONGEST_SLEEP_S = 30.0
"""The wall clock may be set while we sleep; half a minute bounds how long we would not notice."""
PAUSE_S = 1.0

log = structlog.get_logger("rule_timers")


class RuleTimerLoop:
    name = "rule_timers"

    def __init__(
        self,
        *,
        engine: TelemetryEngine,
        ingest: IngestService,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        turnstile: asyncio.Lock,
        bell: Doorbell,
    ) -> None:
        self._engine = engine
        self._ingest = ingest
        self._uow = uow
        self._clock = clock
        self._turnstile = turnstile
        self._bell = bell

    async def run(self) -> None:
        while True:
            due_ms = self._engine.next_timer_ms()
            now_ms = self._clock.now_ms()
            if due_ms is None or due_ms > now_ms:
                sleep_s = LONGEST_SLEEP_S if due_ms is None else min((due_ms - now_ms) / 1000, LONGEST_SLEEP_S)
                await self._bell.wait(sleep_s)
                continue
            async with self._turnstile:
                await self._store_or_parts(Verdict.of(self._engine.tick(now_ms)))

    async def _store_or_parts(self, verdict: Verdict) -> None:
        """The engine has moved on: what it said is stored, if not together then each device's by itself."""
        try:
            await self._store(verdict)
        except Exception:
            log.exception("what was due failed; trying it device by device", fired=len(verdict.fired))
            for part in verdict.by_device():
                try:
                    await self._store(part)
                except Exception:
                    log.critical("gave up on a device's rules that were due", fired=part.fired, exc_info=True)

    async def _store(self, verdict: Verdict) -> None:
        while not verdict.is_empty:
            try:
                async with self._uow.write() as tx:
                    await self._ingest.store(tx, verdict)
                return
            except Unavailable as error:
                log.warning("the database does not answer; rules wait", error=str(error))
                await asyncio.sleep(PAUSE_S)
