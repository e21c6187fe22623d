"""Some seeds of the cluster's simulation; `make simulate` runs ten thousand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.partitions.liveness import OWN_LEASE_MS, OwnLeaseValidityService
from domain.partitions.model import Partition, PartitionLogAdvance
from domain.partitions.ports import PeerLeaseAndCredentialReply
from support.cluster_simulation import ClusterSimulation, Size, Violation
from support.thoroughness import usual_or_thorough

SEEDS = usual_or_thorough(200, 2_000)


def test_no_entry_is_skipped_or_done_twice_and_every_partition_is_owned_again() -> None:
    kills = moves = rejected = while_away = 0
    for seed in range(SEEDS):
        simulation = ClusterSimulation(seed)
        simulation.run()
        while_away += simulation.fleet.accepted_while_away
        kills, moves, rejected = kills + simulation.kills, moves + simulation.moves, rejected + simulation.rejected
    assert min(kills, moves, rejected, while_away) > SEEDS  # the faults happened, and the fence was needed


def test_fifty_instances_with_256_partitions() -> None:
    ClusterSimulation(1, Size(50, 256, 1_000)).run()


def test_the_simulation_notices_a_fence_that_does_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "advanced", lambda row, progress: replace(row, position=progress.after))
    with pytest.raises(Violation):
        for seed in range(50):
            ClusterSimulation(seed).run()


def test_the_simulation_notices_an_epoch_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def advanced_in_any_epoch(row: Partition, progress: PartitionLogAdvance) -> Partition:
        return original(row, replace(progress, epoch=row.epoch))

    original = Partition.advanced
    monkeypatch.setattr(Partition, "advanced", advanced_in_any_epoch)
    with pytest.raises(Violation):
        for seed in range(100):
            ClusterSimulation(seed).run()


@pytest.mark.parametrize(
    "forgotten",
    [
        {"_expected": lambda lease: frozenset()},
        {"prolong": lambda lease, polled_ms: setattr(lease, "_permitted_until_ms", polled_ms + 3 * OWN_LEASE_MS)},
        {"answer": lambda lease, question: PeerLeaseAndCredentialReply(lease._renewed_ms_ago(), [])},
    ],
    ids=["silence counts as an answer", "answers hold for too long", "revoked devices are not named"],
)
def test_the_simulation_notices_a_lease_that_is_prolonged_wrongly(
    forgotten: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, wrong in forgotten.items():
        monkeypatch.setattr(OwnLeaseValidityService, name, wrong)
    with pytest.raises(Violation):
        for seed in range(100):
            ClusterSimulation(seed).run()
