"""The worker that replays dead letters: what it applies, what it leaves out, and what becomes of a letter that fails again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.workers.dead_letter_replay import IngestDeadLetterReplayWorker
from app.workers.due import WakeEvent
from domain.devices.messages import CommandResultReport, DeviceReport, RelayReport, StockFirmwareTelemetryReport
from domain.devices.model import Device
from domain.ingest.dead_letters import TELEMETRY_KIND, IngestDeadLetterService
from domain.ingest.device_messages import DecodedBatch, DecodedMessage, FollowUps
from domain.ingest.pipeline import EngineClock, EvaluatedBatch, IngestPipeline
from domain.ingest.ports import IngestDeadLetter, IngestDeadLetterState
from domain.telemetry.model import HistoryTimeRange, Reading
from domain.telemetry.reference_engine import PythonTelemetryBatch
from support.telemetry_world import TelemetryWorld


@pytest.fixture
async def world() -> TelemetryWorld:
    return await TelemetryWorld().populate()


class FakeDeviceMessages:
    """Decodes each message to `reports` and records what is applied. `errors` are raised first."""

    def __init__(self, reports: tuple[DeviceReport, ...] = (), *errors: Exception) -> None:
        self.reports, self.errors = reports, list(errors)
        self.applied: list[DeviceReport] = []

    async def decode(self, events: Any) -> DecodedBatch:
        telemetry = [
            (event.device_no, event.at_ms, report.payload)
            for event in events
            for report in self.reports
            if isinstance(report, StockFirmwareTelemetryReport)
        ]
        return DecodedBatch([DecodedMessage(event, self.reports) for event in events], telemetry)

    async def apply(self, tx: Any, messages: Any) -> FollowUps:
        if self.errors and messages:
            raise self.errors.pop(0)
        self.applied += [report for message in messages for report in message.reports]
        return FollowUps()


class Replay:
    def __init__(self, world: TelemetryWorld, messages: FakeDeviceMessages | None = None) -> None:
        self.world = world
        self.letters = IngestDeadLetterService(uow=world.uow, clock=world.clock)
        self.messages = messages or FakeDeviceMessages()
        pipeline = IngestPipeline(
            uow=world.uow,
            link=None,  # type: ignore[arg-type]
            engine=world.engine,
            engine_clock=EngineClock(engine=world.engine, clock=world.clock, on_step=lambda step_ms: None),
            make_batch=PythonTelemetryBatch.of,
            device_messages=self.messages,  # type: ignore[arg-type]
            ingest=world.ingest,
            on_devices_ready=lambda _: None,
            on_devices_subscribed=lambda _: None,
        )
        self.worker = IngestDeadLetterReplayWorker(
            dead_letters=self.letters,
            pipeline=pipeline,
            engine=world.engine,
            make_batch=PythonTelemetryBatch.of,
            engine_commit_lock=asyncio.Lock(),
            rule_timer_wake=WakeEvent(),
        )

    async def of(self, *letters: IngestDeadLetter) -> list[IngestDeadLetter]:
        """Set these aside, mark all, replay once; what is left, oldest first."""
        await self.letters.set_aside(letters)
        async with self.world.uow.write() as tx:
            await tx.dead_letters.mark_for_replay(None)
        await self.worker.run_once()
        async with self.world.uow.read() as tx:
            return list(reversed(await tx.dead_letters.list(100)))


def telemetry(device: Device, at_ms: int, **values: Any) -> IngestDeadLetter:
    return IngestDeadLetter(0, device.device_no, None, TELEMETRY_KIND, json.dumps(values).encode(), at_ms, "refused")


def message(device: Device, topic: str) -> IngestDeadLetter:
    return IngestDeadLetter(0, device.device_no, None, topic, b"{}", 7, "refused")


async def stored(world: TelemetryWorld, device: Device) -> Sequence[Reading]:
    span = HistoryTimeRange(0, 2**50)
    found, _ = await world.telemetry.history(world.session(), device.device_id, span, metric=None, limit=10)
    return found


async def test_replayed_telemetry_is_stored_at_its_arrival_and_drives_no_rules(world: TelemetryWorld) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device)
    arrived_ms = world.clock.now_ms()
    assert await Replay(world).of(telemetry(device, arrived_ms, temperature=99)) == []
    found = await stored(world, device)
    assert (found[0].value, found[0].at_ms) == (99, arrived_ms)
    assert await world.commands_of(device) == []
    await world.report(device, temperature=31)
    assert await world.commands_of(device) == ["OFF"], "the rules are in the engine again"


async def test_a_letter_that_is_replayed_twice_is_stored_once(world: TelemetryWorld) -> None:
    device = await world.device()
    letter = telemetry(device, world.clock.now_ms(), temperature=21)
    await Replay(world).of(letter)
    await Replay(world).of(letter)
    assert len(await stored(world, device)) == 1


async def test_results_and_readings_of_a_message_count_and_its_relay_and_state_do_not(world: TelemetryWorld) -> None:
    device = await world.device()
    result = CommandResultReport("exe_1", "done", None, True, None)
    reports = (RelayReport(True, None, None), result, StockFirmwareTelemetryReport(b'{"temperature": 5}'))
    replay = Replay(world, FakeDeviceMessages(reports))
    assert await replay.of(message(device, "result")) == []
    assert replay.messages.applied == [replace(result, relay=None), reports[2]]
    assert [one.value for one in await stored(world, device)] == [5]
    assert replay.letters.replayed == 1


async def test_a_letter_that_is_refused_again_stays_with_the_new_reason_and_the_next_is_replayed(world: TelemetryWorld) -> None:
    device = await world.device()
    replay = Replay(world, FakeDeviceMessages((), *[ValueError("still no")] * 2))
    [left] = await replay.of(message(device, "state"), telemetry(device, 8, temperature=1))
    assert (left.kind, left.state, left.reason) == ("state", IngestDeadLetterState.SET_ASIDE, "ValueError: still no")
    assert (replay.letters.replayed, replay.letters.count) == (1, 1)


async def test_the_letter_of_a_deleted_device_is_dropped_without_effect(world: TelemetryWorld) -> None:
    device = await world.device()
    replay = Replay(world)
    async with world.uow.write() as tx:
        await tx.devices.delete(device.device_id, world.clock.now_ms())
    assert await replay.of(telemetry(device, 8, temperature=1)) == []
    assert world.engine.latest(device.device_no) == []


async def test_the_rules_are_in_the_engine_again_after_a_message_that_cannot_be_evaluated(
    world: TelemetryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await world.device()
    await world.report(device, temperature=20)
    await world.rule(device)
    replay = Replay(world)

    def fail(self: Any, batch: Any, decoded: Any, assign_names: Any) -> EvaluatedBatch:
        raise ValueError("cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(IngestPipeline, "evaluate", fail)
        with pytest.raises(ValueError, match="cannot be read"):
            await replay.of(telemetry(device, 8, temperature=1))
    await world.report(device, temperature=31)
    assert await world.commands_of(device) == ["OFF"]
