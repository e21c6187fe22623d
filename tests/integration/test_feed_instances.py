"""Several instances on one PostgreSQL: clients of each instance receive the whole log, whichever instance wrote it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from websockets.exceptions import ConnectionClosed

from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.postgres.leadership import DeviceLeaderLock, LeadershipTakenOverError, PostgresCoordinationConnection
from app.runtime.supervisor import WorkerSupervisor
from app.workers.instances import EventLogFollower, PostgresListenerWorker
from domain.events.cursors import EventLogCursor
from domain.events.model import Event
from domain.kernel.cursors import EVENTS, Cursor
from domain.kernel.errors import Unavailable
from domain.kernel.ids import DeviceId
from support import postgres
from support.device import cancel_tasks
from support.empty_database import empty_postgres
from support.feed_world import FeedWorld, feed_world
from support.waiting import TIMEOUT_S
from support.webhook_world import ACCOUNT, WebhookWorld

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")


class RecordedChanges:
    """A `OtherInstanceEventHandler` that only records the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def enqueue(self, event: Event) -> None:
        self.events.append(event)

    async def apply(self) -> None: ...


class Instance:
    def __init__(self, feed: FeedWorld, changes: RecordedChanges) -> None:
        self.feed = feed
        self.changes = changes

    async def switch(self, device_id: DeviceId, **data: Any) -> None:
        async with self.feed.world.uow.write() as tx:
            tx.emit(self.feed.world.domain_event("relay_changed", device_id, **data))


@contextlib.asynccontextmanager
async def instance(url: str, *, populate: bool = False) -> AsyncIterator[Instance]:
    database = SqlDatabase(url, acquire_timeout_s=TIMEOUT_S)
    await database.start()
    world = WebhookWorld(database.unit_of_work, exclusive=False, followed=True)
    if populate:
        await world.populate()
    changes = RecordedChanges()
    assert world.followed is not None
    log = EventLogFollower(uow=world.uow, feed=world.followed, peer_changes=changes, wake_event=world.log_wake_event)  # type: ignore[arg-type]
    listener = PostgresCoordinationConnection(url, on_notify=world.log_wake_event.set, process_id=b"a process")
    world.followed.notify_instances = listener.request_notify
    await log.seek_to_end()
    supervisor = WorkerSupervisor([PostgresListenerWorker(listener=listener), log])
    supervisor.start()
    try:
        async with feed_world(world) as feed:
            yield Instance(feed, changes)
    finally:
        await supervisor.stop()
        await listener.close()
        await database.stop()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Instance, Instance]]:
    url = await empty_postgres()
    async with instance(url, populate=True) as here, instance(url) as there:
        yield here, there


