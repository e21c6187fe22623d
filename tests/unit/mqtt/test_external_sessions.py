"""Which sessions at an external broker exist, who holds them, and what keeps messages until their device is known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.mqtt import external_inbound
from adapters.mqtt.external_connection import MosquittoConnectionSettings
from adapters.mqtt.external_inbound import UnknownDeviceMessageBuffer
from adapters.mqtt.external_sessions import TELEMETRY_SESSIONS, sessions_of, shared_by_cluster, whole_fleet
from domain.devices.broker_auth import BrokerAction, ExternalBrokerAuthService, ServiceBrokerLogin
from domain.partitions.model import assign

SETTINGS = MosquittoConnectionSettings("127.0.0.1", 1883, "latchboard", "secret")


@pytest.mark.parametrize("partitions", [1, 8, 64])
@pytest.mark.parametrize("instances", [1, 2, 5])
def test_each_session_of_a_cluster_has_one_holder(partitions: int, instances: int) -> None:
    owners = assign(partitions, frozenset(f"instance-{number}" for number in range(instances)))
    held = [sessions_of([each for each, owner in enumerate(owners) if owner == name]) for name in set(owners)]
    assert sorted(number for each in held for number in each) == list(range(len(shared_by_cluster(SETTINGS, partitions))))


def test_a_cluster_reads_every_topic_once_and_shares_only_telemetry() -> None:
    [single] = whole_fleet(SETTINGS)
    main, *telemetry = shared_by_cluster(SETTINGS, 64)
    assert len(telemetry) == TELEMETRY_SESSIONS
    assert {each.filters for each in telemetry} == {("$share/latchboard/devices/+/telemetry",)}
    assert sorted([*main.filters, *main.left_filters(main.filters)]) == sorted(single.filters)
    assert len({each.client_id for each in (main, *telemetry)}) == 1 + TELEMETRY_SESSIONS
    assert main.client_id == single.client_id


def test_at_a_broker_that_forgets_shared_subscriptions_one_session_reads_every_topic() -> None:
    [single] = whole_fleet(SETTINGS)
    main, *telemetry = shared_by_cluster(SETTINGS, 8)
    assert main.unshared_filters == single.filters
    for each in telemetry:
        assert each.unshared_filters == ()
        assert each.left_filters(()) == ["$share/latchboard/devices/+/telemetry"]


async def test_a_broker_that_asks_lets_the_service_subscribe_to_its_sessions_and_nothing_else() -> None:
    access: Any = ExternalBrokerAuthService(uow=None, vault=None, service=ServiceBrokerLogin("latchboard", "secret"))  # type: ignore[arg-type]
    for session in shared_by_cluster(SETTINGS, 1):
        for topic in session.filters:
            assert await access.may_use_topic("latchboard", BrokerAction.SUBSCRIBE, topic)
    for topic in ("$share/other/devices/+/telemetry", "$share/latchboard/#", "#", "$SYS/#"):
        assert not await access.may_use_topic("latchboard", BrokerAction.SUBSCRIBE, topic)


async def test_early_messages_wait_for_their_device_and_expire_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_inbound, "WAIT_S", 0.0)
    monkeypatch.setattr(external_inbound, "MAX_MESSAGES", 3)
    expired: asyncio.Queue[Any] = asyncio.Queue()
    early = UnknownDeviceMessageBuffer(on_expired=expired.put_nowait)
    assert [early.keep(device, (number, None)) for number, device in enumerate(("a", "b", "a", "a"))] == [True, True, True, False]
    assert early.take("a") == [(0, None), (2, None)]
    assert early.take("a") == ()
    assert await asyncio.wait_for(expired.get(), 10) == (1, None)
    assert early.keep("b", (4, None))
    early.close()
    await asyncio.sleep(0)
    assert expired.empty()
