"""Evaluates rules that depend on time (`forSeconds`, `silent`) at the engine's next deadline, without polling.

The law: a rule that is due fires in the database or stays due. When the database refuses what a device's rules did, the engine
takes their stored states back, so they are due again and are evaluated again.

Timers do not overtake messages. What waits in a queue or in the log, because the database was away or the owner of a partition
hung, may have ended a silence or a wait. So timers run only up to the time from which messages still wait; the messages bring
them along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import field
from functools import partial
from time import monotonic
from typing import TypeVar

import structlog

from app.workers.due import MAX_SLEEP_S, WakeEvent, seconds_until
from domain.devices.absence import AbsenceTracker
from domain.devices.lookup import ids_for_log
from domain.ingest.pipeline import EngineClock
from domain.ingest.ports import IngestTx
from domain.ingest.restore import find_rules
from domain.ingest.results import EngineResultWriter, IngestResult
from domain.kernel.clock import SECOND_MS
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryEngine

STEP_RECORDS = 500
"""What rules did, changes of state included, per transaction: some 250 rules that fire, a fraction of a second. When thousands
fire at once, one transaction for all would take longer than a transaction may, and begin anew for ever."""
LINK_LOOK_S = 1.0
BACKLOG_LOOK_S = 0.1
STOOD_STILL_S = 1.0
"""A process that wakes up so much later than it wanted to has stood still. What its sockets have got meanwhile comes first."""
CATCH_UP_S = 1.0
RETRY_PAUSE_S = 1.0
"""After an error. One device whose rules are refused delays the due rules of the others by this much at most."""

Result = TypeVar("Result")

log = structlog.get_logger("rule_timers")


@service
class RuleTimerWorker:
    name = "rule_timers"

    engine: TelemetryEngine
    ingest: EngineResultWriter
    uow: UnitOfWork[IngestTx]
    engine_clock: EngineClock
    engine_commit_lock: asyncio.Lock
    absence: AbsenceTracker
    evaluated_until_ms: Callable[[int], int]
    """Takes the present, Unix ms; up to when every message that arrived is evaluated."""
    wake_event: WakeEvent
    _in_grace: bool = field(default=True, init=False)
    _grace_ended_ms: int | None = field(default=None, init=False)
    """Unix ms; until what arrived before is evaluated, and all devices count as heard."""
    refused: int = field(default=0, init=False)
    """Evaluations of a device's rules that the database refused; each is repeated."""

    async def run(self) -> None:
        while True:
            await self._follow_clock()
            await self._follow_absence()
            due_ms = self.engine.next_timer_ms()
            now_ms = self.engine_clock.now_ms()
            if due_ms is None or due_ms > now_ms:
                await self._wait(min(seconds_until(due_ms, now_ms), self._next_look_s()))
                continue
            async with self.engine_commit_lock:
                at_ms = self.evaluated_until_ms(self.engine_clock.now_ms())
                complete = at_ms < due_ms or await self.store_steps(IngestResult.of(self.engine.tick(at_ms)))
            if not complete:
                await asyncio.sleep(RETRY_PAUSE_S)
            elif at_ms < due_ms:
                await self._wait(BACKLOG_LOOK_S)

    async def _wait(self, timeout_s: float) -> None:
        started = monotonic()
        await self.wake_event.wait(timeout_s)
        if monotonic() - started > timeout_s + STOOD_STILL_S:
            await asyncio.sleep(CATCH_UP_S)

    async def _follow_clock(self) -> None:
        async with self.engine_commit_lock:
            shifted = self.engine_clock.follow_steps()
            if shifted is not None:
                await self.store_steps(shifted)

    async def _follow_absence(self) -> None:
        """While devices cannot be heard, their silences and waits stand still; when the grace after that is over, all go on."""
        cut_off_ms = self.absence.follow_link()
        if cut_off_ms is not None:
            async with self.engine_commit_lock:
                self.engine.deafen(cut_off_ms, cut_off_ms)
        if self.absence.rules_grace_left_ms > 0:
            self._in_grace, self._grace_ended_ms = True, None
        elif self._in_grace:
            self._in_grace, self._grace_ended_ms = False, self.engine_clock.now_ms()
        if self._grace_ended_ms is not None:
            async with self.engine_commit_lock:
                now_ms = self.engine_clock.now_ms()
                if self.evaluated_until_ms(now_ms) >= min(self._grace_ended_ms, now_ms):
                    self._grace_ended_ms = None
                    await self.store_steps(IngestResult.of(self.engine.hear_all(now_ms)))

    def _next_look_s(self) -> float:
        if self._grace_ended_ms is not None:
            return BACKLOG_LOOK_S
        grace_s = self.absence.rules_grace_left_ms / SECOND_MS
        if self.absence.broker_is_apart:
            return min(grace_s or LINK_LOOK_S, LINK_LOOK_S)
        return grace_s or MAX_SLEEP_S

    async def store_steps(self, result: IngestResult) -> bool:
        """Store the result in steps. False if the rules of a device were refused and are due again."""
        stored = [await self._store_or_take_back(step) for step in result.in_steps(STEP_RECORDS)]
        return all(stored)

    async def _store_or_take_back(self, result: IngestResult) -> bool:
        """In one transaction, or device by device when that is refused."""
        if await self._is_stored(result):
            return True
        refused = [part for part in result.split() if not await self._is_stored(part)]
        for part in refused:
            await self._take_back(part)
        return not refused

    async def _is_stored(self, result: IngestResult) -> bool:
        try:
            await self._retry_while_unavailable(partial(self._store, result))
        except Exception:
            devices = await ids_for_log(self.uow, result.device_nos)
            log.exception("the database refuses due rules", devices=devices, fired=len(result.rule_firings))
            return False
        return True

    async def _store(self, result: IngestResult) -> None:
        if not result.is_empty:
            async with self.uow.write(caller=None) as tx:
                await self.ingest.store_timers(tx, result)

    async def _take_back(self, part: IngestResult) -> None:
        for device_no in part.device_nos:
            self.refused += 1
            rules = await self._retry_while_unavailable(partial(find_rules, self.uow, device_no))
            self.engine.set_rules(device_no, rules or ())

    async def _retry_while_unavailable(self, work: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                return await work()
            except Unavailable as error:
                log.warning("the database does not answer; rules wait", error=str(error))
                await asyncio.sleep(RETRY_PAUSE_S)


def log_clock_step(step_ms: int) -> None:
    step_s = step_ms / SECOND_MS
    log.warning("the clock of this machine was set; timers of rules follow, schedules run by the new time", step_s=step_s)
