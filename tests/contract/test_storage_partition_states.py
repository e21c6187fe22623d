"""What is stored of the devices of a partition is found by the range of their hashes, and nothing of other devices."""

from __future__ import annotations

from domain.partitions.model import hash_range, partition_of
from support.storage import NOW, StoredAccount, a_device, a_rule

PARTITIONS = 3


async def devices_of(world: StoredAccount, count: int) -> dict[int, list[int]]:
    """Numbers of new devices by partition, each with an enabled rule and a disabled one."""
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with world.uow.write() as tx:
        for _ in range(count):
            device = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
            number = device.device_no
            found[partition_of(number, PARTITIONS)].append(number)
            for enabled in (True, False):
                await tx.rules.add(a_rule(world, device_id=device.device_id, device_no=number, enabled=enabled))
    assert all(len(numbers) >= 2 for numbers in found.values())
    return found


async def test_each_partition_has_the_checkpoints_rows_and_rules_of_its_devices(world: StoredAccount) -> None:
    devices = await devices_of(world, 12)
    async with world.uow.write() as tx:
        await tx.readings.upsert_checkpoints(
            [(number, NOW, b"%d" % number) for numbers in devices.values() for number in numbers[1:]]
        )
        rows = [
            (n, NOW + at, digest, b"x") for numbers in devices.values() for n in numbers for at in (-1, 0, 1) for digest in (1, 2)
        ]
        await tx.readings.add_many(rows)
        for partition, (first, *others) in devices.items():
            hashes, states = hash_range(partition, PARTITIONS), tx.partition_states
            assert list(await states.list_checkpoints(hashes)) == [(number, NOW, b"%d" % number) for number in others]
            assert [rule.device_no for rule in await states.list_enabled_rules(hashes)] == [first, *others]
            expected = sorted(row for row in rows if row[0] in (first, *others) and (row[0] == first or row[1] > NOW))
            assert list(await states.list_newer_than_checkpoint(hashes, 100, None)) == expected
            pages, after = [], None
            while page := await states.list_newer_than_checkpoint(hashes, 3, after):
                assert len(page) <= 3
                pages += page
                after = page[-1][:3]
            assert pages == expected
