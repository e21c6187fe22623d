"""One send queue per webhook (endpoint), so that a slow or dead receiver delays only itself.

A queue has a few attempts in flight and keeps more deliveries queued. When its receiver answers quickly, it starts more attempts
than may be sent at once, so that it can continue while the next transaction runs; it starts only what it can send within
SEND_AHEAD_S, because a started attempt is not checked again. A slow queue keeps only what it can send while the lease lasts. The
rest stays in the database and is claimed again after the lease. All queues share a bounded number of slots, and slow queues
together may use only a part of them, so fast endpoints always have capacity. The last of the slots, and the last of those for
slow queues, are kept for accounts that use few: however many webhooks an account has, those of another one start at once. A
backlog costs disk space and no memory.

Pure bookkeeping: no I/O, no clock; times are steady time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import AccountId, WebhookId
from domain.webhooks.model import LEASE_MS, MAX_CONCURRENT_PER_WEBHOOK, RESPONSE_TIMEOUT_S, WebhookDelivery

MAX_IN_FLIGHT = 512
SLOW_SHARE = 0.75
RESERVED_SHARE = 0.125
"""The part of the slots, and of those for slow queues, that only accounts with few attempts in flight may use."""
FEW_SHARE = 0.0625
"""An account has few in flight below this part of the slots; two such accounts fill the reserve."""
SLOW_THRESHOLD_S = 0.25
"""A queue with a longer average, sending four at a time, cannot send a full claim within the lease."""
CLAIM_ROWS = 256
"""Rows per claim: a transaction of a few milliseconds."""
SEND_AHEAD_S = 0.05
MAX_SEND_AHEAD_ROUNDS = 50
"""A queue starts at most this many rounds of `per_webhook` attempts, if it can send them within SEND_AHEAD_S."""
TARGET_QUEUE_LENGTH = 64
"""Nothing more is claimed for a queue that is not slow while it holds this many."""
MAX_QUEUED_TOTAL = 20_000
"""Bound for all queues together, about 20 MB. Above half of it, each queue keeps only what it can send at once."""
MAX_IDLE_QUEUES = 10_000
NEWEST_DURATION_WEIGHT = 0.3
"""Weight of the newest duration in a queue's moving average: three slow responses in a row make a queue slow, one does not."""
LEASE_USABLE_MS = LEASE_MS - int(RESPONSE_TIMEOUT_S * SECOND_MS) - 2 * SECOND_MS
"""An attempt must begin within this time after its claim to end within the lease."""


@dataclass(slots=True)
class EndpointQueue:
    account_id: AccountId
    in_flight: int = 0
    queued: deque[tuple[WebhookDelivery, int]] = field(default_factory=deque)
    """Each delivery with the Unix ms until which its attempt may begin."""
    average_duration_s: float | None = None

    @property
    def is_slow(self) -> bool:
        return self.average_duration_s is not None and self.average_duration_s >= SLOW_THRESHOLD_S

    def record_duration(self, duration_s: float) -> None:
        average_s = duration_s if self.average_duration_s is None else self.average_duration_s
        self.average_duration_s = average_s + NEWEST_DURATION_WEIGHT * (duration_s - average_s)

    def max_in_flight(self, per_webhook: int) -> int:
        """The attempts that are sent at once, and those that follow them within SEND_AHEAD_S."""
        if self.average_duration_s is None:
            return per_webhook
        return per_webhook * max(1, min(MAX_SEND_AHEAD_ROUNDS, int(SEND_AHEAD_S / max(self.average_duration_s, 0.001))))

    def max_queued(self, per_webhook: int) -> int:
        """How many deliveries the queue keeps; a slow one only as many as it can send while a lease lasts."""
        if self.average_duration_s is None or not self.is_slow:
            return TARGET_QUEUE_LENGTH + CLAIM_ROWS
        return max(per_webhook, int(per_webhook * LEASE_USABLE_MS / SECOND_MS / self.average_duration_s))


