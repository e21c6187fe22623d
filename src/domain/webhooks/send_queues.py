"""Each webhook has a lane of its own, so that a slow or dead receiver delays nobody but itself.

A lane sends a few at a time and keeps more at hand. One whose receiver has shown to answer at once begins more than it may send,
and goes on by itself while the next transaction runs: only what it can send in an instant, because what has begun is not checked
again. A lane that has shown to be slow keeps only what it can send while the lease lasts; what is beyond that is let go, stays in
the database and is claimed again when the lease has run out. All lanes together have a bounded number of places, and the slow
ones share only a part of these, so that however many of them there are, the fast ones have room. A backlog therefore costs disk
and no memory. Pure bookkeeping: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import WebhookId
from domain.webhooks.model import MAX_CONCURRENT_PER_WEBHOOK, RESPONSE_TIMEOUT_S, Delivery
from domain.webhooks.policy import LEASE_MS

MAX_IN_FLIGHT = 512
SLOW_SHARE = 0.75
SLOW_THRESHOLD_S = 0.25
"""Beyond this, four at a time cannot send within their lease what one claim may bring."""
CLAIM_ROWS = 256
"""Rows a claim: a transaction of some milliseconds."""
SEND_AHEAD_S = 0.05
MAX_SEND_AHEAD_ROUNDS = 16
"""Of `PER_WEBHOOK` attempts each: what a lane is begun with at the most, if it can send that within `AHEAD_S`."""
TARGET_QUEUE_LENGTH = 64
"""At hand in a lane that is not slow: nothing more is claimed for it until it has less."""
MAX_QUEUED_TOTAL = 20_000
"""Of all lanes together, about 20 MB. Past the half of it no lane keeps more than it can send at once."""
MAX_IDLE_QUEUES = 10_000
NEWEST_DURATION_WEIGHT = 0.3
"""Of the newest duration in a lane's typical one: three slow answers in a row make a lane slow, one outlier does not."""
LEASE_USABLE_MS = LEASE_MS - int(RESPONSE_TIMEOUT_S * SECOND_MS) - 2 * SECOND_MS
"""How long after its claim an attempt may still begin, so that it ends within the lease."""


@dataclass(slots=True)
class EndpointQueue:
    in_flight: int = 0
    queued: deque[tuple[Delivery, int]] = field(default_factory=deque)
    """Each with the Unix ms until which it may begin."""
    average_duration_s: float | None = None

    @property
    def is_slow(self) -> bool:
        return self.average_duration_s is not None and self.average_duration_s >= SLOW_THRESHOLD_S

    def record_duration(self, duration_s: float) -> None:
        known_s = duration_s if self.average_duration_s is None else self.average_duration_s
        self.average_duration_s = known_s + NEWEST_DURATION_WEIGHT * (duration_s - known_s)

    def max_in_flight(self, per_webhook: int) -> int:
        """How many may have begun and not be over: those that are sent at once and those that follow them immediately."""
        if self.average_duration_s is None:
            return per_webhook
        return per_webhook * max(1, min(MAX_SEND_AHEAD_ROUNDS, int(SEND_AHEAD_S / max(self.average_duration_s, 0.001))))

    def max_queued(self, per_webhook: int) -> int:
        """How many it can send while a lease lasts; a lane that is not slow is not asked."""
        if self.average_duration_s is None or not self.is_slow:
            return TARGET_QUEUE_LENGTH + CLAIM_ROWS
        return max(per_webhook, int(per_webhook * LEASE_USABLE_MS / SECOND_MS / self.average_duration_s))


