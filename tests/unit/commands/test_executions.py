"""From the outbox to the result: dispatch, results, deadlines, restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.commands.definitions import CommandDefinitionInput
from domain.commands.dispatch import CommandCrashRecovery
from domain.commands.model import ALLOWED_TRANSITIONS, Execution, ExecutionStatus
from domain.devices.link import PublishResult
from domain.devices.messages import CommandResultReport, RelayReport
from domain.devices.model import Device, FirmwareProfile
from domain.kernel.errors import Unavailable
from support.device_world import DeviceWorld
from support.waiting import TIMEOUT_S


async def send(world: DeviceWorld, device: Device, cmd: str = "ON", *, ttl_ms: int | None = None) -> Execution:
    submitted = await world.commands.submit(world.session(), device.device_id, cmd, ttl_ms=ttl_ms)
    assert submitted.execution is not None
    await world.dispatch_all()
    return await stored(world, submitted.execution)


async def stored(world: DeviceWorld, execution: Execution) -> Execution:
    async with world.uow.read() as tx:
        found = await tx.executions.find(execution.execution_id)
    assert found is not None
    return found


async def says(
    world: DeviceWorld,
    device: Device,
    execution_id: str,
    status: str,
    code: str | None = None,
    relay: bool | None = None,
    data: Any = None,
) -> None:
    await world.report(device.device_id, CommandResultReport(execution_id, status, code, relay, data))


async def relay(world: DeviceWorld, device: Device, on: bool, execution_id: str | None = None, by: str | None = None) -> None:
    await world.report(device.device_id, RelayReport(on, execution_id, by))


@asynccontextmanager
async def power_cut(**_: object) -> AsyncIterator[None]:
    raise Unavailable("power cut")
    yield


def commands_sent(world: DeviceWorld) -> list[str]:
    return [json.loads(reported.payload)["cmd"] for reported in world.link.sent]


def ids_sent(world: DeviceWorld) -> list[str]:
    return [json.loads(reported.payload)["id"] for reported in world.link.sent]


async def test_a_command_for_a_subscribed_device_is_sent_with_id_and_deadline(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    execution = await send(world, device)
    assert execution.status is ExecutionStatus.SENT
    assert execution.sent_ms == world.clock.now_ms()
    (reported,) = world.link.sent
    assert json.loads(reported.payload) == {
        "id": execution.execution_id,
        "cmd": "ON",
        "params": None,
        "exp": execution.expires_ms,
    }
    assert reported.expiry_s == 60


async def test_an_execution_is_done_when_the_device_reports_it_not_when_it_is_sent(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    execution = await send(world, device)
    await says(world, device, execution.execution_id, "ack")
    assert (await stored(world, execution)).status is ExecutionStatus.ACKED
    assert world.events_of_kind("command_result") == []
    await says(world, device, execution.execution_id, "done", relay=True, data={"watts": 3})
    done = await stored(world, execution)
    assert (done.status, done.finished_ms) == (ExecutionStatus.DONE, world.clock.now_ms())
    assert done.result == {"code": None, "relay": "ON", "data": {"watts": 3}}
    (event,) = world.events_of_kind("command_result")
    assert (event.data["status"], event.source) == ("DONE", "device")


async def test_an_error_is_a_failure_with_its_code(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    execution = await send(world, device)
    await says(world, device, execution.execution_id, "error", code="OVERHEATED")
    assert (await stored(world, execution)).status is ExecutionStatus.FAILED
    assert world.events_of_kind("command_result")[0].data["code"] == "OVERHEATED"


async def test_a_second_result_changes_nothing_and_is_counted(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    execution = await send(world, device)
    await says(world, device, execution.execution_id, "done")
    await says(world, device, execution.execution_id, "done")
    await says(world, device, execution.execution_id, "error")
    assert (await stored(world, execution)).status is ExecutionStatus.DONE
    assert len(world.events_of_kind("command_result")) == 1
    assert world.reports.ignored == {"duplicate": 1, "late": 1}


async def test_a_result_for_another_devices_command_is_ignored(world: DeviceWorld) -> None:
    device, other = await world.device(online=True), await world.device(online=True)
    execution = await send(world, device)
    await says(world, other, execution.execution_id, "done")
    await says(world, other, "exe_made_up", "done")
    assert (await stored(world, execution)).status is ExecutionStatus.SENT
    assert world.reports.ignored == {"unknown": 2}


async def test_a_result_that_arrives_before_sent_is_recorded_counts(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    submitted = (await world.commands.submit(world.session(), device.device_id, "ON")).execution
    assert submitted is not None
    await says(world, device, submitted.execution_id, "done")
    await world.dispatch_all()
    assert (await stored(world, submitted)).status is ExecutionStatus.DONE


class TestAbsence:
    async def test_queued_commands_are_sent_in_order_when_the_device_subscribes(self, world: DeviceWorld) -> None:
        device = await world.device()
        executions = [await send(world, device, cmd) for cmd in ("ON", "OFF", "TOGGLE")]
        assert {one.status for one in executions} == {ExecutionStatus.QUEUED}
        await world.connect(device.device_id)
        await world.dispatch_all()
        assert commands_sent(world) == ["ON", "OFF", "TOGGLE"]

    async def test_a_new_command_does_not_overtake_queued_ones(self, world: DeviceWorld) -> None:
        device = await world.device()
        await send(world, device, "ON")
        world.link.listening.add(device.device_id)  # it listens, but nobody has told the dispatcher yet
        await send(world, device, "OFF")
        assert commands_sent(world) == ["ON", "OFF"]
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms() + 1)

    async def test_a_command_sent_after_the_subscription_is_not_sent_twice(self, world: DeviceWorld) -> None:
        device = await world.device()
        world.link.listening.add(device.device_id)
        since_ms = world.clock.now_ms()  # it subscribes, and the news of that comes later than the next command
        world.clock.forward(1)
        await send(world, device, "ON")
        world.dispatch.on_device_ready(device.device_no, since_ms)
        await world.dispatch_all()
        assert commands_sent(world) == ["ON"]

    async def test_a_command_that_the_resumed_session_holds_is_not_sent_by_the_service_too(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        await send(world, device, "ON")
        held_until_ms = world.clock.now_ms()
        world.clock.forward(1_000)
        await send(world, device, "OFF")  # to another connection, which the session did not see
        world.clock.forward(1_000)
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms(), held_until_ms)
        await world.dispatch_all()
        assert commands_sent(world) == ["ON", "OFF", "OFF"]
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms())
        await world.dispatch_all()
        assert commands_sent(world) == ["ON", "OFF", "OFF", "ON", "OFF"], "a new session holds nothing"

    async def test_a_command_larger_than_the_device_accepts_fails_at_once(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        world.link.too_large = True
        execution = await send(world, device, "ON")
        assert execution.status is ExecutionStatus.FAILED
        assert execution.result == {"code": "TOO_LARGE_FOR_DEVICE", "relay": None, "data": None}
        assert world.link.sent == []

    async def test_a_device_that_subscribes_during_a_round_gets_its_commands_in_order(self, world: DeviceWorld) -> None:
        device = await world.device()
        await send(world, device, "ON")
        await send(world, device, "OFF")
        world.link.deaf_for = 1
        await world.connect(device.device_id)
        await world.dispatch_all()
        assert world.link.sent == []
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms() + 1)
        await world.dispatch_all()
        assert commands_sent(world) == ["ON", "OFF"]

    async def test_an_offline_device_does_not_delay_others(self, world: DeviceWorld) -> None:
        absent, present = await world.device(), await world.device(online=True)
        await send(world, absent)
        assert (await send(world, present)).status is ExecutionStatus.SENT

    async def test_a_command_that_expires_before_the_device_reconnects_is_never_sent(self, world: DeviceWorld) -> None:
        device = await world.device()
        execution = await send(world, device, ttl_ms=5_000)
        world.clock.forward(5_000)
        await world.connect(device.device_id)
        await world.dispatch_all()
        assert world.link.sent == []
        assert await world.dispatch.next_expiry_ms() == execution.expires_ms
        assert not await world.dispatch.expire_batch()
        assert (await stored(world, execution)).status is ExecutionStatus.EXPIRED
        assert world.events_of_kind("command_result")[0].data["code"] == "NOT_DELIVERED"
        assert await world.dispatch.next_expiry_ms() is None

    async def test_a_sent_command_without_an_answer_times_out(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        world.clock.forward(60_000)
        await world.dispatch.expire_batch()
        assert (await stored(world, execution)).status is ExecutionStatus.TIMED_OUT

    async def test_a_late_report_of_the_device_replaces_an_assumed_end_and_the_event_says_so(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        silent, away = await send(world, device), await world.device()
        never = await send(world, away, ttl_ms=60_000)
        world.clock.forward(60_000)
        await world.dispatch.expire_batch()
        await says(world, device, silent.execution_id, "ack")
        await says(world, device, silent.execution_id, "expired")
        assert world.reports.ignored == {"late": 2}
        await says(world, device, silent.execution_id, "done")
        await says(world, away, never.execution_id, "error", code="JAMMED")
        await says(world, device, silent.execution_id, "error")
        assert (await stored(world, silent)).status is ExecutionStatus.DONE
        assert (await stored(world, never)).status is ExecutionStatus.FAILED
        told = [(event.data["status"], event.data.get("correctedFrom")) for event in world.events_of_kind("command_result")]
        assert sorted(told, key=str) == sorted(
            [("TIMED_OUT", None), ("EXPIRED", None), ("DONE", "TIMED_OUT"), ("FAILED", "EXPIRED")], key=str
        )
        assert "DONE instead of TIMED_OUT" in world.events_of_kind("command_result")[2].description

    async def test_an_end_that_the_device_itself_reported_stays(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        await says(world, device, execution.execution_id, "expired")
        await says(world, device, execution.execution_id, "done")
        assert (await stored(world, execution)).status is ExecutionStatus.EXPIRED

    async def test_after_a_crash_only_what_was_surely_never_sent_is_told_as_expired(self, world: DeviceWorld) -> None:
        online, away = await world.device(online=True), await world.device()
        world.link.deaf_for = 1
        perhaps, never = await send(world, online, ttl_ms=60_000), await send(world, away, ttl_ms=60_000)
        assert (await stored(world, perhaps)).status is ExecutionStatus.QUEUED
        world.dispatch = world.make_dispatch()
        await CommandCrashRecovery(uow=world.uow, clock=world.clock).mark_possibly_sent()
        world.clock.forward(60_000)
        await world.dispatch.expire_batch()
        assert (await stored(world, perhaps)).status is ExecutionStatus.TIMED_OUT
        assert (await stored(world, never)).status is ExecutionStatus.EXPIRED

    async def test_what_the_instance_with_the_connection_may_have_sent_is_never_told_as_expired_by_another(
        self, world: DeviceWorld
    ) -> None:
        away, there, gone, here = [await world.device() for _ in range(4)]
        executions = [await send(world, device, ttl_ms=60_000) for device in (away, there, gone, here)]
        async with world.uow.write() as tx:
            await tx.device_sessions.attach({gone.device_no: 10}, "dead")
            await tx.device_sessions.attach({here.device_no: 10}, "this")
            await tx.device_sessions.abandon({"this"})
            await tx.device_sessions.attach({there.device_no: 10}, "other")
        world.dispatch.front = "this"
        world.link.listening.add(here.device_id)
        world.clock.forward(60_000)
        await world.dispatch.expire_batch()
        told = [(await stored(world, execution)).status.value for execution in executions]
        assert told == ["EXPIRED", "TIMED_OUT", "TIMED_OUT", "EXPIRED"]

    async def test_after_a_crash_a_queued_command_is_sent_again_unless_stock_firmware_would_run_it_twice(
        self, world: DeviceWorld
    ) -> None:
        ours, stock = await world.device(online=True), await world.device(online=True, profile=FirmwareProfile.TASMOTA)
        await world.dispatch_all()
        world.link.deaf_for = 2
        await send(world, ours, "TOGGLE")
        await send(world, stock, "TOGGLE")
        world.dispatch = world.make_dispatch()
        await CommandCrashRecovery(uow=world.uow, clock=world.clock).mark_possibly_sent()
        for device in (ours, stock):
            await world.connect(device.device_id)
        await send(world, stock, "OFF")
        assert [message.device_id for message in world.link.sent] == [ours.device_id, stock.device_id]

    async def test_a_command_that_an_external_broker_did_not_confirm_may_have_run(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        world.link.unconfirmed = True
        execution = await send(world, device)
        world.clock.forward(60_000)
        await world.dispatch.expire_batch()
        assert (await stored(world, execution)).status is ExecutionStatus.TIMED_OUT

    async def test_an_unanswered_command_is_sent_again_with_the_same_id_when_the_device_reconnects(
        self, world: DeviceWorld
    ) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        acked = await send(world, device, "OFF")
        await says(world, device, acked.execution_id, "ack")
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms() + 1)
        await world.dispatch_all()
        assert ids_sent(world) == [execution.execution_id, acked.execution_id, execution.execution_id]

    async def test_a_disabled_device_is_sent_nothing(self, world: DeviceWorld) -> None:
        device = await world.device()
        await send(world, device)
        await world.devices.toggle_enabled(world.session(), device.device_id)
        world.link.listening.add(device.device_id)
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms() + 1)
        await world.dispatch_all()
        assert world.link.sent == []


class TestRestart:
    async def test_queued_commands_are_sent_after_a_restart(self, world: DeviceWorld) -> None:
        device = await world.device()
        await send(world, device)
        world.dispatch = world.make_dispatch()
        await world.connect(device.device_id)
        await world.dispatch_all()
        assert commands_sent(world) == ["ON"]

    async def test_after_a_crash_a_sent_command_is_sent_again_with_the_same_id(
        self, world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device = await world.device(online=True)
        await world.dispatch_all()  # the first round of a start looks after the deadlines
        await world.commands.submit(world.session(), device.device_id, "ON")
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(world.uow, "write", power_cut)
            await world.dispatch_all()
        world.dispatch = world.make_dispatch()
        await world.dispatch_all()
        assert len(ids_sent(world)) == 2
        assert len(set(ids_sent(world))) == 1

    async def test_a_database_outage_does_not_cause_a_second_send(
        self, world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device = await world.device(online=True)
        await world.commands.submit(world.session(), device.device_id, "ON")
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(world.uow, "write", power_cut)
            await world.dispatch_all()
        world.dispatch.on_device_ready(device.device_no, 0)
        await world.dispatch_all()
        assert len(ids_sent(world)) == 1
        async with world.uow.read() as tx:
            [execution] = await tx.executions.page(device.device_id, limit=9)
        assert execution.status is ExecutionStatus.SENT

    async def test_a_crash_during_a_backlog_loses_no_command(self, world: DeviceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        device = await world.device()
        waited = await send(world, device, "ON")
        world.link.listening.add(device.device_id)
        await world.commands.submit(world.session(), device.device_id, "OFF")
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(world.uow, "write", power_cut)
            await world.dispatch_all()
        await world.dispatch_all()
        assert (await stored(world, waited)).status is ExecutionStatus.SENT
        assert commands_sent(world) == ["ON", "OFF"]

    async def test_a_failing_link_loses_nothing(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        world.link.broken = Unavailable("the broker is away")
        with pytest.raises(Unavailable):
            await send(world, device)
        world.link.broken = None
        await world.dispatch_all()
        assert commands_sent(world) == ["ON"]


class TestRelay:
    async def test_a_report_without_a_change_emits_no_event(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        for on in (True, True, False):
            await relay(world, device, on)
        assert [event.data["relay"] for event in world.events_of_kind("relay_changed")] == ["ON", "OFF"]
        assert {event.data["triggeredBy"] for event in world.events_of_kind("relay_changed")} == {"device"}

    async def test_a_relay_change_is_caused_by_the_command_it_names(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        key = await world.key((device.device_id, ["ON"]))
        execution = (await world.commands.submit(key, device.device_id, "ON")).execution
        assert execution is not None
        await relay(world, device, True, execution.execution_id)
        (event,) = world.events_of_kind("relay_changed")
        assert (event.data["triggeredBy"], event.source) == ("apikey", key.label)

    async def test_an_old_command_or_one_of_another_device_is_no_cause(self, world: DeviceWorld) -> None:
        device, other = await world.device(online=True), await world.device(online=True)
        execution = await send(world, device)
        await relay(world, other, True, execution.execution_id)
        world.clock.forward(3_600_000)
        await relay(world, device, True, execution.execution_id)
        assert {event.data["triggeredBy"] for event in world.events_of_kind("relay_changed")} == {"device"}

    async def test_a_result_with_a_relay_state_updates_the_relay(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        await says(world, device, execution.execution_id, "done", relay=True)
        await relay(world, device, True, execution.execution_id)
        (event,) = world.events_of_kind("relay_changed")
        assert event.data == {"relay": "ON", "channel": 1, "triggeredBy": "user"}
        assert (await world.stored(device.device_id)).relay is True

    async def test_a_relay_change_by_the_devices_schedule_is_reported_as_such(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        await relay(world, device, True, by="sched")
        assert world.events_of_kind("relay_changed")[0].data["triggeredBy"] == "schedule"


class TestStockFirmware:
    async def test_esphome_answers_with_its_state(self, world: DeviceWorld) -> None:
        device = await world.device(online=True, profile=FirmwareProfile.ESPHOME)
        execution = await send(world, device)
        await relay(world, device, True)
        assert (await stored(world, execution)).status is ExecutionStatus.DONE
        assert world.events_of_kind("relay_changed")[0].data["triggeredBy"] == "user"

    async def test_no_word_of_esphome_is_no_end_of_a_command(self, world: DeviceWorld) -> None:
        """A board that hangs must not be done because of what it said before."""
        device = await world.device(online=True, profile=FirmwareProfile.ESPHOME)
        await relay(world, device, True)
        execution = await send(world, device)
        assert execution.status is ExecutionStatus.SENT
        world.clock.ms -= 1
        await relay(world, device, True)  # said before the command was sent, read after it
        assert (await stored(world, execution)).status is ExecutionStatus.SENT
        world.clock.ms += 2
        await relay(world, device, True)
        assert (await stored(world, execution)).status is ExecutionStatus.DONE

    async def test_a_board_that_does_not_answer_questions_is_sent_commands_all_the_same(self, world: DeviceWorld) -> None:
        device = await world.device(online=True, profile=FirmwareProfile.ESPHOME)
        send_one = world.link.send

        async def refuse_questions(device_id: Any, message: Any) -> Any:
            return PublishResult.NOT_SENT if message.topic.startswith("ask/") else await send_one(device_id, message)

        world.link.send = refuse_questions  # type: ignore[method-assign]
        assert (await send(world, device)).status is ExecutionStatus.SENT

    @pytest.mark.parametrize("profile", [FirmwareProfile.TASMOTA, FirmwareProfile.ESPHOME, FirmwareProfile.SHELLY])
    async def test_a_relay_that_stayed_as_it_was_is_a_failure(self, world: DeviceWorld, profile: FirmwareProfile) -> None:
        device = await world.device(online=True, profile=profile)
        execution = await send(world, device, "OFF")
        await says(world, device, execution.execution_id, "done", relay=True)
        ended = await stored(world, execution)
        assert (ended.status, ended.result["code"]) == (ExecutionStatus.FAILED, "STATE_MISMATCH")

    async def test_tasmota_has_only_acknowledged_until_its_relay_agrees(self, world: DeviceWorld) -> None:
        device = await world.device(online=True, profile=FirmwareProfile.TASMOTA)
        execution = await send(world, device)
        await says(world, device, execution.execution_id, "done")
        assert (await stored(world, execution)).status is ExecutionStatus.ACKED
        await says(world, device, execution.execution_id, "done", relay=True)
        assert (await stored(world, execution)).status is ExecutionStatus.DONE

    async def test_toggle_is_not_resent_to_tasmota(self, world: DeviceWorld) -> None:
        device = await world.device(online=True, profile=FirmwareProfile.TASMOTA)
        await send(world, device, "TOGGLE")
        await send(world, device, "ON")
        world.dispatch.on_device_ready(device.device_no, world.clock.now_ms() + 1)
        await world.dispatch_all()
        steps = [reported.payload.decode().split(";")[0] for reported in world.link.sent]
        assert steps == ["Power1 TOGGLE", "Power1 ON", "Power1 ON"]

    async def test_a_tasmota_relay_change_is_attributed_to_the_command(self, world: DeviceWorld) -> None:
        device = await world.device(online=True, profile=FirmwareProfile.TASMOTA)
        execution = await send(world, device)
        await relay(world, device, True)
        assert world.events_of_kind("relay_changed")[0].data["triggeredBy"] == "user"
        assert (await stored(world, execution)).status is ExecutionStatus.SENT
        await says(world, device, execution.execution_id, "done")
        assert (await stored(world, execution)).status is ExecutionStatus.DONE

    async def test_a_command_that_the_firmware_cannot_express_fails_at_once(self, world: DeviceWorld) -> None:
        device = await world.device(online=True, profile=FirmwareProfile.SHELLY)
        await world.definitions.create(world.session(), device.device_id, CommandDefinitionInput("SPIN", "Spin"))
        execution = await send(world, device, "SPIN")
        assert execution.status is ExecutionStatus.FAILED
        assert world.events_of_kind("command_result")[0].data["code"] == "UNSUPPORTED"


class TestWaiting:
    async def test_waiting_returns_when_the_device_reports_the_result(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        waiting = asyncio.create_task(world.waiter.wait_for_result(execution, 5.0))
        await asyncio.sleep(0)
        await says(world, device, execution.execution_id, "done")
        assert (await waiting).status is ExecutionStatus.DONE
        assert world.outcomes.watcher_count == 0

    async def test_a_finished_execution_is_returned_without_waiting(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        await says(world, device, execution.execution_id, "done")
        requested = asyncio.create_task(world.waiter.wait_for_result(execution, 3600.0))
        assert (await asyncio.wait_for(requested, TIMEOUT_S)).status is ExecutionStatus.DONE

    async def test_after_the_timeout_the_current_state_is_returned(self, world: DeviceWorld) -> None:
        device = await world.device(online=True)
        execution = await send(world, device)
        assert (await world.waiter.wait_for_result(execution, 0.01)).status is ExecutionStatus.SENT


async def test_many_queued_commands_are_sent_in_bounded_rounds(world: DeviceWorld) -> None:
    devices = [await world.device() for _ in range(5)]
    for device in devices:
        for _ in range(50):
            await world.commands.submit(world.session(), device.device_id, "TOGGLE")
        world.link.listening.add(device.device_id)
    assert await world.dispatch.send_queued()
    assert len(world.link.sent) == 200
    await world.dispatch_all()
    assert len(set(ids_sent(world))) == len(world.link.sent) == 250


def test_a_final_state_is_final() -> None:
    for status, following in ALLOWED_TRANSITIONS.items():
        assert status.is_final is (following == frozenset())
        assert status not in following