class EndpointQueues:
    def __init__(self, *, per_webhook: int = MAX_CONCURRENT_PER_WEBHOOK, max_in_flight: int = MAX_IN_FLIGHT) -> None:
        self._per_webhook = per_webhook
        self._max_in_flight = max_in_flight
        self._max_slow_in_flight = max(1, int(max_in_flight * SLOW_SHARE))
        self._few = max(1, int(max_in_flight * FEW_SHARE))
        self._in_flight_by_account: Counter[AccountId] = Counter()
        self._queues: dict[WebhookId, EndpointQueue] = {}
        self.in_flight = 0
        self.slow_in_flight = 0
        self.queued = 0

    def enqueue(self, claimed: Sequence[WebhookDelivery]) -> list[WebhookDelivery]:
        """Queues claimed deliveries. Returns those to give back at once; what a slow queue cannot keep stays under its lease."""
        rejected: list[WebhookDelivery] = []
        for delivery in claimed:
            queue = self._queues.setdefault(delivery.webhook_id, EndpointQueue(delivery.account_id))
            capacity = self._per_webhook if self._is_crowded() else queue.max_queued(self._per_webhook)
            if len(queue.queued) < capacity:
                usable_ms = (delivery.claimed_until_ms or 0) - LEASE_MS + LEASE_USABLE_MS
                queue.queued.append((delivery, usable_ms))
                self.queued += 1
            elif not queue.is_slow:
                rejected.append(delivery)
        return rejected

    def remove(self, claimed: Sequence[WebhookDelivery]) -> None:
        """Undoes `enqueue`."""
        numbers = {delivery.no for delivery in claimed}
        for queue in [self._queues[key] for key in {d.webhook_id for d in claimed} if key in self._queues]:
            kept = [item for item in queue.queued if item[0].no not in numbers]
            self.queued -= len(queue.queued) - len(kept)
            queue.queued = deque(kept)

    def start_next(self, now_ms: int) -> list[WebhookDelivery]:
        """The deliveries whose attempts begin now; each counts as in flight until `release`. Queues take turns."""
        started: list[WebhookDelivery] = []
        ready = [queue for queue in self._queues.values() if queue.queued]
        while ready and self.in_flight < self._max_in_flight:
            ready = [queue for queue in ready if self._start_one(queue, now_ms, started)]
        return started

    def release(self, webhook_id: WebhookId, duration_s: float | None) -> None:
        """An attempt has ended. `duration_s`: None when it was cancelled or never sent."""
        queue = self._queues[webhook_id]
        queue.in_flight -= 1
        self.in_flight -= 1
        self._count(queue.account_id, -1)
        self.slow_in_flight -= queue.is_slow
        was_slow = queue.is_slow
        if duration_s is not None:
            queue.record_duration(duration_s)
        if queue.is_slow != was_slow:
            self.slow_in_flight += queue.in_flight if queue.is_slow else -queue.in_flight
        if not queue.in_flight and not queue.queued and (not queue.is_slow or len(self._queues) > MAX_IDLE_QUEUES):
            del self._queues[webhook_id]

    def list_full(self) -> list[WebhookId]:
        """The webhooks for which nothing more should be claimed now."""
        return [webhook_id for webhook_id, queue in self._queues.items() if self._is_full(queue)]

    def claimable_count(self) -> int:
        """How many deliveries to claim now."""
        full = self.in_flight >= self._max_in_flight and self.queued >= self._max_in_flight
        return 0 if full else max(0, min(CLAIM_ROWS, MAX_QUEUED_TOTAL - self.queued))

    def drain(self) -> list[WebhookDelivery]:
        """Empties all queues; returns what they held."""
        left = [delivery for queue in self._queues.values() for delivery, _ in queue.queued]
        for queue in self._queues.values():
            queue.queued.clear()
        self.queued = 0
        return left

    def _start_one(self, queue: EndpointQueue, now_ms: int, started: list[WebhookDelivery]) -> bool:
        """Starts one delivery of the queue. False when it has none, or no free slot."""
        while queue.queued and queue.queued[0][1] < now_ms:
            queue.queued.popleft()
            self.queued -= 1
        if not queue.queued or queue.in_flight >= queue.max_in_flight(self._per_webhook) or self._is_used_up(queue):
            return False
        delivery, _ = queue.queued.popleft()
        self.queued -= 1
        queue.in_flight += 1
        self.in_flight += 1
        self._count(queue.account_id, 1)
        self.slow_in_flight += queue.is_slow
        started.append(delivery)
        return True

    def _is_full(self, queue: EndpointQueue) -> bool:
        if queue.is_slow:
            return bool(queue.queued) or queue.in_flight >= self._per_webhook or self._is_used_up(queue)
        return len(queue.queued) >= (self._per_webhook if self._is_crowded() else TARGET_QUEUE_LENGTH)

    def _is_crowded(self) -> bool:
        return self.queued >= MAX_QUEUED_TOTAL // 2

    def _is_used_up(self, queue: EndpointQueue) -> bool:
        """Whether the slots that this queue may use are all in use."""
        reserved = 0.0 if self._in_flight_by_account[queue.account_id] < self._few else RESERVED_SHARE
        if self.in_flight >= self._max_in_flight - int(self._max_in_flight * reserved):
            return True
        return queue.is_slow and self.slow_in_flight >= self._max_slow_in_flight - int(self._max_slow_in_flight * reserved)

    def _count(self, account_id: AccountId, change: int) -> None:
        self._in_flight_by_account[account_id] += change
        if not self._in_flight_by_account[account_id]:
            del self._in_flight_by_account[account_id]
