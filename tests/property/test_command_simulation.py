"""Some seeds of the simulation of commands; `make simulate` runs thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from domain.commands.dispatch import CommandCrashRecovery, CommandDispatchService
from domain.kernel.life import DatabaseLife, StoredLife
from domain.schedules.recovery import LifeRecovery
from support.command_simulation import run_seeds
from support.memory_storage.cluster import MemoryDeviceConnectionRepository
from support.memory_storage.life import LIFE, MemoryLifeRepository
from support.simulated_front import Violation
from support.thoroughness import usual_or_thorough

SEEDS = usual_or_thorough(30, 1_000)
SEEDS_TO_NOTICE = 200
"""A mistake shows itself in some seeds only."""


async def test_what_may_have_run_is_never_told_as_expired_and_no_cursor_goes_on_across_a_gap() -> None:
    happened = await run_seeds(range(SEEDS))
    faults = Counter({name: happened[name] for name in ("kills", "hangs", "restores", "failovers", "resyncs")})
    assert min(faults.values()) > SEEDS / 2, faults
    assert min(happened["ran"], happened["timed_out"]) > SEEDS  # both ends are told,
    assert happened["expired"] > SEEDS / 4  # and not everything counts as possibly sent


async def _nothing(*_: Any, **__: Any) -> Any:
    return ()


async def _same_life(repository: MemoryLifeRepository, before: str, after: StoredLife) -> bool:
    """The copy is taken for the database that it replaces."""
    repository._database.writable_rows(LIFE)[1] = replace(await repository.get(), pending=after.pending)
    return True


def _front_of_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has come from another instance counts as one that was here."""

    async def attach(repository: MemoryDeviceConnectionRepository, *connected: Any) -> Any:
        await original(repository, *connected)
        return ()

    original = MemoryDeviceConnectionRepository.attach
    monkeypatch.setattr(MemoryDeviceConnectionRepository, "attach", attach)


def _forget(owner: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, _nothing)


def _keep_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryLifeRepository, "renew", _same_life)


def _believe_every_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        DatabaseLife, "is_unannounced", lambda life, found, *, went_back: found.life == life.current and went_back
    )


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the holder of the connection is not asked": _forget(CommandDispatchService, "_list_held_elsewhere"),
    "what a killed process may have sent is not marked": _forget(CommandCrashRecovery, "mark_possibly_sent"),
    "what the instance before may have sent is not marked": _front_of_the_latest,
    "what waits in an older copy is not marked": _forget(LifeRecovery, "_mark_queued"),
    "an older copy keeps its life": _keep_life,
    "a copy from before the last failover counts as a life of its own": _believe_every_life,
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
async def test_the_simulation_notices_a_mistake(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Violation):
        await run_seeds(range(SEEDS_TO_NOTICE))
