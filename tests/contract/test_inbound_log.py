"""The inbound log: what is confirmed is read in order and without gaps, and what was lost is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
from nats.js import api
from nats.js.errors import NotFoundError

from adapters.stream import jetstream as jetstream_module
from adapters.stream.jetstream import JetStreamLog
from app.config.settings import Settings
from domain.kernel.errors import Unavailable
from domain.partitions.ports import MISSING, AppendUnconfirmedError, InboundLog, InboundLogDamagedError, InboundLogEntry
from support.memory_inbound_log import MemoryInboundLog
from support.nats import NatsNodes, nats_nodes
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

PARTITIONS = 2
OWN_BYTES = jetstream_module.MAX_CACHED_BYTES
_prefixes = count(1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[NatsNodes]:
    with nats_nodes() as started:
        yield started


@pytest.fixture
async def jetstream(nodes: NatsNodes, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JetStreamLog]:
    """With waits for a busy machine: each entry is written to three disks, one after the other. A request to a node that has
    died ends by its own limit, so that it is repeated before the test gives up. It reads from the nodes as if others had appended."""
    monkeypatch.setattr(jetstream_module, "MAX_CACHED_BYTES", 0)
    monkeypatch.setattr(jetstream_module, "APPEND_TIMEOUT_S", OPERATION_TIMEOUT_S)
    monkeypatch.setattr(jetstream_module, "READ_TIMEOUT_S", OPERATION_TIMEOUT_S)
    monkeypatch.setattr(jetstream_module, "STALE_LEADER_S", 1.0)
    await nodes.wait_until_ready()
    log = JetStreamLog(nodes.servers, PARTITIONS, max_bytes=1_000_000, open_timeout_s=TIMEOUT_S, prefix=f"test{next(_prefixes)}")
    await log.open()
    yield log
    await log.close()


@pytest.fixture
def owners_jetstream(jetstream: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> JetStreamLog:
    """It reads what it appended from memory."""
    monkeypatch.setattr(jetstream_module, "MAX_CACHED_BYTES", OWN_BYTES)
    return jetstream


@pytest.fixture(params=["memory", "jetstream", "owners_jetstream"])
def log(request: pytest.FixtureRequest) -> InboundLog:
    if request.param == "memory":
        return MemoryInboundLog(PARTITIONS)
    found: JetStreamLog = request.getfixturevalue(request.param)
    return found


async def read_all(log: InboundLog, partition: int, after: int, expected: int, limit: int = 100) -> list[InboundLogEntry]:
    """Read until there are `expected` entries: a replica that is behind the leader answers without the newest ones."""
    found: list[InboundLogEntry] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < expected:
            found += await log.read(partition, after + len(found), limit - len(found), 1)
    return found


async def test_entries_are_read_in_order_from_any_position(log: InboundLog) -> None:
    positions = [await log.append(0, b"entry %d" % number, f"id-{number}") for number in range(1, 6)]
    assert positions == [1, 2, 3, 4, 5]
    assert [entry.body for entry in await read_all(log, 0, 0, 5)] == [b"entry %d" % number for number in range(1, 6)]
    assert await read_all(log, 0, 2, 2, limit=2) == [InboundLogEntry(3, b"entry 3"), InboundLogEntry(4, b"entry 4")]
    assert list(await log.read(0, 5, 10, 0.05)) == []
    assert list(await log.read(1, 0, 10, 0.05)) == []


async def test_the_ends_of_all_logs_are_told(log: InboundLog) -> None:
    await log.append(1, b"a", "a")
    await log.append(1, b"b", "b")
    assert await log.last_positions() == {0: 0, 1: 2}
    await log.trim(1, 2)
    assert await log.last_positions() == {0: 0, 1: 2}


async def test_an_entry_that_is_appended_again_is_stored_once(log: InboundLog) -> None:
    assert await log.append(0, b"a", "same") == 1
    assert await log.append(0, b"a", "same") == 1
    assert await log.append(0, b"b", "other") == 2
    assert len(await read_all(log, 0, 0, 2)) == 2


async def test_a_reader_that_waits_gets_the_next_entry(log: InboundLog) -> None:
    reading = asyncio.create_task(log.read(1, 0, 10, 10))
    await asyncio.sleep(0)
    await log.append(1, b"new", "id")
    assert list(await reading) == [InboundLogEntry(1, b"new")]


async def test_a_log_has_one_id_for_its_whole_life(log: InboundLog) -> None:
    before = await log.log_ids([0, 1])
    await log.append(0, b"x", "id")
    assert await log.log_ids([0, 1]) == before
    assert set(before) == {0, 1}


async def test_what_is_trimmed_is_noticed_by_a_reader_who_needs_it(log: InboundLog) -> None:
    for number in range(4):
        await log.append(0, b"x", f"id-{number}")
    await log.trim(0, 2)
    assert [entry.position for entry in await read_all(log, 0, 2, 2)] == [3, 4]
    with pytest.raises(InboundLogDamagedError, match="no entry 2"):
        await log.read(0, 1, 10, 1)


async def test_a_log_that_ends_before_what_was_read_is_damaged(log: InboundLog) -> None:
    await log.append(0, b"x", "id")
    with pytest.raises(InboundLogDamagedError, match="entry 9"):
        await log.read(0, 9, 10, 0.1)


async def test_the_old_state_of_a_leader_that_was_replaced_is_no_loss(
    jetstream: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await jetstream.append(0, b"x", "1")
    old, get_msg = await jetstream._stream_info(0), jetstream._js.get_msg
    stale = [old, old]
    await jetstream.append(0, b"y", "2")

    async def old_info(name: str) -> api.StreamInfo:
        return stale.pop() if len(stale) > 1 else await current(name)

    async def old_message(name: str, seq: int) -> api.RawStreamMsg:
        if stale:
            stale.pop()
            raise NotFoundError
        return await get_msg(name, seq=seq)

    current = jetstream._js.stream_info
    monkeypatch.setattr(jetstream._js, "stream_info", old_info)
    assert list(await jetstream.read(0, 2, 10, 0.1)) == []
    assert len(stale) == 1
    monkeypatch.setattr(jetstream._js, "get_msg", old_message)
    await jetstream._check_missing(0, 1)
    assert not stale


async def test_a_stream_that_was_made_again_has_another_id(jetstream: JetStreamLog) -> None:
    before = await jetstream.log_ids([0])
    await jetstream._js.delete_stream(jetstream._stream_name(0))
    assert await jetstream.log_ids([0]) == {0: MISSING}
    await jetstream._ensure_stream(0)
    assert (await jetstream.log_ids([0]))[0] not in (MISSING, before[0])


async def test_a_node_may_die_and_return_without_a_loss(nodes: NatsNodes, jetstream: JetStreamLog) -> None:
    for number in range(30):
        if number == 10:
            nodes.kill(0)
        if number == 20:
            nodes.start(0)
        await jetstream.append(0, b"%d" % number, f"id-{number}")
    entries = await read_all(jetstream, 0, 0, 30)
    assert [int(entry.body) for entry in entries] == list(range(30))


async def test_an_owner_reads_its_own_entries_without_the_nodes_and_those_of_others_in_order(
    nodes: NatsNodes, owners_jetstream: JetStreamLog
) -> None:
    other = JetStreamLog(
        nodes.servers, PARTITIONS, max_bytes=1_000_000, open_timeout_s=TIMEOUT_S, prefix=owners_jetstream._prefix
    )
    await other.open()
    try:
        await owners_jetstream.append(0, b"own 1", "a.1")
        await other.append(0, b"other 2", "b.1")
        for number in (3, 4):
            await owners_jetstream.append(0, b"own %d" % number, f"a.{number}")
        fetched: list[int] = []
        fetch = owners_jetstream._fetch

        async def counted(partition: int, after: int, limit: int) -> list[InboundLogEntry]:
            fetched.append(after)
            return await fetch(partition, after, 1)

        owners_jetstream._fetch = counted  # type: ignore[method-assign]
        found: list[InboundLogEntry] = []
        while len(found) < 4:
            found += await owners_jetstream.read(0, len(found), 10, TIMEOUT_S)
        assert [entry.body for entry in found] == [b"own 1", b"other 2", b"own 3", b"own 4"]
        assert fetched == [1]
    finally:
        await other.close()


async def test_a_position_that_is_given_twice_stops_the_partition(jetstream: JetStreamLog) -> None:
    """The log has lost what it confirmed, and has grown again before anybody looked at its end."""
    for number in range(2):
        await jetstream.append(0, b"x", f"id-{number}")
    await jetstream.append(0, b"x", "id-1")  # a repeated append of the same entry is none
    assert len(await read_all(jetstream, 0, 0, 2)) == 2
    await jetstream._js.delete_stream(jetstream._stream_name(0))
    await jetstream._ensure_stream(0)
    await jetstream.append(0, b"y", "new-1")
    with pytest.raises(InboundLogDamagedError, match="position 1 to a second entry"):
        await jetstream.read(0, 1, 10, 1)


async def test_a_log_without_nodes_is_unavailable() -> None:
    log = JetStreamLog(["nats://127.0.0.1:9"], 1, max_bytes=1_000, open_timeout_s=0.3)
    with pytest.raises(Unavailable, match="LATCHBOARD_CLUSTER"):
        await log.open()


async def test_a_full_log_grows_to_its_bound_and_no_further(nodes: NatsNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_module, "FIRST_BYTES", 100_000)
    monkeypatch.setattr(jetstream_module, "GIVE_UP_S", 0.5)
    await nodes.wait_until_ready()
    log = JetStreamLog(nodes.servers, 1, max_bytes=300_000, open_timeout_s=TIMEOUT_S, prefix=f"test{next(_prefixes)}")
    await log.open()
    try:
        for number in range(9):
            await log.append(0, b"x" * 30_000, f"id-{number}")
        with pytest.raises(AppendUnconfirmedError, match="disks have room"):
            for number in range(9, 12):
                await log.append(0, b"x" * 30_000, f"id-{number}")
        assert len(await read_all(log, 0, 0, 9)) == 9
    finally:
        await log.close()


async def test_a_log_that_the_disks_cannot_hold_says_how_much_room_it_needs(
    nodes: NatsNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream_module, "FIRST_BYTES", 2**50)
    await nodes.wait_until_ready()
    log = JetStreamLog(nodes.servers, 2, max_bytes=2**50, open_timeout_s=TIMEOUT_S, prefix=f"test{next(_prefixes)}")
    with pytest.raises(
        Unavailable, match=r"no room .* 2,097,152\.0 GiB on each node .*max_file_store.*LATCHBOARD_CLUSTER_LOG_MIB"
    ):
        await log.open()


async def test_the_log_of_a_new_cluster_fits_on_nodes_with_a_gigabyte() -> None:
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    with nats_nodes() as small:
        await small.wait_until_ready()
        max_bytes = defaults["cluster_log_mib"] * 1024 * 1024
        log = JetStreamLog(small.servers, defaults["cluster_partitions"], max_bytes=max_bytes, open_timeout_s=TIMEOUT_S)
        await log.open()
        await log.close()
