"""What one instance tells the others arrives as it was, not at itself, and what cannot be read does no harm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from adapters.stream.cluster_bus import ClusterBus
from domain.events.model import TELEMETRY, Event, FeedFilter
from domain.feed.sharing import SharedInterest, SharedReadings
from domain.kernel.ids import AccountId, DeviceId, EventId

ACCOUNT, PUMP = AccountId("acc_1"), DeviceId("dev_1")
PAYLOAD: dict[str, Any] = {"type": TELEMETRY, "metric": "t", "value": 21.5, "valueText": None}
READING = Event(0, EventId("evt_1"), ACCOUNT, PUMP, "Pump ü", TELEMETRY, "", 5, "device", "", PAYLOAD)
READINGS = SharedReadings(7, 1_800_000_000, [READING, READING], {"a": 3})
INTEREST = SharedInterest(3, [FeedFilter(ACCOUNT, frozenset({TELEMETRY}), PUMP), FeedFilter(ACCOUNT)])


class FakeClient:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Callable[[Any], Awaitable[None]]]] = []

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        self.calls.append((subject, cb))

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        for wanted, call in self.calls:
            if wanted == subject:
                await call(SimpleNamespace(data=body, headers=headers))


async def test_readings_and_interest_arrive_as_they_were_at_the_other_instances() -> None:
    client: Any = FakeClient()
    found: list[tuple[str, str, Any]] = []
    buses = {name: ClusterBus(client, name) for name in "ab"}
    for name, bus in buses.items():
        await bus.on_readings(lambda sender, what, name=name: found.append((name, sender, what)))
        await bus.on_interest(lambda sender, what, name=name: found.append((name, sender, what)))
    await buses["a"].announce_readings(READINGS)
    await buses["b"].announce_interest(INTEREST)
    assert found == [("b", "a", READINGS), ("a", "b", INTEREST)]


async def test_a_message_of_another_version_is_skipped() -> None:
    client: Any = FakeClient()
    found: list[Any] = []
    await ClusterBus(client, "a").on_readings(lambda sender, what: found.append(what))
    await ClusterBus(client, "a").on_interest(lambda sender, what: found.append(what))
    for body in (b"", b"{", b"[]", b"{}", b'{"sequence": 1, "store_time_s": 1, "events": [{"kind": "x"}]}', b'{"version": "x"}'):
        for subject in ("latchboard.readings", "latchboard.interest"):
            await client.publish(subject, body, {})
    assert found == []
