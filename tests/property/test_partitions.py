"""Partitions: devices spread evenly, members own equal shares, and a change of members moves few partitions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.partitions.liveness import FORGET_MS, LEASE_MS, MAX_GAP_MS, ClusterFailureDetector
from domain.partitions.model import (
    ClusterMember,
    LogAdvanceAlreadyCommittedError,
    Partition,
    PartitionLogAdvance,
    PartitionLostError,
    assign,
    partition_of,
)
from domain.partitions.ownership import MAX_MOVES, OwnedPartitions

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "partitions.json").read_text(encoding="utf-8"))
INSTANCES = st.sets(st.text("abcdef0123456789", min_size=1, max_size=6), min_size=1, max_size=20).map(frozenset)
COUNTS = st.integers(1, 256)


@pytest.mark.parametrize("vector", VECTORS)
def test_the_partition_of_a_device_is_that_of_the_shared_vectors(vector: dict[str, int]) -> None:
    assert partition_of(vector["deviceNo"], vector["count"]) == vector["partition"]


@given(st.integers(0, 2**31 - 1), COUNTS)
def test_a_device_is_in_one_of_the_partitions(device_no: int, count: int) -> None:
    assert 0 <= partition_of(device_no, count) < count


@pytest.mark.parametrize("step", [1, 2, 8, 64, 100, 1024])
def test_devices_with_any_step_between_their_numbers_spread_over_all_partitions(step: int) -> None:
    found = Counter(partition_of(number * step, 64) for number in range(6_400))
    assert len(found) == 64
    assert max(found.values()) < 2 * 100


@given(INSTANCES, COUNTS)
def test_no_instance_owns_more_than_its_share(instances: frozenset[str], count: int) -> None:
    owners = Counter(assign(count, instances))
    assert sum(owners.values()) == count
    assert max(owners.values()) <= -(-count // len(instances))


@given(INSTANCES.filter(lambda each: len(each) > 1), st.sampled_from([64, 256]))
def test_when_a_member_leaves_most_partitions_of_the_others_stay(instances: frozenset[str], count: int) -> None:
    gone = min(instances)
    before, after = assign(count, instances), assign(count, instances - {gone})
    moved = sum(old not in (gone, new) for old, new in zip(before, after, strict=True))
    assert moved <= count / 3


@given(INSTANCES.filter(lambda each: len(each) > 1))
def test_a_plan_claims_what_is_free_and_releases_a_few_at_a_time(instances: frozenset[str]) -> None:
    me, *_ = sorted(instances)
    ownership, table = OwnedPartitions(me, 64), [Partition(number) for number in range(64)]
    alone = ownership.plan(table, frozenset({me}))
    assert [row.partition for row in alone.claim] == list(range(64))
    table = [row.claimed_by(me, row.epoch) or row for row in table]
    for row in table:
        ownership.add(row)
    others = ownership.plan(table, instances)
    assert not others.claim
    assert len(others.release) == min(MAX_MOVES, sum(owner != me for owner in assign(64, instances)))
    assert not ownership.plan(table, frozenset()).release


def test_a_partition_in_other_hands_is_lost_and_one_whose_claim_was_not_answered_is_free() -> None:
    ownership, row = OwnedPartitions("a", 1), Partition(0, epoch=4, owner="b")
    ownership.add(Partition(0, epoch=3, owner="a"))
    assert list(ownership.plan([row], frozenset({"a", "b"})).lost) == [0]
    ownership.drop(0)
    unanswered = Partition(0, epoch=5, owner="a")
    assert list(ownership.plan([unanswered], frozenset({"a"})).claim) == [unanswered]
    with pytest.raises(PartitionLostError):
        ownership.progress_to(0, 1)


def test_a_commit_continues_exactly_the_stored_position_of_its_own_epoch() -> None:
    row = Partition(3, epoch=7, position=40, owner="a")
    after = row.advanced(PartitionLogAdvance(3, 7, 40, 45))
    assert after.position == 45
    assert row.advanced(PartitionLogAdvance(3, 7, 40, 40)) == row
    with pytest.raises(LogAdvanceAlreadyCommittedError):
        after.advanced(PartitionLogAdvance(3, 7, 40, 45))
    for progress in (
        PartitionLogAdvance(3, 6, 40, 45),
        PartitionLogAdvance(3, 8, 40, 45),
        PartitionLogAdvance(3, 7, 39, 45),
        PartitionLogAdvance(3, 7, 41, 45),
    ):
        with pytest.raises(PartitionLostError):
            row.advanced(progress)


def test_a_member_is_alive_while_its_beats_grow() -> None:
    liveness = ClusterFailureDetector()
    assert liveness.observe([ClusterMember("a", 1), ClusterMember("b", 1)], 0) == {"a", "b"}
    for now_ms in range(500, LEASE_MS, 500):
        assert liveness.observe([ClusterMember("a", now_ms), ClusterMember("b", 1)], now_ms) == {"a", "b"}
    assert liveness.observe([ClusterMember("a", 3), ClusterMember("b", 1)], LEASE_MS) == {"a"}
    assert liveness.observe([ClusterMember("a", 4), ClusterMember("b", 2)], LEASE_MS + 1) == {"a", "b"}
    for now_ms in range(LEASE_MS + 500, LEASE_MS + FORGET_MS + 1, 500):
        liveness.observe([ClusterMember("a", now_ms), ClusterMember("b", 2)], now_ms)
    assert liveness.forgotten(LEASE_MS + FORGET_MS) == []
    assert liveness.forgotten(LEASE_MS + 1 + FORGET_MS) == ["b"]


def test_the_silence_of_a_dead_member_counts_while_this_one_is_late_if_others_beat_meanwhile() -> None:
    liveness, late_ms = ClusterFailureDetector(), MAX_GAP_MS + 1
    members = [ClusterMember(name, 1) for name in "abc"]
    assert liveness.observe(members, 0, "a") == {"a", "b", "c"}
    for turn in (1, 2):
        members = [ClusterMember("a", turn + 1), ClusterMember("b", 2 * turn + 1), ClusterMember("c", 1)]
        live = liveness.observe(members, turn * late_ms, "a")
    assert live == {"a", "b"}


def test_after_a_long_time_without_the_database_the_first_beats_of_another_do_not_make_the_third_dead() -> None:
    liveness = ClusterFailureDetector()
    liveness.observe([ClusterMember(name, 1) for name in "abc"], 0, "a")
    back = [ClusterMember("a", 2), ClusterMember("b", 3), ClusterMember("c", 1)]
    assert liveness.observe(back, 60_000, "a") == {"a", "b", "c"}


def test_after_a_time_in_which_no_other_member_could_beat_all_get_a_new_lease() -> None:
    liveness, late_ms = ClusterFailureDetector(), MAX_GAP_MS + 1
    for number in range(4):
        members = [ClusterMember("a", number), ClusterMember("b", 1)]
        assert liveness.observe(members, number * late_ms, "a") == {"a", "b"}
