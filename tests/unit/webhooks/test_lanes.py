"""Lanes: who may send now, who must wait, and that nobody waits for somebody else's receiver."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.kernel.ids import AccountId, EventId, WebhookId
from domain.webhooks.lanes import CLAIM, ENOUGH, ROUNDS, Lanes
from domain.webhooks.model import Delivery, DeliveryState
from domain.webhooks.policy import LEASE_MS

NOW = 1_800_000_000_000
_numbers = itertools.count(1)


def owed(webhook: str) -> Delivery:
    return Delivery(
        next(_numbers), WebhookId(webhook), AccountId("acc_a"), None, EventId("evt_a"), "ping", b"{}", DeliveryState.PENDING, 0,
        NOW, NOW + LEASE_MS, NOW,
    )  # fmt: skip


def slow(lanes: Lanes, webhook: str) -> None:
    lanes.offer([owed(webhook)])
    [begun] = lanes.next(NOW)
    lanes.done(begun.webhook_id, 10.0)


def test_a_lane_sends_four_at_once_and_the_next_when_one_is_done() -> None:
    lanes = Lanes()
    lanes.offer([owed("a") for _ in range(6)])
    begun = lanes.next(NOW)
    assert len(begun) == 4
    assert not lanes.next(NOW)
    lanes.done(begun[0].webhook_id, 0.1)
    assert len(lanes.next(NOW)) == 1


def test_a_lane_whose_receiver_answers_at_once_is_begun_with_more_than_it_sends() -> None:
    lanes = Lanes()
    lanes.offer([owed("a") for _ in range(200)])
    for duration_s, expected in ((0.0, 4 * ROUNDS), (0.02, 4 * 8), (10.0, 4)):
        begun = lanes.next(NOW)
        for delivery in begun:
            lanes.done(delivery.webhook_id, duration_s)
        begun = lanes.next(NOW)
        assert len(begun) <= expected
        for delivery in begun:
            lanes.done(delivery.webhook_id, None)
    lanes.offer([owed("b") for _ in range(100)])
    [first, *_] = [delivery for delivery in lanes.next(NOW) if delivery.webhook_id == "b"]
    lanes.done(first.webhook_id, 0.0)
    assert sum(delivery.webhook_id == "b" for delivery in lanes.next(NOW)) == 4 * ROUNDS - 3


def test_lanes_take_turns_for_the_places() -> None:
    lanes = Lanes(places=4)
    lanes.offer([owed("a") for _ in range(4)] + [owed("b") for _ in range(4)])
    assert sorted(delivery.webhook_id for delivery in lanes.next(NOW)) == ["a", "a", "b", "b"]


def test_slow_lanes_never_take_all_places() -> None:
    lanes = Lanes(places=8)
    for name in "abc":
        slow(lanes, name)
    lanes.offer([owed(name) for name in "abc" for _ in range(4)])
    assert len(lanes.next(NOW)) == 6
    lanes.offer([owed("fresh")])
    assert [delivery.webhook_id for delivery in lanes.next(NOW)] == ["fresh"]


def test_a_slow_lane_keeps_only_what_it_can_send_within_the_lease() -> None:
    lanes = Lanes()
    slow(lanes, "a")
    given_back = lanes.offer([owed("a") for _ in range(CLAIM)])
    assert not given_back  # left to its lease
    assert lanes.waiting == 7


def test_a_lane_with_enough_at_hand_is_not_claimed_for() -> None:
    lanes = Lanes()
    lanes.offer([owed("a") for _ in range(ENOUGH + 4)])
    lanes.next(NOW)
    assert lanes.busy() == ["a"]


def test_what_could_not_end_within_its_lease_does_not_begin() -> None:
    lanes = Lanes()
    lanes.offer([owed("a")])
    assert not lanes.next(NOW + LEASE_MS - 10_000)
    assert lanes.waiting == 0


def test_an_offer_that_was_rolled_back_is_withdrawn() -> None:
    lanes = Lanes()
    claimed = [owed("a"), owed("b"), owed("a")]
    lanes.offer(claimed)
    lanes.withdraw(claimed[:2])
    assert [delivery.no for delivery in lanes.next(NOW)] == [claimed[2].no]
    assert lanes.waiting == 0


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 12), st.sampled_from([0.001, 0.3, 5.0])), max_size=40))
def test_the_books_always_balance(steps: list[tuple[str, int, float]]) -> None:
    lanes = Lanes(places=10)
    under_way: list[Delivery] = []
    for name, count, duration_s in steps:
        lanes.offer([owed(name) for _ in range(count)])
        under_way += lanes.next(NOW)
        assert len(under_way) == lanes.under_way <= 10
        assert lanes.slow_under_way <= lanes.under_way
        for webhook_id in "abcd":
            assert sum(delivery.webhook_id == webhook_id for delivery in under_way) <= 4 * ROUNDS
        for delivery in under_way[::2]:
            under_way.remove(delivery)
            lanes.done(delivery.webhook_id, duration_s)
    for delivery in under_way:
        lanes.done(delivery.webhook_id, None)
    lanes.drain()
    assert (lanes.under_way, lanes.slow_under_way, lanes.waiting) == (0, 0, 0)
