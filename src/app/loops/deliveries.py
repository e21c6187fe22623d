"""Sends what webhooks are owed: a turn of the delivery service, its jobs as tasks, and their ends carried into the next turn.

While a turn's transaction runs, attempts end and deliveries fall due; all of that goes into the following one, so the batch grows
with the load by itself. Ends that could not be written, because the database does not answer, are kept and written later; what
is under way is bounded by the lanes, so that list is bounded too.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from app.loops.doorbell import Doorbell
from domain.kernel.clock import SECOND_MS, Clock
from domain.webhooks.delivery import DeliveryService, Ended, Job, Turn
from domain.webhooks.model import Webhook
from domain.webhooks.ports import Courier, Reply

LONGEST_SLEEP_S = 30.0
SHORTEST_SLEEP_S = 0.005
ELSEWHERE_S = 0.25
"""What is due cannot be claimed now: its lane has enough, or another instance holds it. An end of an attempt wakes us anyway."""
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)
LAST_ANSWERS_S = 1.5
"""How long a stop waits for answers that are on their way."""
MOST_BY_HAND = 64

log = structlog.get_logger("deliveries")


class DeliveryLoop:
    name = "deliveries"

    def __init__(self, *, deliveries: DeliveryService, courier: Courier, clock: Clock, bell: Doorbell) -> None:
        self._deliveries = deliveries
        self._courier = courier
        self._clock = clock
        self._bell = bell
        self._tasks: dict[asyncio.Task[Reply], tuple[Job, float]] = {}
        self._by_hand = 0
        self._ended: list[Ended] = []
        self.failures = 0
        self.turns = 0
        self.succeeded = 0
        self.failed = 0
        self.cut_short = 0

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    async def run(self) -> None:
        attempt = 0
        try:
            while True:
                try:
                    sleep_s = await self._turn()
                    attempt = 0
                except Exception as error:
                    self.failures += 1
                    sleep_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                    attempt += 1
                    log.warning("deliveries wait", error=repr(error), attempt=attempt, pause_s=sleep_s)
                    await asyncio.sleep(sleep_s)
                    continue
                await self._bell.wait(sleep_s)
        finally:
            await self._finish()

    def send(self, job: Job) -> None:
        """A ping or redelivery that has begun. When too many are under way it is left to its lease."""
        if self._by_hand < MOST_BY_HAND:
            self._by_hand += 1
            self._start([job])

    def cut(self, webhook: Webhook) -> None:
        """The webhook has changed: nothing signed, addressed or allowed by what it was goes out any more."""
        self._deliveries.on_changed(webhook)
        for task, (job, _) in self._tasks.items():
            if job.webhook.webhook_id == webhook.webhook_id:
                task.cancel()

    async def _turn(self) -> float:
        taken = len(self._ended)
        turn = await self._deliveries.turn(self._ended[:taken])
        del self._ended[:taken]
        self.turns += 1
        self._start([job for job in turn.jobs if self._still_meant(job)])
        return self._sleep_s(turn)

    def _sleep_s(self, turn: Turn) -> float:
        if turn.more:
            return 0.0
        if turn.next_due_ms is None:
            return LONGEST_SLEEP_S
        if turn.next_due_ms <= turn.began_ms:
            return ELSEWHERE_S
        left_s = (turn.next_due_ms - self._clock.now_ms()) / SECOND_MS
        return min(max(left_s, SHORTEST_SLEEP_S), LONGEST_SLEEP_S)

    def _still_meant(self, job: Job) -> bool:
        """False, and written down as cut, when the webhook has changed since the turn's transaction."""
        if self._deliveries.is_current(job):
            return True
        self._note(job, None, None)
        return False

    def _start(self, jobs: list[Job]) -> None:
        for job, post in self._deliveries.posts(jobs):
            if isinstance(post, Reply):
                self._note(job, post, 0.0)
                continue
            task = asyncio.create_task(self._courier.post(post), name=job.attempt.delivery_id)
            self._tasks[task] = (job, time.perf_counter())
            task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[Reply]) -> None:
        job, began = self._tasks.pop(task)
        if task.cancelled():
            self._note(job, None, None)
            return
        error = task.exception()
        if error is not None:
            log.error("the courier failed", webhook_id=job.webhook.webhook_id, exc_info=error)
            self._note(job, Reply(None, f"The delivery failed: {type(error).__name__}.", b"", 0), None)
        else:
            self._note(job, task.result(), time.perf_counter() - began)

    def _note(self, job: Job, reply: Reply | None, duration_s: float | None) -> None:
        if job.by_hand:
            self._by_hand -= 1
        if reply is None:
            self.cut_short += 1
        elif reply.error is None and reply.status is not None and reply.status < 300:
            self.succeeded += 1
        else:
            self.failed += 1
        self._ended.append(Ended(job, reply, self._clock.now_ms()))
        self._deliveries.over(job, duration_s)
        self._bell.ring()

    async def _finish(self) -> None:
        """Let answers that are on their way arrive, cut the others, and write down how all of them ended."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=LAST_ANSWERS_S)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LAST_ANSWERS_S)
        try:
            await self._deliveries.stop(self._ended)
        except Exception as error:
            log.warning("the last deliveries are left to their leases", error=repr(error))
        else:
            self._ended.clear()
