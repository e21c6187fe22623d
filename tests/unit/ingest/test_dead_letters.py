"""The account is told that messages of a device were set aside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from domain.ingest.dead_letters import IngestDeadLetterService
from domain.ingest.ports import IngestDeadLetter
from domain.kernel.domain_event import DomainEvent
from support.manual_clock import ManualClock
from support.storage import NOW, open_storage, populate


class Recorder:
    def __init__(self) -> None:
        self.events: list[DomainEvent] = []

    async def dispatch(self, tx: Any, events: Sequence[DomainEvent]) -> None:
        self.events += events


async def test_at_most_once_an_hour_for_a_device(tmp_path: Path) -> None:
    clock, recorder = ManualClock(NOW), Recorder()
    async with open_storage("memory", tmp_path, recorder) as uow:
        world = await populate(uow)
        service = IngestDeadLetterService(uow=uow, clock=clock)
        letter = IngestDeadLetter(0, world.device.device_no, None, "telemetry", b"{}", NOW, "a secret of the database")
        for pause_minutes in (0, 59, 1, 1):
            clock.forward(minutes=pause_minutes)
            await service.set_aside([letter, letter])
    told = [(event.kind, event.device_id) for event in recorder.events]
    assert told == [("device_message_set_aside", world.device.device_id)] * 2
    assert not any(letter.reason in event.description for event in recorder.events)
