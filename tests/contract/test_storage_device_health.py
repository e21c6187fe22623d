"""The health of devices: what connections and measurements tell, and what was dropped."""

from __future__ import annotations

from domain.devices.model import DeviceHealth, DroppedMessages, LastDroppedMessage, LastRefusal, NewConnectionsSummary
from support.storage import NOW, StoredAccount, a_device

HOUR = 3_600_000


async def test_health_is_collected_field_by_field(world: StoredAccount) -> None:
    no = world.device.device_no
    async with world.uow.write() as tx:
        await tx.device_health.set_clock_offsets({no: -1_500})
    async with world.uow.write() as tx:
        await tx.device_health.add_connections({no: NewConnectionsSummary(2, 256)})
        await tx.device_health.set_firmware({no: "1.2.0", no + 1: "9"})
        await tx.device_health.add_connections({no: NewConnectionsSummary(1, None), no + 1: NewConnectionsSummary(1, 1024)})
    async with world.uow.write() as tx:
        await tx.device_health.add_drops(
            [
                DroppedMessages(no, "MALFORMED", 1, NOW),
                DroppedMessages(no, "BAD_VALUE", 2, NOW - 1),
                DroppedMessages(no, "QOS_2", 3, NOW - 2, "state"),
                DroppedMessages(no, "WRONG_PASSWORD", 1, NOW - 3),
                DroppedMessages(no + 2, "WRONG_PASSWORD", 1, NOW),
            ]
        )
    async with world.uow.read() as tx:
        assert await tx.device_health.list_by_numbers({no, no + 1, no + 2}) == {
            no: DeviceHealth(
                -1_500, LastDroppedMessage("MALFORMED", NOW), LastRefusal("QOS_2", NOW - 2, "state"), 2, "1.2.0", None
            ),
            no + 1: DeviceHealth(reconnects=0, firmware="9", max_packet_size=1024),
            no + 2: DeviceHealth(last_refusal=LastRefusal("WRONG_PASSWORD", NOW)),
        }
        assert dict(await tx.device_health.list_by_numbers(())) == {}


async def test_drops_are_announced_once_an_hour_and_reason(world: StoredAccount) -> None:
    no = world.device.device_no
    async with world.uow.write() as tx:
        drops = tx.device_health
        await drops.add_drops(
            [DroppedMessages(no, "A", 2, NOW), DroppedMessages(no, "B", 1, NOW), DroppedMessages(no + 1, "A", 1, NOW)]
        )
        taken = await drops.take_unannounced_drops({no}, NOW - HOUR, NOW)
        assert list(taken) == [DroppedMessages(no, "A", 2, NOW), DroppedMessages(no, "B", 1, NOW)]
        await drops.add_drops([DroppedMessages(no, "A", 3, NOW + 1)])
        assert list(await drops.take_unannounced_drops({no}, NOW - 1, NOW + 1)) == []
        await drops.add_drops([DroppedMessages(no, "A", 4, NOW + 2)])
    async with world.uow.write() as tx:
        taken = await tx.device_health.take_unannounced_drops({no}, NOW, NOW + HOUR)
        assert list(taken) == [DroppedMessages(no, "A", 7, NOW + 2)]
        assert list(await tx.device_health.take_unannounced_drops((), NOW, NOW + HOUR)) == []


async def test_nothing_is_left_of_a_deleted_device(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        gone = (await tx.devices.add(a_device(world.account.account_id, world.project.project_id))).device_no
        await tx.device_health.set_firmware({gone: "1"})
        await tx.device_health.add_drops([DroppedMessages(gone, "A", 1, NOW)])
        await tx.devices.delete_reported_data(gone)
        assert dict(await tx.device_health.list_by_numbers({gone})) == {}
        assert list(await tx.device_health.take_unannounced_drops({gone}, NOW, NOW)) == []
