from __future__ import annotations

import pytest

from domain.devices.erasure import BATCH_ROWS, TOMBSTONE_RETENTION_MS, DeviceErasureService
from domain.devices.model import TRANSITIONS, DeviceLifecycleAction, DeviceStatus, FirmwareProfile
from domain.devices.registration import DeviceRegistrationInput
from domain.kernel.caller import Role
from domain.kernel.errors import Conflict, NotFound, PermissionDenied, Unavailable, VersionMismatch
from domain.kernel.ids import ProjectId
from domain.telemetry.ports import MessageKey
from support.device_world import DeviceWorld
from support.memory_storage.telemetry import MemoryReadingRepository


async def at_once() -> None:
    pass


async def test_a_registered_device_is_pending_in_the_default_project_without_credentials(world: DeviceWorld) -> None:
    device = await world.devices.register(world.session(), DeviceRegistrationInput("Pump", "ESP32", "PUMP"))
    found = await world.devices.get(world.session(), device.device_id)
    assert found.device.status is DeviceStatus.PENDING
    assert not found.device.is_active
    assert found.project.name == "Default"
    assert world.link.admitted == {}
    assert [event.device_id for event in world.events_of_kind("device_registered")] == [device.device_id]


@pytest.mark.parametrize(
    ("board", "app", "profile"),
    [
        ("ESP32", "PUMP", FirmwareProfile.NATIVE),
        ("Sonoff Basic R2", "RELAY", FirmwareProfile.TASMOTA),
        ("ESP8266", "Tasmota", FirmwareProfile.TASMOTA),
        ("Shelly Plus 1", "RELAY", FirmwareProfile.SHELLY),
        ("ESP32", "ESPHome", FirmwareProfile.ESPHOME),
    ],
)
async def test_the_profile_is_found_from_board_and_application(
    world: DeviceWorld, board: str, app: str, profile: FirmwareProfile
) -> None:
    assert (await world.device(active=False, board_type=board, app_type=app)).profile is profile


async def test_a_viewer_registers_nothing(world: DeviceWorld) -> None:
    with pytest.raises(PermissionDenied):
        await world.devices.register(world.session(Role.VIEWER), DeviceRegistrationInput("Pump", "ESP32", "PUMP"))


async def test_an_unknown_project_is_refused(world: DeviceWorld) -> None:
    with pytest.raises(NotFound):
        await world.devices.register(
            world.session(), DeviceRegistrationInput("Pump", "ESP32", "PUMP", project_id=ProjectId("prj_nowhere"))
        )


async def test_credentials_make_a_device_active_and_let_it_in_with_that_password(world: DeviceWorld) -> None:
    device = await world.device(active=False)
    made = await world.credentials.generate(world.session(), device.device_id)
    assert (await world.stored(device.device_id)).status is DeviceStatus.ACTIVE
    assert world.link.admitted[device.device_id] == (device.device_no, made.password, "native")
    assert made.password in made.config_block
    assert made.password not in repr(made)
    assert world.readmitted == [device.device_id]


async def test_credentials_are_replaced_only_on_request(world: DeviceWorld) -> None:
    device = await world.device()
    with pytest.raises(Conflict) as refused:
        await world.credentials.generate(world.session(), device.device_id)
    assert refused.value.code == "CREDENTIALS_EXIST"
    before = world.link.admitted[device.device_id]
    await world.credentials.generate(world.session(), device.device_id, rotate=True)
    assert world.link.admitted[device.device_id] != before