async def test_events_of_one_instance_reach_clients_of_the_other(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    device = await here.feed.world.device()
    token = there.feed.callers.accept_token("ada")
    async with there.feed.client(f"?token={token}") as client:
        await client.next()
        await here.switch(device.device_id, number=1)
        await there.switch(device.device_id, number=2)
        assert [(await client.next())["number"] for _ in range(2)] == [1, 2]
    # It may take its own event for a peer's, if the log shows it before the commit returns; that only costs a read.
    assert [event.payload.get("number") for event in there.changes.events].count(1) == 1
    assert [event.payload.get("number") for event in here.changes.events].count(2) <= 1


async def test_an_event_that_was_passed_over_does_not_come_after_later_ones(pair: tuple[Instance, Instance]) -> None:
    """A client that may see a device from now on does not get the events before its cursor, whichever transaction wrote them."""
    here, _ = pair
    world = here.feed.world
    hidden, seen = await world.device(), await world.device()
    key_id = await world.key()
    await world.grant(key_id, seen)
    given: dict[str, Any] = {"additional_headers": {"X-Api-Key": here.feed.callers.accept_key(key_id)}}
    async with here.feed.client("", **given) as client:
        cursor = (await client.next())["cursor"]
    other = await asyncpg.connect(postgres.plain_url())
    async with other.transaction():
        await other.execute("SELECT FROM event_writers WHERE writer = 0 FOR UPDATE")
        await here.switch(hidden.device_id, number=1)  # by another writer number
    await other.close()
    await here.switch(seen.device_id, number=2)
    async with here.feed.client(f"?cursor={cursor}", **given) as client:
        await client.next()
        event = await client.next()
        assert event["number"] == 2
    await world.grant(key_id, hidden)
    async with here.feed.client(f"?cursor={event['cursor']}", **given) as client:
        await client.next()
        assert await client.is_quiet()


async def test_a_key_revoked_in_one_instance_is_closed_in_the_other(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    device = await here.feed.world.device()
    webhook = await here.feed.world.webhook("http://127.0.0.1:9/", device)
    key_id = webhook.webhook.key_id
    secret = there.feed.callers.accept_key(key_id)
    async with there.feed.client("", additional_headers={"X-Api-Key": secret}) as client:
        await client.next()
        async with here.feed.world.uow.write() as tx:
            await tx.api_keys.delete(key_id)
            tx.emit(here.feed.world.domain_event("key_deleted", None))
        assert await client.closed() == 4003


async def test_a_grant_deleted_in_one_instance_ends_access_in_the_other(pair: tuple[Instance, Instance]) -> None:
    """Events before the end of the grant are sent, events after it are not, in the order of the log."""
    here, there = pair
    seen, other = await here.feed.world.device(), await here.feed.world.device()
    key_id = await here.feed.world.key()
    await here.feed.world.grant(key_id, other)
    async with there.feed.client(f"?token={there.feed.callers.accept_key(key_id)}") as client:
        await client.next()
        reported: list[int] = []
        for turn in range(10):
            grant = await here.feed.world.grant(key_id, seen)
            await here.switch(seen.device_id, number=turn)
            await here.feed.world.revoke(grant)
            await here.switch(seen.device_id, number=-1)
            await there.switch(seen.device_id, number=-1)
            await here.switch(other.device_id, number=100 + turn)
            # A reader that lags into the next grant may see what happened before it.
            while 100 + turn not in reported:
                reported.append((await client.next())["number"])
    assert -1 not in reported
    assert [number for number in reported if number >= 100] == list(range(100, 110))


async def test_a_lost_notification_connection_loses_no_event(pair: tuple[Instance, Instance]) -> None:
    here, there = pair
    device = await here.feed.world.device()
    token = there.feed.callers.accept_token("ada")
    async with there.feed.client(f"?token={token}") as client:
        await client.next()
        for number in range(20):
            if number % 7 == 3:
                await cut_listeners()
            await here.switch(device.device_id, number=number)
        assert [(await client.next())["number"] for _ in range(20)] == list(range(20))


async def test_clients_that_come_and_go_see_exactly_the_log_that_all_instances_write(pair: tuple[Instance, Instance]) -> None:
    """Concurrent transactions of both instances, of different length; listeners disconnected; clients leaving at any time."""
    chance = random.Random(11)
    device = await pair[0].feed.world.device()
    log: list[str] = []
    """Set when it is complete. A reader is ready when it has all of it: how soon that comes depends on the machine."""
    order: dict[tuple[str, str], list[int]] = {}

    async def write(at: Instance, name: str) -> None:
        for number in range(60):
            world = at.feed.world
            async with world.uow.write() as tx:
                for part in range(chance.randrange(1, 4)):
                    tx.emit(world.domain_event("relay_changed", device.device_id, by=name, number=number * 10 + part))
                await asyncio.sleep(chance.random() / 200)

    async def follow(at: Instance, token: str) -> list[str]:
        seen: list[str] = []
        cursor = Cursor(EVENTS, (0,)).encode()
        at.feed.callers.accept_token(token)
        while not log or not set(log) <= set(seen):
            async with at.feed.client(f"?token={token}&cursor={cursor}") as client:
                with contextlib.suppress(ConnectionClosed, TimeoutError):
                    for _ in range(chance.randrange(1, 60)):
                        reply = await asyncio.wait_for(client.next(), 3)
                        cursor = reply["cursor"]
                        if reply["type"] == "relay_changed":
                            seen.append(reply["eventId"])
                            order.setdefault((token, reply["by"]), []).append(reply["number"])
                if chance.random() < 0.5:
                    client.raw.transport.abort()
        return seen

    async with asyncio.timeout(4 * TIMEOUT_S):
        following = [asyncio.create_task(follow(at, f"reader-{n}")) for n, at in enumerate((*pair, *pair))]
        cutting = asyncio.create_task(cut_now_and_then())
        await asyncio.gather(*[write(at, f"{n}") for n, at in enumerate((*pair, *pair, *pair))])
        await cancel_tasks(cutting)
        async with pair[0].feed.world.uow.read() as tx:
            log += [event.event_id for event in await tx.events.list_public_after(ACCOUNT, EventLogCursor(), 10_000)]
        seen = await asyncio.gather(*following)
    assert len(log) > 360
    assert all(sorted(one) == sorted(log) for one in seen)
    assert all(numbers == sorted(numbers) for numbers in order.values()), "what one task wrote one after the other"


async def test_the_devices_belong_to_one_instance_and_pass_to_the_next_when_its_connection_ends() -> None:
    url = await empty_postgres()
    first, second = (
        PostgresCoordinationConnection(
            url, on_notify=lambda: None, process_id=secrets.token_bytes(16), leader_lock=DeviceLeaderLock()
        )
        for _ in range(2)
    )
    await first.open()
    await second.open()
    assert (first.leader_lock.acquired.is_set(), second.leader_lock.acquired.is_set()) == (True, False)
    waiting = asyncio.create_task(second.run_until_lost())
    await asyncio.sleep(0.3)
    assert not second.leader_lock.acquired.is_set()
    await first.close()
    await asyncio.wait_for(second.leader_lock.acquired.wait(), TIMEOUT_S)
    waiting.cancel()
    await asyncio.wait([waiting])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adapters.storage.sql.postgres.leadership.REACQUIRE_TRIES", 2)
        with pytest.raises(LeadershipTakenOverError, match="wait beside the other"):
            await first.open()
    await second.close()


async def test_an_instance_that_lost_leadership_ends() -> None:
    url = await empty_postgres()
    first, second = (
        PostgresCoordinationConnection(
            url, on_notify=lambda: None, process_id=secrets.token_bytes(16), leader_lock=DeviceLeaderLock()
        )
        for _ in range(2)
    )
    await first.open()
    await second.open()
    supervisor = WorkerSupervisor([PostgresListenerWorker(listener=first)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adapters.storage.sql.postgres.leadership.REACQUIRE_TRIES", 2)
        await first.close()
        await second.leader_lock.acquire(second._connection)
        supervisor.start()
        await asyncio.wait_for(supervisor.shutdown_requested.wait(), TIMEOUT_S)
    await supervisor.stop()
    await second.close()


async def test_a_connection_that_is_lost_while_it_is_prepared_is_closed_and_said_to_be_unavailable() -> None:
    """`acquire` ends the connection's process, as a restart of PostgreSQL does."""

    class Cut(DeviceLeaderLock):
        async def acquire(self, connection: Any) -> None:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    listener = PostgresCoordinationConnection(
        await empty_postgres(), on_notify=lambda: None, process_id=b"a process", leader_lock=Cut()
    )
    with pytest.raises(Unavailable, match="LATCHBOARD_DATABASE_URL"):
        await listener.open()
    assert (listener.is_open, listener.opened) == (False, 0)
    assert listener._connection is None, "a test fails that leaves a connection open"


async def cut_listeners() -> None:
    connection = await asyncpg.connect(postgres.plain_url())
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ '^(LISTEN|SELECT 1$)'"
        )
    finally:
        connection.terminate()  # also when the test ends here


async def cut_now_and_then() -> None:
    while True:
        await asyncio.sleep(0.3)
        await cut_listeners()
