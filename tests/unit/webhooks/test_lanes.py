"""Lanes: who may send now, who must wait, and that nobody waits for somebody else's receiver."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.kernel.ids import AccountId, EventId, WebhookId
from domain.webhooks.model import Delivery, DeliveryState
from domain.webhooks.policy import LEASE_MS
from domain.webhooks.send_queues import CLAIM_ROWS, MAX_SEND_AHEAD_ROUNDS, TARGET_QUEUE_LENGTH, EndpointQueues

NOW = 1_800_000_000_000
_numbers = itertools.count(1)


def owed(webhook: str) -> Delivery:
    return Delivery(
        next(_numbers),
        WebhookId(webhook),
        AccountId("acc_a"),
        None,
        EventId("evt_a"),
        "ping",
        b"{}",
        DeliveryState.PENDING,
        0,
        NOW,
        NOW + LEASE_MS,
        NOW,
    )


def slow(lanes: EndpointQueues, webhook: str) -> None:
    lanes.enqueue([owed(webhook)])
    [begun] = lanes.start_next(NOW)
    lanes.release(begun.webhook_id, 10.0)


def test_a_lane_sends_four_at_once_and_the_next_when_one_is_done() -> None:
    lanes = EndpointQueues()
    lanes.enqueue([owed("a") for _ in range(6)])
    begun = lanes.start_next(NOW)
    assert len(begun) == 4
    assert not lanes.start_next(NOW)
    lanes.release(begun[0].webhook_id, 0.1)
    assert len(lanes.start_next(NOW)) == 1


def test_a_lane_whose_receiver_answers_at_once_is_begun_with_more_than_it_sends() -> None:
    lanes = EndpointQueues()
    lanes.enqueue([owed("a") for _ in range(200)])
    for duration_s, expected in ((0.0, 4 * MAX_SEND_AHEAD_ROUNDS), (0.02, 4 * 8), (10.0, 4)):
        begun = lanes.start_next(NOW)
        for delivery in begun:
            lanes.release(delivery.webhook_id, duration_s)
        begun = lanes.start_next(NOW)
        assert len(begun) <= expected
        for delivery in begun:
            lanes.release(delivery.webhook_id, None)
    lanes.enqueue([owed("b") for _ in range(100)])
    [first, *_] = [delivery for delivery in lanes.start_next(NOW) if delivery.webhook_id == "b"]
    lanes.release(first.webhook_id, 0.0)
    assert sum(delivery.webhook_id == "b" for delivery in lanes.start_next(NOW)) == 4 * MAX_SEND_AHEAD_ROUNDS - 3


def test_lanes_take_turns_for_the_places() -> None:
    lanes = EndpointQueues(places=4)
    lanes.enqueue([owed("a") for _ in range(4)] + [owed("b") for _ in range(4)])
    assert sorted(delivery.webhook_id for delivery in lanes.start_next(NOW)) == ["a", "a", "b", "b"]


def test_slow_lanes_never_take_all_places() -> None:
    lanes = EndpointQueues(places=8)
    for name in "abc":
        slow(lanes, name)
    lanes.enqueue([owed(name) for name in "abc" for _ in range(4)])
    assert len(lanes.start_next(NOW)) == 6
    lanes.enqueue([owed("fresh")])
    assert [delivery.webhook_id for delivery in lanes.start_next(NOW)] == ["fresh"]


def test_a_slow_lane_keeps_only_what_it_can_send_within_the_lease() -> None:
    lanes = EndpointQueues()
    slow(lanes, "a")
    given_back = lanes.enqueue([owed("a") for _ in range(CLAIM_ROWS)])
    assert not given_back  # left to its lease
    assert lanes.queued == 7


def test_a_lane_with_enough_at_hand_is_not_claimed_for() -> None:
    lanes = EndpointQueues()
    lanes.enqueue([owed("a") for _ in range(TARGET_QUEUE_LENGTH + 4)])
    lanes.start_next(NOW)
    assert lanes.list_full() == ["a"]


def test_what_could_not_end_within_its_lease_does_not_begin() -> None:
    lanes = EndpointQueues()
    lanes.enqueue([owed("a")])
    assert not lanes.start_next(NOW + LEASE_MS - 10_000)
    assert lanes.queued == 0


def test_an_offer_that_was_rolled_back_is_withdrawn() -> None:
    lanes = EndpointQueues()
    claimed = [owed("a"), owed("b"), owed("a")]
    lanes.enqueue(claimed)
    lanes.remove(claimed[:2])
    assert [delivery.no for delivery in lanes.start_next(NOW)] == [claimed[2].no]
    assert lanes.queued == 0


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 12), st.sampled_from([0.001, 0.3, 5.0])), max_size=40))
def test_the_books_always_balance(steps: list[tuple[str, int, float]]) -> None:
    lanes = EndpointQueues(places=10)
    under_way: list[Delivery] = []
    for name, count, duration_s in steps:
        lanes.enqueue([owed(name) for _ in range(count)])
        under_way += lanes.start_next(NOW)
        assert len(under_way) == lanes.in_flight <= 10
        assert lanes.slow_in_flight <= lanes.in_flight
        for webhook_id in "abcd":
            assert sum(delivery.webhook_id == webhook_id for delivery in under_way) <= 4 * MAX_SEND_AHEAD_ROUNDS
        for delivery in under_way[::2]:
            under_way.remove(delivery)
            lanes.release(delivery.webhook_id, duration_s)
    for delivery in under_way:
        lanes.release(delivery.webhook_id, None)
    lanes.drain()
    assert (lanes.in_flight, lanes.slow_in_flight, lanes.queued) == (0, 0, 0)
