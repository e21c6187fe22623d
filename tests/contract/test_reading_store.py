"""The store of older readings: in memory, and ClickHouse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId
from domain.telemetry.ports import ArchivedMessageReadings, DeviceKey
from support.clickhouse import NEEDS_CHDB, ClickHouseServer, MemoryReadingStore, create_store, running_server

pytestmark = pytest.mark.clickhouse

NOW = 1_790_000_000_000
DAY_MS = 86_400_000
END = NOW + DAY_MS
_numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    yield from running_server(tmp_path_factory.mktemp("clickhouse"))


@pytest.fixture(params=["memory", pytest.param("clickhouse", marks=NEEDS_CHDB)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryReadingStore()
        return
    created = create_store(request.getfixturevalue("server"))
    yield created
    await created.close()


@pytest.fixture
def device() -> DeviceKey:
    number = next(_numbers)
    return number, DeviceId(f"dev_{number}")


def a_message(at_ms: int, digest: int = 7, **readings: Any) -> ArchivedMessageReadings:
    return ArchivedMessageReadings(at_ms, digest, None, tuple(readings.items()))


async def everything(store: Any, device: DeviceKey, *, newest_first: bool = True) -> list[ArchivedMessageReadings]:
    return list(await store.list_page(device, 0, END, 1_000, None, newest_first=newest_first))


async def test_a_message_comes_back_as_it_was(store: Any, device: DeviceKey) -> None:
    text = "grün\"'\\ {x:String}\n\t\0 🚰"
    values = {"on": True, "off": False, "whole": 5.0, "zero": -0.0, "small": 5e-324, "big": 1.7976931348623157e308, text: text}
    written = ArchivedMessageReadings(NOW, -(2**31), 86_400_000, tuple(values.items()))
    await store.add_many([(device, written)])
    [read] = await everything(store, device)
    assert (read, [repr(value) for _, value in read.readings]) == (written, [repr(value) for value in values.values()])


async def test_a_message_that_has_a_metric_twice_keeps_both(store: Any, device: DeviceKey) -> None:
    written = ArchivedMessageReadings(NOW, 1, None, (("power", 1.5), ("power", 2.5)))
    await store.add_many([(device, written)])
    assert await everything(store, device) == [written]


async def test_a_message_that_is_added_again_is_there_once(store: Any, device: DeviceKey) -> None:
    messages = [(device, a_message(NOW, digest, power=1.5)) for digest in (3, -3, 2**31 - 1)]
    for _ in range(3):
        await store.add_many(messages)
    await store.add_many([])
    assert [each.digest for each in await everything(store, device)] == [2**31 - 1, 3, -3]
    assert [each.digest for each in await store.list_page(device, 0, END, 2, None)] == [2**31 - 1, 3]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_have_every_message_once_in_the_order_of_the_keys(store: Any, device: DeviceKey, newest_first: bool) -> None:
    messages = [a_message(NOW + at // 3, at * 7 % 5 - 2, power=float(at)) for at in range(20)]
    await store.add_many([(device, each) for each in messages])
    found: list[ArchivedMessageReadings] = []
    after = None
    while page := await store.list_page(device, 0, END, 3, after, newest_first=newest_first):
        found += page
        after = page[-1].at_ms, page[-1].digest
    unique = {(each.at_ms, each.digest) for each in messages}
    assert [(each.at_ms, each.digest) for each in found] == sorted(unique, reverse=newest_first)


async def test_a_range_includes_its_start_and_excludes_its_end(store: Any, device: DeviceKey) -> None:
    await store.add_many([(device, a_message(NOW + at)) for at in range(5)])
    for newest_first, expected in ((True, [NOW + 3, NOW + 2, NOW + 1]), (False, [NOW + 1, NOW + 2, NOW + 3])):
        found = await store.list_page(device, NOW + 1, NOW + 4, 9, None, newest_first=newest_first)
        assert [each.at_ms for each in found] == expected


async def test_messages_of_many_years_are_added_at_once(store: Any, device: DeviceKey) -> None:
    """Devices without a clock send old times. What is older than the store keeps, it may drop."""
    times = [NOW - month * 30 * DAY_MS for month in range(119)]
    await store.add_many([(device, a_message(at_ms)) for at_ms in [0, *times]])
    assert [each.at_ms for each in await everything(store, device) if each.at_ms] == times


async def test_a_number_that_was_given_again_does_not_show_the_readings_of_the_other_device(
    store: Any, device: DeviceKey
) -> None:
    number, _ = device
    await store.add_many([(device, a_message(NOW))])
    assert await everything(store, (number, DeviceId("dev_other"))) == []


async def test_a_deleted_device_has_no_messages_and_others_have_theirs(store: Any, device: DeviceKey) -> None:
    number, _ = device
    other = number + 1_000, DeviceId("dev_other")
    await store.add_many([(device, a_message(NOW)), ((number, DeviceId("dev_before_the_restore")), a_message(NOW))])
    await store.add_many([(other, a_message(NOW))])
    await store.delete_device(number)
    assert await everything(store, device) == []
    assert len(await everything(store, other)) == 1
    await store.delete_device(number)


@NEEDS_CHDB
async def test_what_the_server_refuses_or_does_not_answer_is_unavailable(tmp_path: Any, device: DeviceKey) -> None:
    server = ClickHouseServer(tmp_path)
    store = create_store(server)
    calls = (
        lambda: store.add_many([(device, a_message(NOW))]),
        lambda: store.list_page(device, 0, END, 9, None),
        lambda: store.delete_device(device[0]),
    )
    for call in calls:
        with pytest.raises(Unavailable):
            await call()
    server.start()
    try:
        for call in calls:
            await call()
        server.query("DROP TABLE readings")
        for call in calls[1:]:
            with pytest.raises(Unavailable):
                await call()
            await call()  # the table is made anew
            server.query("DROP TABLE readings")
    finally:
        server.stop()
        await store.close()