async def test_rotating_a_disabled_device_does_not_let_it_in(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.toggle_enabled(world.session(), device.device_id)
    await world.credentials.generate(world.session(), device.device_id, rotate=True)
    assert (await world.stored(device.device_id)).status is DeviceStatus.DISABLED
    assert device.device_id not in world.link.admitted


async def test_revoking_destroys_the_secret_shuts_out_and_says_offline(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    revoked = await world.credentials.revoke(world.session(), device.device_id)
    assert revoked.status is DeviceStatus.REVOKED
    assert world.link.expelled == [device.device_id]
    assert [event.data["reason"] for event in world.events_of_kind("device_offline")] == ["revoked"]
    async with world.uow.read() as tx:
        assert await tx.credentials.get_for_update(device.device_id) is None


async def test_a_revocation_is_repeated_after_the_link_failed(world: DeviceWorld) -> None:
    device = await world.device()
    world.link.broken = Unavailable("the broker is away")
    assert (await world.credentials.revoke(world.session(), device.device_id)).status is DeviceStatus.REVOKED
    assert len(world.admission.pending) == 1
    assert not await world.admission.retry_pending()
    world.link.broken = None
    assert await world.admission.retry_pending()
    assert world.link.expelled == [device.device_id]


async def test_a_late_sync_sends_the_present_state(world: DeviceWorld) -> None:
    device = await world.device()
    world.link.broken = OSError("connection refused")
    await world.credentials.revoke(world.session(), device.device_id)
    await world.credentials.generate(world.session(), device.device_id)
    world.link.broken = None
    assert await world.admission.retry_pending()
    assert device.device_id in world.link.admitted
    assert world.link.expelled == []


async def test_a_start_admits_every_active_device_and_no_other(world: DeviceWorld) -> None:
    active = await world.device()
    disabled = await world.device()
    await world.devices.toggle_enabled(world.session(), disabled.device_id)
    await world.device(active=False)
    world.link.admitted.clear()
    assert await world.make_admission().sync_all() == 1
    assert list(world.link.admitted) == [active.device_id]


async def test_toggle_disables_and_enables_and_refuses_a_pending_device(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    assert (await world.devices.toggle_enabled(world.session(), device.device_id)).status is DeviceStatus.DISABLED
    assert device.device_id not in world.link.admitted
    assert (await world.devices.toggle_enabled(world.session(), device.device_id)).status is DeviceStatus.ACTIVE
    assert device.device_id in world.link.admitted
    pending = await world.device(active=False)
    with pytest.raises(Conflict) as refused:
        await world.devices.toggle_enabled(world.session(), pending.device_id)
    assert refused.value.code == "DEVICE_STATE"


async def test_an_update_with_an_old_version_is_stale(world: DeviceWorld) -> None:
    device = await world.device()
    after = await world.devices.update(world.session(), device.device_id, {"name": "A"}, version=device.version)
    assert after.version == (await world.stored(device.device_id)).version
    with pytest.raises(VersionMismatch):
        await world.devices.update(world.session(), device.device_id, {"name": "B"}, version=device.version)
    assert (await world.stored(device.device_id)).name == "A"


async def test_an_update_changes_only_what_it_names(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.update(world.session(), device.device_id, {"location": "Cellar", "tags": ("a",)})
    await world.devices.update(world.session(), device.device_id, {"description": "Sump"})
    about = (await world.stored(device.device_id)).about
    assert (about.location, about.tags, about.description) == ("Cellar", ("a",), "Sump")


async def test_a_changed_profile_is_passed_to_the_link(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.update(world.session(), device.device_id, {"profile": FirmwareProfile.TASMOTA})
    assert world.link.admitted[device.device_id][2] == "tasmota"


async def test_a_deleted_device_is_gone_with_its_connection_and_its_readings_follow(world: DeviceWorld) -> None:
    device = await world.device(online=True)
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, at, 0, b"x") for at in range(BATCH_ROWS + 1)])
        await tx.rollups.upsert([(device.device_no, hour, b"") for hour in range(3)])
        await tx.due_rollups.mark([(device.device_no, 4)], 1)
    await world.devices.delete(world.session(), device.device_id)
    with pytest.raises(NotFound):
        await world.devices.get(world.session(), device.device_id)
    assert (await world.control.list_devices(world.session())).devices == []
    assert world.link.expelled == [device.device_id]
    assert world.deleted == [device.device_no]
    assert len(world.events_of_kind("device_deleted")) == 1
    await world.erasure.erase_pending(at_once)
    assert await left_of(world, device.device_no) == 0


async def test_each_batch_of_its_readings_begins_where_the_last_one_ended(
    world: DeviceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins: list[object] = []
    delete = MemoryReadingRepository.delete_next_batch

    async def recorded(self: MemoryReadingRepository, device_no: int, limit: int, after: MessageKey | None) -> object:
        begins.append(after)
        return await delete(self, device_no, limit, after)

    monkeypatch.setattr(MemoryReadingRepository, "delete_next_batch", recorded)
    device = await world.device()
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, at, 7, b"x") for at in range(2 * BATCH_ROWS)])
    await world.devices.delete(world.session(), device.device_id)
    await world.erasure.erase_pending(at_once)
    *batches, at_the_end = begins
    assert batches == [None, (BATCH_ROWS - 1, 7), (2 * BATCH_ROWS - 1, 7)]
    assert at_the_end is None  # also what was stored meanwhile with an earlier time


