"""Pauses between attempts."""

from domain.kernel.backoff import Backoff


def test_the_last_pause_repeats() -> None:
    backoff = Backoff((0.1, 0.5, 2.0))
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 4, 1_000)] == [0.1, 0.5, 2.0, 2.0, 2.0]


def test_a_doubling_backoff_stops_at_its_maximum() -> None:
    assert Backoff.doubling(5, 80).pauses_s == (5, 10, 20, 40, 80)
    assert Backoff.doubling(1, 10).pauses_s == (1, 2, 4, 8, 10)
