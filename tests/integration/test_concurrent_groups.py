"""Two programs over one database: two people change a group at once, and neither change is lost or gets around a rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import httpx
import pytest
import pytest_asyncio

from domain.kernel.ids import DeviceId, GroupId
from support.two_instances import DATABASES, NEW_DEVICE, TwoInstances, concurrent_change, two_instances
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = count()


@pytest_asyncio.fixture(params=DATABASES, scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> AsyncIterator[TwoInstances]:
    async with two_instances(tmp_path_factory.mktemp("pair"), request.param) as made:
        yield made


async def devices(pair: TwoInstances, many: int) -> list[str]:
    """With credentials, so that they take commands."""
    rows = {"devices": [NEW_DEVICE] * many, "credentials": "NEW"}
    return [each["deviceId"] for each in (await pair.owner.send_ok("POST", "/devices/register/bulk", rows))["devices"]]


async def group(pair: TwoInstances, members: list[str]) -> str:
    body = {"name": f"Group {next(NUMBERS)}", "deviceIds": members}
    return f"/groups/{(await pair.owner.send_ok('POST', '/groups', body))['groupId']}"


async def members(pair: TwoInstances, path: str) -> set[str]:
    return {each["deviceId"] for each in (await pair.owner.send_ok("GET", path))["devices"]}


async def lock(pair: TwoInstances, tx: Any, path: str) -> GroupId:
    """As every change of a group begins."""
    group_id = GroupId(path.rpartition("/")[2])
    await tx.groups.get_for_update(pair.account.account.account_id, group_id)
    return group_id


async def test_the_second_change_of_a_group_begins_with_what_the_first_has_left(pair: TwoInstances) -> None:
    first, second, third = await devices(pair, 3)
    path = await group(pair, [first])
    change = pair.owner_at_second.send("PATCH", f"{path}/devices", {"add": [second, third], "remove": [first]})
    async with concurrent_change(pair, change) as (tx, others_come):
        group_id = await lock(pair, tx, path)
        await others_come()
        await tx.groups.remove_devices(group_id, [DeviceId(first)])
        await tx.groups.add_devices(group_id, [DeviceId(second)], "user:other", 0)
    assert await members(pair, path) == {second, third}


async def test_two_people_together_do_not_overfill_a_group(pair: TwoInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domain.groups.service.MAX_GROUP_DEVICES", 2)
    first, second, third = await devices(pair, 3)
    path = await group(pair, [first])
    change = pair.owner_at_second.send("PATCH", f"{path}/devices", {"add": [third]})
    async with concurrent_change(pair, change, 409) as (tx, others_come):
        group_id = await lock(pair, tx, path)
        await others_come()
        await tx.groups.add_devices(group_id, [DeviceId(second)], "user:other", 0)
    assert await members(pair, path) == {first, second}


async def test_nobody_joins_a_group_that_is_being_deleted(pair: TwoInstances) -> None:
    [late] = await devices(pair, 1)
    path = await group(pair, [])
    change = pair.owner_at_second.send("PATCH", f"{path}/devices", {"add": [late]})
    async with concurrent_change(pair, change, 404) as (tx, others_come):
        group_id = await lock(pair, tx, path)
        await others_come()
        await tx.groups.delete(group_id)


async def test_a_device_that_is_moved_to_another_project_does_not_join(pair: TwoInstances) -> None:
    [moving] = await devices(pair, 1)
    path = await group(pair, [])
    project = (await pair.owner.send_ok("POST", "/projects", {"name": "Greenhouse"}))["projectId"]
    for _ in range(5):
        await asyncio.gather(
            pair.owner.send("PUT", f"/devices/{moving}", {"projectId": project}),
            pair.owner_at_second.send("PATCH", f"{path}/devices", {"add": [moving]}),
        )
        assert await members(pair, path) == set(), "it moved before, or it left with its project"
        default = (await pair.owner.send_ok("GET", path))["projectId"]
        await pair.owner.send_ok("PUT", f"/devices/{moving}", {"projectId": default})


async def test_many_changes_and_commands_at_once_all_end(pair: TwoInstances) -> None:
    """Two groups with the same devices, named in opposite orders: no deadlock, no unknown error, and a report names members only."""
    everyone = await devices(pair, 6)
    left, right = await group(pair, everyone), await group(pair, everyone)
    calls: list[Any] = []
    for number, device_id in enumerate(everyone):
        here, there = (pair.owner, pair.owner_at_second) if number % 2 else (pair.owner_at_second, pair.owner)
        calls += [
            here.send("PATCH", f"{left}/devices", {"add": everyone[::-1]} if number % 3 else {"remove": everyone[:3]}),
            there.send("PATCH", f"{right}/devices", {"add": everyone} if number % 3 else {"remove": [device_id]}),
            here.send("POST", f"{left}/command", {"cmd": "STATUS"}),
            there.send("POST", f"{right}/command", {"cmd": "STATUS"}),
        ]
    async with asyncio.timeout(4 * TIMEOUT_S):
        answers: list[httpx.Response] = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers if not answer.is_success]
    assert await members(pair, left) <= set(everyone)
    assert await members(pair, right) <= set(everyone)