async def left_of(world: DeviceWorld, device_no: int) -> int:
    async with world.uow.read() as tx:
        readings = len(await tx.readings.list_between(device_no, 0, 10**15, 10))
        rollups = len(await tx.rollups.list_between(device_no, 0, 10**15, 10))
        values = len(await tx.readings.list_device_metrics(device_no)) + sum(
            row[0] == device_no for row in await tx.readings.list_checkpoints()
        )
        return readings + rollups + values + len(await tx.due_rollups.list_hours(device_no, 0, 10**15))


async def test_what_a_deleted_device_had_on_its_way_does_not_stay(world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.delete(world.session(), device.device_id)
    again_ms = await world.erasure.erase_pending(at_once)
    async with world.uow.write() as tx:
        await tx.readings.add_many([(device.device_no, 5, 0, b"late")])
        await tx.readings.assign_metric_numbers(["temperature"])
        await tx.readings.upsert_device_metrics([(device.device_no, 1, None)])
        await tx.readings.upsert_checkpoints([(device.device_no, 5, b"late")])
        await tx.due_rollups.mark([(device.device_no, 0)], 1)
    assert again_ms == world.clock.now_ms() + TOMBSTONE_RETENTION_MS
    world.clock.forward(TOMBSTONE_RETENTION_MS)
    assert await world.erasure.erase_pending(at_once) is None
    assert await left_of(world, device.device_no) == 0
    assert world.deleted == [device.device_no, device.device_no]


async def test_a_tombstone_stays_until_the_other_store_has_deleted_the_readings_and_holds_no_other_up(world: DeviceWorld) -> None:
    first, second = await world.device(), await world.device()
    refusing, erased = {first.device_no}, []

    async def erase_elsewhere(device_no: int) -> None:
        if device_no in refusing:
            raise Unavailable("away")
        erased.append(device_no)

    erasure = DeviceErasureService(
        uow=world.uow, clock=world.clock, wake=lambda: None, on_deleted=lambda _: None, erase_elsewhere=erase_elsewhere
    )
    for device in (first, second):
        await world.devices.delete(world.session(), device.device_id)
        async with world.uow.write() as tx:
            await tx.readings.add_many([(device.device_no, 5, 0, b"late")])
    world.clock.forward(TOMBSTONE_RETENTION_MS)
    with pytest.raises(Unavailable):
        await erasure.erase_pending(at_once)
    assert [await left_of(world, device.device_no) for device in (first, second)] == [0, 0]
    async with world.uow.read() as tx:
        assert [number for number, _ in await tx.devices.list_tombstones()] == [first.device_no]
    refusing.clear()
    assert await erasure.erase_pending(at_once) is None
    assert erased == [second.device_no, first.device_no]


async def test_a_device_with_very_many_commands_is_gone_at_once_and_erased_by_the_worker(world: DeviceWorld) -> None:
    device = await world.device()

    async def slow(*_: object) -> bool:
        return False

    world.erasure.erase, erase = slow, world.erasure.erase  # type: ignore[method-assign]
    await world.devices.delete(world.session(), device.device_id)
    with pytest.raises(NotFound):
        await world.devices.get(world.session(), device.device_id)
    world.erasure.erase = erase  # type: ignore[method-assign]
    await world.erasure.erase_pending(at_once)
    async with world.uow.read() as tx:
        assert await tx.devices.find(device.device_id) is None


async def test_a_crash_while_deleting_is_taken_up_at_the_next_start(world: DeviceWorld) -> None:
    device = await world.device()

    async def crash(*_: object) -> bool:
        raise RuntimeError("power cut")

    world.erasure.erase, erase = crash, world.erasure.erase  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await world.devices.delete(world.session(), device.device_id)
    world.erasure.erase = erase  # type: ignore[method-assign]
    await world.erasure.erase_pending(at_once)
    assert world.deleted[0] == device.device_no


@pytest.mark.parametrize("status", [one for one in DeviceStatus if one is not DeviceStatus.DELETING])
def test_every_state_can_be_revoked_and_deleted(status: DeviceStatus) -> None:
    assert TRANSITIONS[(status, DeviceLifecycleAction.REVOKE)] is DeviceStatus.REVOKED
    assert TRANSITIONS[(status, DeviceLifecycleAction.DELETE)] is DeviceStatus.DELETING


def test_nothing_leads_back_out_of_a_deletion() -> None:
    assert not [key for key in TRANSITIONS if key[0] is DeviceStatus.DELETING]


async def test_a_member_cannot_take_a_device_off_its_type(world: DeviceWorld) -> None:
    made = await world.types.create(world.session(), "Pump", [])
    device = await world.device(device_type_id=made.device_type.device_type_id)
    with pytest.raises(PermissionDenied):
        await world.devices.update(world.session(Role.MEMBER), device.device_id, {"device_type_id": None})
