"""Which devices and executions a caller sees."""

from __future__ import annotations

import pytest

from domain.grants.model import GrantSubject
from domain.kernel.caller import Role
from domain.kernel.errors import NotFound
from support.device_world import DeviceWorld


class TestControl:
    async def test_a_key_sees_only_what_a_grant_that_has_not_expired_covers(self, world: DeviceWorld) -> None:
        mine, _, old = await world.device(), await world.device(), await world.device()
        key = await world.key((mine.device_id, ["ON"]))
        await world.grant(GrantSubject(key_id=key.key_id), old.device_id, ["*"], expires_ms=world.clock.now_ms())
        assert [one.device.device_id for one in (await world.control.list_devices(key)).devices] == [mine.device_id]
        assert len((await world.control.list_devices(world.session(Role.VIEWER))).devices) == 3

    async def test_executions_come_newest_first_page_by_page(self, world: DeviceWorld) -> None:
        device = await world.device()
        for cmd in ("ON", "OFF", "TOGGLE"):
            await world.commands.submit(world.session(), device.device_id, cmd)
        first = await world.control.list_executions(world.session(), device.device_id, limit=2)
        assert [one.cmd for one in first] == ["TOGGLE", "OFF"]
        second = await world.control.list_executions(
            world.session(), device.device_id, limit=2, before=(first[-1].created_ms, first[-1].seq)
        )
        assert [one.cmd for one in second] == ["ON"]

    async def test_an_execution_of_another_device_is_not_found(self, world: DeviceWorld) -> None:
        device, other = await world.device(), await world.device()
        execution = (await world.commands.submit(world.session(), device.device_id, "ON")).execution
        assert execution is not None
        with pytest.raises(NotFound):
            await world.control.get_execution(world.session(), other.device_id, execution.execution_id)
