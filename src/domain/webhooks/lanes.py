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
from domain.webhooks.model import ANSWER_WITHIN_S, PER_WEBHOOK, Delivery
from domain.webhooks.policy import LEASE_MS

PLACES = 512
SLOW_SHARE = 0.75
SLOW_S = 0.25
"""Beyond this, four at a time cannot send within their lease what one claim may bring."""
CLAIM = 256
"""Rows a claim: a transaction of some milliseconds."""
AHEAD_S = 0.05
ROUNDS = 16
"""Of `PER_WEBHOOK` attempts each: what a lane is begun with at the most, if it can send that within `AHEAD_S`."""
ENOUGH = 64
"""At hand in a lane that is not slow: nothing more is claimed for it until it has less."""
MOST_AT_HAND = 20_000
"""Of all lanes together, about 20 MB. Past the half of it no lane keeps more than it can send at once."""
MOST_IDLE = 10_000
WEIGHT = 0.3
"""Of the newest duration in a lane's typical one: three slow answers in a row make a lane slow, one outlier does not."""
USABLE_MS = LEASE_MS - int(ANSWER_WITHIN_S * SECOND_MS) - 2 * SECOND_MS
"""How long after its claim an attempt may still begin, so that it ends within the lease."""


@dataclass(slots=True)
class Lane:
    under_way: int = 0
    waiting: deque[tuple[Delivery, int]] = field(default_factory=deque)
    """Each with the Unix ms until which it may begin."""
    typical_s: float | None = None

    @property
    def slow(self) -> bool:
        return self.typical_s is not None and self.typical_s >= SLOW_S

    def took(self, duration_s: float) -> None:
        known_s = duration_s if self.typical_s is None else self.typical_s
        self.typical_s = known_s + WEIGHT * (duration_s - known_s)

    def may_begin(self, per_webhook: int) -> int:
        """How many may have begun and not be over: those that are sent at once and those that follow them immediately."""
        if self.typical_s is None:
            return per_webhook
        return per_webhook * max(1, min(ROUNDS, int(AHEAD_S / max(self.typical_s, 0.001))))

    def capacity(self, per_webhook: int) -> int:
        """How many it can send while a lease lasts; a lane that is not slow is not asked."""
        if self.typical_s is None or not self.slow:
            return ENOUGH + CLAIM
        return max(per_webhook, int(per_webhook * USABLE_MS / SECOND_MS / self.typical_s))


class Lanes:
    def __init__(self, *, per_webhook: int = PER_WEBHOOK, places: int = PLACES) -> None:
        self._per_webhook = per_webhook
        self._places = places
        self._slow_places = max(1, int(places * SLOW_SHARE))
        self._lanes: dict[WebhookId, Lane] = {}
        self.under_way = 0
        self.slow_under_way = 0
        self.waiting = 0

    def offer(self, claimed: Sequence[Delivery]) -> list[Delivery]:
        """Queue what was claimed. What a slow lane cannot send is left to its lease; returns what is to be given back at once."""
        back: list[Delivery] = []
        for delivery in claimed:
            lane = self._lanes.setdefault(delivery.webhook_id, Lane())
            keeps = self._per_webhook if self._crowded() else lane.capacity(self._per_webhook)
            if len(lane.waiting) < keeps:
                usable_ms = (delivery.claimed_until_ms or 0) - LEASE_MS + USABLE_MS
                lane.waiting.append((delivery, usable_ms))
                self.waiting += 1
            elif not lane.slow:
                back.append(delivery)
        return back

    def withdraw(self, claimed: Sequence[Delivery]) -> None:
        """Undo an offer."""
        numbers = {delivery.no for delivery in claimed}
        for lane in [self._lanes[key] for key in {d.webhook_id for d in claimed} if key in self._lanes]:
            kept = [item for item in lane.waiting if item[0].no not in numbers]
            self.waiting -= len(lane.waiting) - len(kept)
            lane.waiting = deque(kept)

    def next(self, now_ms: int) -> list[Delivery]:
        """What may begin now; each counts as under way until `done`. Lanes take turns."""
        begun: list[Delivery] = []
        willing = [lane for lane in self._lanes.values() if lane.waiting]
        while willing and self.under_way < self._places:
            willing = [lane for lane in willing if self._begin(lane, now_ms, begun)]
        return begun

    def done(self, webhook_id: WebhookId, duration_s: float | None) -> None:
        """An attempt is over; `duration_s` None when it never began or was cut."""
        lane = self._lanes[webhook_id]
        lane.under_way -= 1
        self.under_way -= 1
        self.slow_under_way -= lane.slow
        was_slow = lane.slow
        if duration_s is not None:
            lane.took(duration_s)
        if lane.slow != was_slow:
            self.slow_under_way += lane.under_way if lane.slow else -lane.under_way
        if not lane.under_way and not lane.waiting and (not lane.slow or len(self._lanes) > MOST_IDLE):
            del self._lanes[webhook_id]

    def busy(self) -> list[WebhookId]:
        """Lanes that have enough at hand: nothing more is to be claimed for them."""
        return [webhook_id for webhook_id, lane in self._lanes.items() if self._has_enough(lane)]

    def room(self) -> int:
        """How many are worth claiming now."""
        full = self.under_way >= self._places and self.waiting >= self._places
        return 0 if full else max(0, min(CLAIM, MOST_AT_HAND - self.waiting))

    def drain(self) -> list[Delivery]:
        """Let everything go that has not begun."""
        left = [delivery for lane in self._lanes.values() for delivery, _ in lane.waiting]
        for lane in self._lanes.values():
            lane.waiting.clear()
        self.waiting = 0
        return left

    def _begin(self, lane: Lane, now_ms: int, begun: list[Delivery]) -> bool:
        """One of the lane; False when it has nothing or no place for more."""
        while lane.waiting and lane.waiting[0][1] < now_ms:
            lane.waiting.popleft()
            self.waiting -= 1
        if not lane.waiting or lane.under_way >= lane.may_begin(self._per_webhook) or self.under_way >= self._places:
            return False
        if lane.slow and self._slow_full():
            return False
        delivery, _ = lane.waiting.popleft()
        self.waiting -= 1
        lane.under_way += 1
        self.under_way += 1
        self.slow_under_way += lane.slow
        begun.append(delivery)
        return True

    def _has_enough(self, lane: Lane) -> bool:
        if lane.slow:
            return bool(lane.waiting) or lane.under_way >= self._per_webhook or self._slow_full()
        return len(lane.waiting) >= (self._per_webhook if self._crowded() else ENOUGH)

    def _crowded(self) -> bool:
        return self.waiting >= MOST_AT_HAND // 2

    def _slow_full(self) -> bool:
        return self.slow_under_way >= self._slow_places