class EndpointQueues:
    def __init__(self, *, per_webhook: int = MAX_CONCURRENT_PER_WEBHOOK, places: int = MAX_IN_FLIGHT) -> None:
        self._per_webhook = per_webhook
        self._max_in_flight = places
        self._max_slow_in_flight = max(1, int(places * SLOW_SHARE))
        self._queues: dict[WebhookId, EndpointQueue] = {}
        self.in_flight = 0
        self.slow_in_flight = 0
        self.queued = 0

    def enqueue(self, claimed: Sequence[Delivery]) -> list[Delivery]:
        """Queue what was claimed. What a slow lane cannot send is left to its lease; returns what is to be given back at once."""
        back: list[Delivery] = []
        for delivery in claimed:
            lane = self._queues.setdefault(delivery.webhook_id, EndpointQueue())
            keeps = self._per_webhook if self._is_crowded() else lane.max_queued(self._per_webhook)
            if len(lane.queued) < keeps:
                usable_ms = (delivery.claimed_until_ms or 0) - LEASE_MS + LEASE_USABLE_MS
                lane.queued.append((delivery, usable_ms))
                self.queued += 1
            elif not lane.is_slow:
                back.append(delivery)
        return back

    def remove(self, claimed: Sequence[Delivery]) -> None:
        """Undo an offer."""
        numbers = {delivery.no for delivery in claimed}
        for lane in [self._queues[key] for key in {d.webhook_id for d in claimed} if key in self._queues]:
            kept = [item for item in lane.queued if item[0].no not in numbers]
            self.queued -= len(lane.queued) - len(kept)
            lane.queued = deque(kept)

    def start_next(self, now_ms: int) -> list[Delivery]:
        """What may begin now; each counts as under way until `done`. Lanes take turns."""
        begun: list[Delivery] = []
        willing = [lane for lane in self._queues.values() if lane.queued]
        while willing and self.in_flight < self._max_in_flight:
            willing = [lane for lane in willing if self._start_one(lane, now_ms, begun)]
        return begun

    def release(self, webhook_id: WebhookId, duration_s: float | None) -> None:
        """An attempt is over; `duration_s` None when it never began or was cut."""
        lane = self._queues[webhook_id]
        lane.in_flight -= 1
        self.in_flight -= 1
        self.slow_in_flight -= lane.is_slow
        was_slow = lane.is_slow
        if duration_s is not None:
            lane.record_duration(duration_s)
        if lane.is_slow != was_slow:
            self.slow_in_flight += lane.in_flight if lane.is_slow else -lane.in_flight
        if not lane.in_flight and not lane.queued and (not lane.is_slow or len(self._queues) > MAX_IDLE_QUEUES):
            del self._queues[webhook_id]

    def list_full(self) -> list[WebhookId]:
        """Lanes that have enough at hand: nothing more is to be claimed for them."""
        return [webhook_id for webhook_id, lane in self._queues.items() if self._is_full(lane)]

    def claimable_count(self) -> int:
        """How many are worth claiming now."""
        full = self.in_flight >= self._max_in_flight and self.queued >= self._max_in_flight
        return 0 if full else max(0, min(CLAIM_ROWS, MAX_QUEUED_TOTAL - self.queued))

    def drain(self) -> list[Delivery]:
        """Let everything go that has not begun."""
        left = [delivery for lane in self._queues.values() for delivery, _ in lane.queued]
        for lane in self._queues.values():
            lane.queued.clear()
        self.queued = 0
        return left

    def _start_one(self, lane: EndpointQueue, now_ms: int, begun: list[Delivery]) -> bool:
        """One of the lane; False when it has nothing or no place for more."""
        while lane.queued and lane.queued[0][1] < now_ms:
            lane.queued.popleft()
            self.queued -= 1
        if not lane.queued or lane.in_flight >= lane.max_in_flight(self._per_webhook) or self.in_flight >= self._max_in_flight:
            return False
        if lane.is_slow and self._is_slow_share_used_up():
            return False
        delivery, _ = lane.queued.popleft()
        self.queued -= 1
        lane.in_flight += 1
        self.in_flight += 1
        self.slow_in_flight += lane.is_slow
        begun.append(delivery)
        return True

    def _is_full(self, lane: EndpointQueue) -> bool:
        if lane.is_slow:
            return bool(lane.queued) or lane.in_flight >= self._per_webhook or self._is_slow_share_used_up()
        return len(lane.queued) >= (self._per_webhook if self._is_crowded() else TARGET_QUEUE_LENGTH)

    def _is_crowded(self) -> bool:
        return self.queued >= MAX_QUEUED_TOTAL // 2

    def _is_slow_share_used_up(self) -> bool:
        return self.slow_in_flight >= self._max_slow_in_flight
