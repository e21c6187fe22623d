"""The native rate limit equals the reference on every history of uses, and both keep to the documented limit."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from adapters.engine.native import NativeGrantEvaluator
from adapters.engine.reference import ReferenceGrantEvaluator

MINUTE_MS = 60_000
NOW = 1_800_000_000_000

offsets = st.one_of(st.integers(-2 * MINUTE_MS, 5_000), st.sampled_from([-MINUTE_MS - 1, -MINUTE_MS, -MINUTE_MS + 1, -1, 0, 1]))
histories = st.lists(offsets.map(lambda offset: NOW + offset), max_size=40)
limits = st.one_of(st.integers(1, 12), st.just(1_000))


@given(uses=histories, limit=limits)
@settings(max_examples=600, deadline=None)
def test_native_and_reference_are_equal(uses: list[int], limit: int) -> None:
    assert NativeGrantEvaluator().rate_allowance(uses, limit, NOW) == ReferenceGrantEvaluator().rate_allowance(uses, limit, NOW)


@given(uses=histories, limit=limits)
@settings(max_examples=300, deadline=None)
def test_a_use_is_allowed_exactly_while_fewer_than_the_limit_count(uses: list[int], limit: int) -> None:
    found = NativeGrantEvaluator().rate_allowance(uses, limit, NOW)
    counting = sum(at_ms > NOW - MINUTE_MS for at_ms in uses)
    assert found.is_allowed == (counting < limit)
    assert found.remaining == max(0, limit - counting - 1)


@given(uses=histories, limit=limits)
@settings(max_examples=300, deadline=None)
def test_a_use_is_allowed_again_exactly_at_the_returned_millisecond(uses: list[int], limit: int) -> None:
    windows = NativeGrantEvaluator()
    allowance = windows.rate_allowance(uses, limit, NOW)
    if not allowance.is_allowed:
        assert windows.rate_allowance(uses, limit, allowance.next_free_ms).is_allowed
        assert not windows.rate_allowance(uses, limit, allowance.next_free_ms - 1).is_allowed


@given(limit=st.integers(1, 8), gaps=st.lists(st.integers(0, 30_000), min_size=1, max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_sixty_seconds_contain_more_uses_than_the_limit(limit: int, gaps: list[int]) -> None:
    windows, now_ms, used = NativeGrantEvaluator(), NOW, []
    for gap in gaps:
        now_ms += gap
        if windows.rate_allowance(used, limit, now_ms).is_allowed:
            used.append(now_ms)
    assert all(sum(at_ms - MINUTE_MS < other <= at_ms for other in used) <= limit for at_ms in used)
