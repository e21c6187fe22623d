"""Endpoint queues decide which deliveries are sent now and which wait; no webhook waits for the receiver of another one."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.kernel.ids import AccountId, EventId, WebhookId
from domain.webhooks.model import LEASE_MS, WebhookDelivery, WebhookDeliveryState
from domain.webhooks.queues import CLAIM_ROWS, MAX_SEND_AHEAD_ROUNDS, TARGET_QUEUE_LENGTH, EndpointQueues

NOW = 1_800_000_000_000
_numbers = itertools.count(1)


def pending(webhook: str, account: str = "acc_a") -> WebhookDelivery:
    return WebhookDelivery(
        next(_numbers),
        WebhookId(webhook),
        AccountId(account),
        None,
        EventId("evt_a"),
        "ping",
        b"{}",
        WebhookDeliveryState.PENDING,
        0,
        NOW,
        NOW + LEASE_MS,
        NOW,
    )


def slow(queues: EndpointQueues, webhook: str, account: str = "acc_a") -> None:
    queues.enqueue([pending(webhook, account)])
    [begun] = queues.start_next(NOW)
    queues.release(begun.webhook_id, 10.0)


def test_a_queue_sends_four_at_once_and_the_next_when_one_has_ended() -> None:
    queues = EndpointQueues()
    queues.enqueue([pending("a") for _ in range(6)])
    begun = queues.start_next(NOW)
    assert len(begun) == 4
    assert not queues.start_next(NOW)
    queues.release(begun[0].webhook_id, 0.1)
    assert len(queues.start_next(NOW)) == 1


def test_a_queue_with_a_fast_receiver_starts_more_than_it_sends_at_once() -> None:
    queues = EndpointQueues()
    queues.enqueue([pending("a") for _ in range(300)])
    for duration_s, expected in ((0.0, 4 * MAX_SEND_AHEAD_ROUNDS), (0.02, 4 * 8), (10.0, 4)):
        begun = queues.start_next(NOW)
        for delivery in begun:
            queues.release(delivery.webhook_id, duration_s)
        begun = queues.start_next(NOW)
        assert len(begun) <= expected
        for delivery in begun:
            queues.release(delivery.webhook_id, None)
    queues.enqueue([pending("b") for _ in range(300)])
    [first, *_] = [delivery for delivery in queues.start_next(NOW) if delivery.webhook_id == "b"]
    queues.release(first.webhook_id, 0.0)
    assert sum(delivery.webhook_id == "b" for delivery in queues.start_next(NOW)) == 4 * MAX_SEND_AHEAD_ROUNDS - 3


def test_queues_take_turns_for_the_slots() -> None:
    queues = EndpointQueues(max_in_flight=4)
    queues.enqueue([pending("a") for _ in range(4)] + [pending("b") for _ in range(4)])
    assert sorted(delivery.webhook_id for delivery in queues.start_next(NOW)) == ["a", "a", "b", "b"]


def test_slow_queues_never_use_all_slots() -> None:
    queues = EndpointQueues(max_in_flight=8)
    for name in "abc":
        slow(queues, name)
    queues.enqueue([pending(name) for name in "abc" for _ in range(4)])
    assert len(queues.start_next(NOW)) == 6
    queues.enqueue([pending("fresh")])
    assert [delivery.webhook_id for delivery in queues.start_next(NOW)] == ["fresh"]


def test_an_account_with_many_webhooks_leaves_slots_to_another_one() -> None:
    queues = EndpointQueues(max_in_flight=64)
    queues.enqueue([pending(f"loud {number}") for number in range(40) for _ in range(4)])
    assert len(queues.start_next(NOW)) == 56
    queues.enqueue([pending("quiet", "acc_b") for _ in range(2)])
    assert [delivery.webhook_id for delivery in queues.start_next(NOW)] == ["quiet", "quiet"]
    queues.release(WebhookId("loud 0"), 0.1)
    assert not queues.start_next(NOW)


def test_an_account_with_many_slow_webhooks_leaves_slots_to_a_slow_one_of_another() -> None:
    queues = EndpointQueues(max_in_flight=64)
    for number in range(20):
        slow(queues, f"loud {number}")
    slow(queues, "quiet", "acc_b")
    queues.enqueue([pending(f"loud {number}") for number in range(20) for _ in range(4)])
    assert len(queues.start_next(NOW)) == 42
    queues.enqueue([pending("quiet", "acc_b")])
    assert [delivery.webhook_id for delivery in queues.start_next(NOW)] == ["quiet"]


def test_a_slow_queue_keeps_only_what_it_can_send_within_the_lease() -> None:
    queues = EndpointQueues()
    slow(queues, "a")
    given_back = queues.enqueue([pending("a") for _ in range(CLAIM_ROWS)])
    assert not given_back  # left to its lease
    assert queues.queued == 7


def test_nothing_is_claimed_for_a_full_queue() -> None:
    queues = EndpointQueues()
    queues.enqueue([pending("a") for _ in range(TARGET_QUEUE_LENGTH + 4)])
    queues.start_next(NOW)
    assert queues.list_full() == ["a"]


def test_an_attempt_that_could_not_end_within_its_lease_does_not_begin() -> None:
    queues = EndpointQueues()
    queues.enqueue([pending("a")])
    assert not queues.start_next(NOW + LEASE_MS - 10_000)
    assert queues.queued == 0


def test_deliveries_of_a_rolled_back_claim_leave_the_queue() -> None:
    queues = EndpointQueues()
    claimed = [pending("a"), pending("b"), pending("a")]
    queues.enqueue(claimed)
    queues.remove(claimed[:2])
    assert [delivery.no for delivery in queues.start_next(NOW)] == [claimed[2].no]
    assert queues.queued == 0


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 12), st.sampled_from([0.001, 0.3, 5.0])), max_size=40))
def test_the_counters_always_match_the_queues(steps: list[tuple[str, int, float]]) -> None:
    queues = EndpointQueues(max_in_flight=10)
    under_way: list[WebhookDelivery] = []
    for name, count, duration_s in steps:
        queues.enqueue([pending(name) for _ in range(count)])
        under_way += queues.start_next(NOW)
        assert len(under_way) == queues.in_flight <= 10
        assert queues.slow_in_flight <= queues.in_flight
        for webhook_id in "abcd":
            assert sum(delivery.webhook_id == webhook_id for delivery in under_way) <= 4 * MAX_SEND_AHEAD_ROUNDS
        for delivery in under_way[::2]:
            under_way.remove(delivery)
            queues.release(delivery.webhook_id, duration_s)
    for delivery in under_way:
        queues.release(delivery.webhook_id, None)
    queues.drain()
    assert (queues.in_flight, queues.slow_in_flight, queues.queued) == (0, 0, 0)
