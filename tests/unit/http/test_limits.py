"""Which HTTP connection makes room, and which address is refused for a while."""

from __future__ import annotations

import ipaddress
from typing import Any

from adapters.http.server.limits import AddressBans, HttpConnectionLimiter, HttpConnectionPhase, TrackedHttpConnection

PROXY = "10.0.0.1"
SHORT: dict[str, Any] = {"total": 3, "per_address": 2, "unlimited": (ipaddress.ip_network(PROXY),)}


class Client:
    def __init__(self) -> None:
        self.is_aborted = False
        self.waits = False

    def abort(self) -> None:
        self.is_aborted = True

    def waits_for_client(self) -> bool:
        return self.waits


class World:
    def __init__(self, **limits: Any) -> None:
        self.now = 0.0
        self.limiter = HttpConnectionLimiter(bans=AddressBans(ban_after=2), **(limits or SHORT), clock=lambda: self.now)

    def open(
        self, address: str, state: HttpConnectionPhase = HttpConnectionPhase.PENDING
    ) -> tuple[TrackedHttpConnection, Client]:
        client = Client()
        connection = self.limiter.open(address, client)
        assert connection is not None
        self.limiter.set_state(connection, state)
        return connection, client

    def fail(self, address: str) -> None:
        connection, _ = self.open(address)
        connection.has_failed = True
        self.limiter.close(connection)

    def is_refused(self, address: str) -> bool:
        return self.limiter.open(address, Client()) is None


def test_a_newcomer_takes_the_place_of_the_oldest_silent_one_of_the_address_that_holds_most() -> None:
    world = World()
    _, of_another = world.open("192.0.2.1")
    _, oldest = world.open("192.0.2.2")
    _, younger = world.open("192.0.2.2")
    world.open("192.0.2.3")
    assert (of_another.is_aborted, oldest.is_aborted, younger.is_aborted) == (False, True, False)
    assert world.limiter.evicted["pending"] == 1


def test_silent_ones_go_before_idle_ones_and_those_before_ones_that_keep_the_service_waiting() -> None:
    world = World(total=3)
    _, stalled = world.open("192.0.2.1", HttpConnectionPhase.ACTIVE)
    stalled.waits = True
    _, idle = world.open("192.0.2.2", HttpConnectionPhase.IDLE)
    _, silent = world.open("192.0.2.3")
    gone = []
    for _ in range(3):
        world.open("192.0.2.4", HttpConnectionPhase.ACTIVE)
        gone.append((silent.is_aborted, idle.is_aborted, stalled.is_aborted))
    assert gone == [(True, False, False), (True, True, False), (True, True, True)]
    assert world.is_refused("192.0.2.5"), "nobody is closed in the middle of a request"


def test_an_address_has_its_share_and_a_proxy_has_none_of_its_own() -> None:
    world = World()
    for _ in range(2):
        world.open("192.0.2.1", HttpConnectionPhase.ACTIVE)
    assert world.is_refused("192.0.2.1")
    assert world.limiter.refused == {"address_full": 1}
    assert not world.is_refused("192.0.2.2")
    proxied = World()
    for _ in range(3):
        proxied.open(PROXY, HttpConnectionPhase.ACTIVE)
    assert proxied.is_refused(PROXY)
    assert proxied.limiter.refused == {"full": 1}


def test_addresses_of_one_ipv6_subscriber_count_as_one() -> None:
    world = World()
    for last in range(2):
        world.open(f"2001:db8:1:2::{last}", HttpConnectionPhase.ACTIVE)
    assert world.is_refused("2001:db8:1:2:ffff::1")
    assert not world.is_refused("2001:db8:1:3::1")


def test_an_address_that_only_fails_is_refused_for_a_time_that_doubles() -> None:
    world = World()
    world.fail("192.0.2.1")
    for pause_s in (1, 2, 4):
        world.fail("192.0.2.1")
        assert world.is_refused("192.0.2.1")
        assert not world.is_refused("192.0.2.9")
        world.now += pause_s - 0.01
        assert world.is_refused("192.0.2.1")
        world.now += 0.01
    assert world.limiter.banned_count() == 0


def test_a_request_protects_an_address_for_a_day_and_a_proxy_is_never_refused() -> None:
    world = World()
    connection, _ = world.open("192.0.2.1")
    world.limiter.record_request(connection)
    world.limiter.close(connection)
    for _ in range(5):
        world.fail("192.0.2.1")
        world.fail(PROXY)
    assert world.limiter.banned_count() == 0
    world.now += 25 * 3600
    for _ in range(2):
        world.fail("192.0.2.1")
    assert world.limiter.banned_count() == 1


def test_the_counts_of_open_connections_add_up() -> None:
    world = World()
    world.open("192.0.2.1", HttpConnectionPhase.IDLE)
    connection, _ = world.open("192.0.2.2", HttpConnectionPhase.ACTIVE)
    assert world.limiter.connection_counts() == {"pending": 0, "idle": 1, "active": 1}
    world.limiter.close(connection)
    world.limiter.close(connection)
    assert world.limiter.connection_counts() == {"pending": 0, "idle": 1, "active": 0}
