"""Sends what webhooks are owed: a turn of the delivery service, its jobs to the courier, and their ends into the next turn.

While a turn's transaction runs, attempts end and deliveries fall due; all of that goes into the following one, so the batch grows
with the load by itself. Ends that could not be written, because the database does not answer, are kept and written later; what
is under way is bounded by the lanes, so that list is bounded too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from app.loops.doorbell import Doorbell
from app.loops.waking import LONGEST_SLEEP_S, WakingLoop, until
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.ids import WebhookId
from domain.webhooks.delivery import DeliveryService, Ended, Job, Turn
from domain.webhooks.model import Webhook
from domain.webhooks.policy import succeeded
from domain.webhooks.ports import UNSENT, Courier, Post, Reply

ELSEWHERE_S = 0.25
"""What is due cannot be claimed now: its lane has enough, or another instance holds it. An end of an attempt wakes us anyway."""
LAST_ANSWERS_S = 1.5
"""How long a stop waits for answers that are on their way."""
MOST_BY_HAND = 64


class DeliveryLoop(WakingLoop):
    name = "deliveries"

    def __init__(self, *, deliveries: DeliveryService, courier: Courier, clock: Clock, bell: Doorbell) -> None:
        super().__init__(bell)
        self._deliveries = deliveries
        self._courier = courier
        self._clock = clock
        self._tickets = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._by_hand = 0
        self._ended: list[Ended] = []
        self._idle = asyncio.Event()
        self.turns = 0
        self.succeeded = 0
        self.failed = 0
        self.cut_short = 0
        self.put_off = 0

    @property
    def under_way(self) -> int:
        return len(self._jobs)

    async def run(self) -> None:
        self._courier.hear(self._heard)
        try:
            await super().run()
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
        self._cut([ticket for ticket, job in self._jobs.items() if job.webhook.webhook_id == webhook.webhook_id])

    def look_again(self, webhook_id: WebhookId, now: Webhook | None) -> None:
        """Another instance has changed the webhook, or (None) deleted it. What began with what it is now goes on."""
        if now is not None:
            self._deliveries.on_changed(now)
        mine = [(ticket, job.webhook) for ticket, job in self._jobs.items() if job.webhook.webhook_id == webhook_id]
        self._cut([ticket for ticket, began in mine if now is None or not now.enabled or _differ(began, now)])

    async def _work(self) -> float:
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
        return until(turn.next_due_ms, self._clock.now_ms())

    def _still_meant(self, job: Job) -> bool:
        """False, and written down as cut, when the webhook has changed since the turn's transaction."""
        if self._deliveries.is_current(job):
            return True
        self._note(job, None, self._clock.now_ms())
        return False

    def _start(self, jobs: list[Job]) -> None:
        posts: list[tuple[int, Post]] = []
        made = self._deliveries.posts(jobs)
        now_ms = self._clock.now_ms()
        for job, post in made:
            if isinstance(post, Reply):
                self._note(job, post, now_ms)
                continue
            if now_ms > self._deliveries.sendable_until_ms(job):
                self._note(job, UNSENT, now_ms)
                continue
            ticket = next(self._tickets)
            self._jobs[ticket] = job
            posts.append((ticket, post))
        if posts:
            self._courier.send(posts)

    def _cut(self, tickets: list[int]) -> None:
        self._courier.cut(tickets)
        now_ms = self._clock.now_ms()
        for ticket in tickets:
            self._note(self._jobs.pop(ticket), None, now_ms)

    def _heard(self, replies: Sequence[tuple[int, Reply]]) -> None:
        now_ms = self._clock.now_ms()
        for ticket, reply in replies:
            job = self._jobs.pop(ticket, None)
            if job is not None:  # else it was cut in the same moment
                self._note(job, reply, now_ms)

    def _note(self, job: Job, reply: Reply | None, at_ms: int) -> None:
        sent = None if reply is UNSENT else reply
        if job.by_hand:
            self._by_hand -= 1
        if reply is UNSENT:
            self.put_off += 1
        elif reply is None:
            self.cut_short += 1
        elif succeeded(reply):
            self.succeeded += 1
        else:
            self.failed += 1
        self._ended.append(Ended(job, reply, at_ms))
        self._deliveries.over(job, None if sent is None else sent.duration_ms / SECOND_MS)
        self._bell.ring()
        if not self._jobs:
            self._idle.set()

    async def _finish(self) -> None:
        """Let answers that are on their way arrive, cut the others, and write down how all of them ended."""
        self._idle.clear()
        if self._jobs:
            try:
                async with asyncio.timeout(LAST_ANSWERS_S):
                    await self._idle.wait()
            except TimeoutError:
                self._cut(list(self._jobs))
        try:
            await self._deliveries.stop(self._ended)
        except Exception as error:
            self._log.warning("the last deliveries are left to their leases", error=repr(error))
        else:
            self._ended.clear()


def _differ(began: Webhook, now: Webhook) -> bool:
    return (began.generation, began.url) != (now.generation, now.url)
