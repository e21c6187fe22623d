"""The clients of every instance hear the readings that any instance stores, and resume when something was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from adapters.feed_hub import InProcessFeedHub, QueuedFeedSubscription
from app.workers import cluster_feed
from app.workers.cluster_feed import EVENTS_PER_MESSAGE, MAX_QUEUED_EVENTS, ClusterReadingFeedWorker
from app.workers.due import WakeEvent
from domain.events.feed_model import FeedFilter
from domain.events.model import TELEMETRY, Event
from domain.feed.interest import MAX_DEVICES, SILENT_AFTER_MS, PeerFeedInterestMessage, PeerFeedReadingsMessage, wanted_readings
from domain.kernel.ids import AccountId, DeviceId, EventId
from support.manual_clock import ManualClock

ACCOUNT, OTHER = AccountId("acc_1"), AccountId("acc_2")
PUMP, FAN = DeviceId("dev_pump"), DeviceId("dev_fan")


def reading(number: int, device_id: DeviceId = PUMP, account_id: AccountId = ACCOUNT) -> Event:
    payload = {"type": TELEMETRY, "deviceId": device_id, "value": number}
    return Event(0, EventId(f"evt_{number}"), account_id, device_id, "Pump", TELEMETRY, "", 0, "device", "", payload)


class Bus:
    """Delivers to all other instances at once, but what `loses` holds."""

    def __init__(self) -> None:
        self.readings: dict[str, Callable[[str, PeerFeedReadingsMessage], Any]] = {}
        self.interest: dict[str, Callable[[str, PeerFeedInterestMessage], Any]] = {}
        self.loses: Callable[[str], bool] = lambda sender: False
        self.sent: list[PeerFeedReadingsMessage] = []

    def of(self, instance: str) -> Any:
        bus = self

        class End:
            async def announce_readings(self, readings: PeerFeedReadingsMessage) -> None:
                bus.sent.append(readings)
                await bus.deliver(instance, readings, bus.readings)

            async def announce_interest(self, interest: PeerFeedInterestMessage) -> None:
                await bus.deliver(instance, interest, bus.interest)

            async def on_readings(self, call: Callable[[str, PeerFeedReadingsMessage], Any]) -> None:
                bus.readings[instance] = call

            async def on_interest(self, call: Callable[[str, PeerFeedInterestMessage], Any]) -> None:
                bus.interest[instance] = call

        return End()

    async def deliver(self, sender: str, what: Any, calls: dict[str, Callable[[str, Any], Any]]) -> None:
        if self.loses(sender):
            return
        for instance, call in list(calls.items()):
            if instance != sender and (waiting := call(sender, what)) is not None:
                await waiting


class Instance:
    def __init__(self, name: str, bus: Bus, clock: ManualClock) -> None:
        self.hub = InProcessFeedHub()
        self.interest_wake = WakeEvent()
        self.commit_lock = asyncio.Lock()
        self.worker = ClusterReadingFeedWorker(
            instance=name,
            bus=bus.of(name),
            hub=self.hub,
            clock=clock,
            interest_wake=self.interest_wake,
            commit_lock=self.commit_lock,
        )
        self._clients = ExitStack()

    def client(self, device_id: DeviceId | None = None) -> QueuedFeedSubscription:
        return self._clients.enter_context(self.hub.subscribe(FeedFilter(ACCOUNT, device_id=device_id)))

    def store(self, *events: Event) -> None:
        for event in events:
            self.hub.publish(event)
            self.worker.publish(event)


class Cluster:
    def __init__(self, count: int = 3) -> None:
        self.bus, self.clock = Bus(), ManualClock()
        self.instances = [Instance(f"i{number}", self.bus, self.clock) for number in range(count)]

    async def start(self) -> Sequence[Instance]:
        for each in self.instances:
            await self.bus.of("test").on_readings(lambda sender, readings: None)
            await each.worker.bus.on_interest(each.worker._on_interest)
            await each.worker.bus.on_readings(each.worker._on_readings)
        await self.beat()
        return self.instances

    async def beat(self) -> None:
        for each in self.instances:
            await each.worker.run_once()


def values(client: QueuedFeedSubscription) -> list[bytes]:
    return [frame.unclosed_json[-2:] for frame in client.drain()]


async def test_a_client_of_any_instance_hears_each_reading_once_in_order() -> None:
    cluster = Cluster()
    a, b, c = await cluster.start()
    clients = [each.client() for each in (a, b, c)]
    one_device = c.client(FAN)
    await cluster.beat()
    for number in range(1, 7, 2):
        a.store(reading(number), reading(number + 1, FAN))
    await cluster.beat()
    assert [[frame.unclosed_json[-2:] for frame in each.drain()] for each in clients] == [[b":%d" % n for n in range(1, 7)]] * 3
    assert values(one_device) == [b":2", b":4", b":6"]


async def test_readings_that_nobody_wants_are_not_sent_and_many_go_in_portions() -> None:
    cluster = Cluster(2)
    a, b = await cluster.start()
    client = b.client()
    await cluster.beat()
    a.store(*[reading(number, account_id=OTHER) for number in range(9)])
    assert not any(sent.events for sent in cluster.bus.sent)
    a.store(*[reading(number) for number in range(EVENTS_PER_MESSAGE + 1)])
    await cluster.beat()
    assert [len(sent.events) for sent in cluster.bus.sent if sent.events] == [EVENTS_PER_MESSAGE, 1]
    assert len(client.drain()) == EVENTS_PER_MESSAGE + 1


async def test_a_subscription_is_confirmed_after_the_others_have_stored_what_they_evaluated_without_it() -> None:
    cluster = Cluster(2)
    a, b = await cluster.start()
    b.client()
    before = a.interest_wake.set_count
    async with a.commit_lock:
        confirming = asyncio.create_task(b.worker.confirm_interest())
        beating = asyncio.create_task(a.worker.run_once())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not confirming.done()
        assert (a.interest_wake.set_count, [each.account_id for each in a.worker.filters()]) == (before + 1, [ACCOUNT])
    await asyncio.wait_for(asyncio.gather(confirming, beating), 5)


async def test_clients_resume_when_a_message_was_lost() -> None:
    cluster = Cluster(2)
    a, b = await cluster.start()
    client, kinds = b.client(), b._clients.enter_context(b.hub.subscribe(FeedFilter(ACCOUNT, frozenset({"relay_changed"}))))
    await cluster.beat()
    cluster.bus.loses = lambda sender: sender == "i0"
    a.store(reading(1))
    await a.worker.run_once()
    cluster.bus.loses = lambda sender: False
    assert not client.closing
    await a.worker.run_once()
    assert (client.closing, kinds.closing, b.worker.gaps) == (True, False, 1)
    await cluster.beat()
    assert b.worker.gaps == 1


async def test_clients_hear_nothing_of_a_new_owner_before_they_have_resumed() -> None:
    """What the last owner stored and did not send comes from the stored readings, and so before what the new owner stores."""
    cluster = Cluster(2)
    a, b = await cluster.start()
    clients = [each.client() for each in (a, b)]
    await cluster.beat()
    a.worker.on_takeover()
    a.store(reading(2))
    await a.worker.run_once()
    assert [client.closing for client in clients] == [True, True]
    assert [values(client) for client in clients] == [[], []]


async def test_clients_resume_when_an_instance_is_gone_or_has_dropped_readings() -> None:
    cluster = Cluster(2)
    a, b = await cluster.start()
    client = b.client()
    await cluster.beat()
    a.store(*[reading(number) for number in range(MAX_QUEUED_EVENTS + 1)])
    await a.worker.run_once()
    assert client.closing
    client = b.client()
    cluster.clock.forward(SILENT_AFTER_MS)
    await b.worker.run_once()
    assert client.closing
    assert a.worker.filters() != []
    cluster.clock.forward(SILENT_AFTER_MS)
    await a.worker.run_once()
    assert a.worker.filters() == []


async def test_an_instance_that_confirms_too_late_makes_the_clients_resume(monkeypatch: Any) -> None:
    monkeypatch.setattr(cluster_feed, "CONFIRM_TIMEOUT_S", 0.01)
    cluster = Cluster(2)
    a, b = await cluster.start()
    client = b.client()
    await b.worker.confirm_interest()
    assert not client.closing
    await a.worker.run_once()
    assert client.closing


def test_an_interest_is_small_whatever_the_clients_want() -> None:
    many = [FeedFilter(OTHER, device_id=DeviceId(f"dev_{number}")) for number in range(MAX_DEVICES + 1)]
    few = [
        FeedFilter(ACCOUNT, device_id=PUMP),
        FeedFilter(ACCOUNT, device_id=FAN),
        FeedFilter(ACCOUNT, frozenset({"relay_changed"})),
    ]
    only = frozenset({TELEMETRY})
    expected = [FeedFilter(ACCOUNT, only, FAN), FeedFilter(ACCOUNT, only, PUMP), FeedFilter(OTHER, only)]
    assert wanted_readings([*many, *few, *few]) == expected


async def test_what_a_sender_says_that_was_away_does_not_come_after_newer_readings_of_another() -> None:
    """It may have kept them while it had no connection; the clients read them from the store, in order."""
    cluster = Cluster(2)
    a, b = await cluster.start()
    b.client()
    await cluster.beat()
    a.store(reading(1))
    await cluster.beat()
    cluster.bus.loses = lambda sender: sender == "i0"
    cluster.clock.forward(SILENT_AFTER_MS)
    await b.worker.run_once()
    resumed = b.client()
    cluster.bus.loses = lambda sender: False
    a.store(reading(2))
    await cluster.beat()
    assert resumed.closing
    assert values(resumed) == []
