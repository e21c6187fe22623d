"""What one instance tells the others arrives as it was, not at itself, and what cannot be read does no harm; and which nodes make the log
unsafe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from nats.errors import NoRespondersError

from adapters.stream.bus import NatsClusterBus
from adapters.stream.jetstream import check_node, find_unsafe
from domain.events.feed_model import FeedFilter
from domain.events.model import TELEMETRY, Event
from domain.feed.interest import PeerFeedInterestMessage, PeerFeedReadingsMessage
from domain.kernel.ids import AccountId, DeviceId, EventId
from domain.partitions.ports import PeerLeaseAndCredentialQuery, PeerLeaseAndCredentialReply

ACCOUNT, PUMP = AccountId("acc_1"), DeviceId("dev_1")
PAYLOAD: dict[str, Any] = {"type": TELEMETRY, "metric": "t", "value": 21.5, "valueText": None}
READING = Event(0, EventId("evt_1"), ACCOUNT, PUMP, "Pump ü", TELEMETRY, "", 5, "device", "", PAYLOAD)
READINGS = PeerFeedReadingsMessage(7, 1_800_000_000, [READING, READING], {"a": 3})
INTEREST = PeerFeedInterestMessage(3, [FeedFilter(ACCOUNT, frozenset({TELEMETRY}), PUMP), FeedFilter(ACCOUNT)])


class FakeClient:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Callable[[Any], Awaitable[None]]]] = []
        self.is_connected = True

    def new_inbox(self) -> str:
        return f"inbox-{len(self.calls)}"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> Any:
        self.calls.append((subject, cb))

        async def unsubscribe() -> None:
            self.calls.remove((subject, cb))

        return SimpleNamespace(unsubscribe=unsubscribe)

    async def request(self, subject: str, timeout: float) -> Any:
        answers: list[bytes] = []

        async def respond(body: bytes) -> None:
            answers.append(body)

        for wanted, call in self.calls:
            if wanted == subject:
                await call(SimpleNamespace(respond=respond))
        if not answers:
            raise NoRespondersError
        return SimpleNamespace(data=answers[0])

    async def publish(self, subject: str, body: bytes, headers: dict[str, str], reply: str = "") -> None:
        for wanted, call in list(self.calls):
            if wanted == subject:
                await call(SimpleNamespace(data=body, headers=headers, reply=reply))


async def test_readings_and_interest_arrive_as_they_were_at_the_other_instances() -> None:
    client: Any = FakeClient()
    found: list[tuple[str, str, Any]] = []
    buses = {name: NatsClusterBus(client=client, instance=name) for name in "ab"}
    for name, bus in buses.items():
        await bus.on_readings(lambda sender, what, name=name: found.append((name, sender, what)))
        await bus.on_interest(lambda sender, what, name=name: found.append((name, sender, what)))
    await buses["a"].announce_readings(READINGS)
    await buses["b"].announce_interest(INTEREST)
    assert found == [("b", "a", READINGS), ("a", "b", INTEREST)]


async def test_readings_are_not_kept_for_later_while_there_is_no_connection() -> None:
    client: Any = FakeClient()
    found: list[int] = []
    buses = [NatsClusterBus(client=client, instance=name) for name in "ab"]
    await buses[1].on_readings(lambda _, what: found.append(what.sequence))
    for number, is_connected in enumerate((True, False, True)):
        client.is_connected = is_connected
        await buses[0].announce_readings(PeerFeedReadingsMessage(number, 0, [READING]))
    assert found == [0, 2]


async def test_of_the_called_instances_those_without_a_lease_and_those_without_a_connection_are_gone() -> None:
    client: Any = FakeClient()
    has_lease = {"a": True, "b": False}
    for name in has_lease:
        await NatsClusterBus(client=client, instance=name).answer_calls(lambda name=name: has_lease[name])
    assert await NatsClusterBus(client=client, instance="c").find_gone({"a", "b", "d"}) == {"b", "d"}


async def test_every_instance_answers_for_its_lease_the_asking_one_too_and_who_is_missing_is_not_waited_for_long() -> None:
    client: Any = FakeClient()
    buses = {name: NatsClusterBus(client=client, instance=name) for name in "ab"}
    asked: list[PeerLeaseAndCredentialQuery] = []

    def answer(question: PeerLeaseAndCredentialQuery, name: str) -> PeerLeaseAndCredentialReply:
        asked.append(question)
        return PeerLeaseAndCredentialReply(7, [f"dev_{name}"])

    for name, bus in buses.items():
        await bus.answer_leases(lambda question, name=name: answer(question, name))
    found = await buses["a"].poll_leases(PeerLeaseAndCredentialQuery(1_500), {"a", "b", "gone"})
    assert found == {name: PeerLeaseAndCredentialReply(7, [f"dev_{name}"]) for name in "ab"}
    assert asked == [PeerLeaseAndCredentialQuery(1_500)] * 2
    assert len(client.calls) == 2  # its inbox is closed


async def test_a_message_of_another_version_is_skipped() -> None:
    client: Any = FakeClient()
    found: list[Any] = []
    await NatsClusterBus(client=client, instance="a").on_readings(lambda sender, what: found.append(what))
    await NatsClusterBus(client=client, instance="a").on_interest(lambda sender, what: found.append(what))
    for body in (b"", b"{", b"[]", b"{}", b'{"sequence": 1, "store_time_s": 1, "events": [{"kind": "x"}]}', b'{"version": "x"}'):
        for subject in ("latchboard.readings", "latchboard.interest"):
            await client.publish(subject, body, {})
    assert found == []


SAFE = {"version": "2.12.1", "jetstream": {"config": {"sync_always": True}}, "cluster": {"name": "x"}}


def test_a_node_is_safe_if_it_writes_to_its_disk_at_once_and_is_in_a_cluster() -> None:
    assert check_node("http://a", SAFE) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": "2.11.9"}, "2.12 or newer"),
        ({"jetstream": {}}, "without JetStream"),
        ({"jetstream": {"config": {"sync_interval": 120}}}, "sync_interval: always"),
        ({"cluster": {}}, "three nodes"),
    ],
)
def test_a_node_that_may_lose_what_it_confirmed_is_named(changes: dict[str, Any], named: str) -> None:
    [problem] = check_node("http://a:8222", SAFE | changes)
    assert named in problem
    assert "http://a:8222" in problem


async def test_fewer_than_three_addresses_and_nodes_that_do_not_answer_are_unsafe() -> None:
    [problem] = await find_unsafe(["http://a:8222"])
    assert "LATCHBOARD_CLUSTER_MONITOR" in problem
    assert len(await find_unsafe(["http://127.0.0.1:9"] * 3)) == 3
