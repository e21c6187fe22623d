"""The client address of a request: the peer's, unless the peer is a trusted proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from websockets.asyncio.client import connect

from adapters.http.core.callers import FORWARDED, TrustedProxies, parse_networks
from support.http import PASSWORD
from support.in_process_app import InProcessApp, in_process_app
from support.service import Service
from support.waiting import TIMEOUT_S

LOAD_BALANCERS = "10.0.0.0/8, 192.0.2.1,2001:db8::/48"


@pytest.mark.parametrize(
    ("peer", "lines", "client"),
    [
        ("203.0.113.5", ["198.51.100.1"], "203.0.113.5"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.66, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.66", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, 10.2.3.4, 192.0.2.1"], "198.51.100.1"),
        ("10.0.0.1", ["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8:1::1]:4711"], "2001:db8:1::1"),
        ("10.0.0.1", ["2001:db8:1::1"], "2001:db8:1::1"),
        ("2001:db8::7", ["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense, 10.9.9.9"], "10.9.9.9"),
        ("10.0.0.1", ["198.51.100.1,"], "10.0.0.1"),
        ("10.0.0.1", ["' OR 1=1 --"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, " + "10.0.0.2, " * 5_000 + "10.0.0.2"], "10.0.0.2"),
        ("", ["198.51.100.1"], ""),
    ],
)
def test_the_nearest_address_that_is_not_a_trusted_proxy_is_the_client(peer: str, lines: list[str], client: str) -> None:
    assert TrustedProxies(parse_networks(LOAD_BALANCERS)).client_address(peer, lines) == client


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        (["for=198.51.100.1"], "198.51.100.1"),
        (['For="198.51.100.1:80";proto=https;by=10.0.0.1'], "198.51.100.1"),
        (['proto=https;for="[2001:db8:1::1]:80"'], "2001:db8:1::1"),
        (["for=198.51.100.66", "for=198.51.100.1, for=10.9.9.9"], "198.51.100.1"),
        (["for=198.51.100.1, for=unknown"], "10.0.0.1"),
        (["for=198.51.100.1, for=_hidden"], "10.0.0.1"),
        (["198.51.100.1"], "10.0.0.1"),
        (["xfor=198.51.100.1"], "10.0.0.1"),
    ],
)
def test_the_forwarded_header_is_read_by_rfc_7239(lines: list[str], client: str) -> None:
    assert TrustedProxies(parse_networks(LOAD_BALANCERS), FORWARDED).client_address("10.0.0.1", lines) == client


@pytest.mark.parametrize("networks", ["", LOAD_BALANCERS])
def test_a_header_of_a_peer_that_is_not_trusted_is_noted_once(networks: str) -> None:
    proxies = TrustedProxies(parse_networks(networks))
    with structlog.testing.capture_logs() as logged:
        proxies.client_address("203.0.113.5", [])
        for peer in ("203.0.113.5", "203.0.113.5", "203.0.113.6"):
            assert proxies.client_address(peer, ["198.51.100.1"]) == peer
    assert [(line["log_level"], line["peer"], line["header"]) for line in logged] == [
        ("warning", "203.0.113.5", "X-Forwarded-For")
    ]


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "proxy.example.com", "10.0.0.1/8"])
def test_a_wrong_network_is_named(wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        parse_networks(f"192.0.2.1, {wrong}")


async def _guess(program: InProcessApp, **headers: str) -> int:
    body = {"email": "owner@example.com", "password": "a wrong password"}
    return (await program.caller(**headers).send("POST", "/auth/login", body)).status_code


async def _addresses(program: InProcessApp, account_id: Any, kind: str) -> set[str]:
    async with program.services.uow.read() as tx:
        found = await tx.events.page(account_id, limit=100, before=None, kind=kind, device_id=None)
    return {event.address for event in found}


async def test_each_client_of_a_trusted_proxy_is_throttled_and_logged_separately(tmp_path: Path) -> None:
    async with in_process_app(tmp_path, trusted_proxies="127.0.0.1") as program:
        account = await program.create_account("owner@example.com")
        for _ in range(8):
            last = await _guess(program, X_Forwarded_For="198.51.100.66, 198.51.100.1")
        assert last == 429
        assert await _guess(program, X_Forwarded_For="198.51.102.2") == 401
        assert await _guess(program, X_Forwarded_For="198.51.100.99, 198.51.100.1") == 429
        assert await _guess(program, Forwarded="for=198.51.103.3") == 401
        seen = await _addresses(program, account.account.account_id, "login_failed")
        assert seen == {"198.51.100.1", "198.51.102.2", "127.0.0.1"}


async def test_forwarded_headers_of_an_untrusted_client_are_ignored(tmp_path: Path) -> None:
    async with in_process_app(tmp_path, trusted_proxies="192.0.2.0/24") as program:
        account = await program.create_account("owner@example.com")
        statuses = [await _guess(program, X_Forwarded_For=f"198.51.100.{number}") for number in range(8)]
        assert 429 in statuses
        assert await _addresses(program, account.account.account_id, "login_failed") == {"127.0.0.1"}


async def test_the_client_address_behind_a_proxy_is_logged_for_requests_and_feed(tmp_path: Path) -> None:
    with Service(tmp_path, LATCHBOARD_TRUSTED_PROXIES="127.0.0.0/8") as service:
        async with service.api() as owner:
            key = await owner.post("/keys", {"name": "Robot"}, expect=201)
            await owner.patch(f"/keys/{key['keyId']}", {"enabled": False})
        headers = {"X-Api-Key": key["key"], "X-Forwarded-For": "198.51.100.9"}
        async with connect(f"ws://127.0.0.1:{service.port}/api/v1/ws", additional_headers=headers) as socket:
            async with asyncio.timeout(TIMEOUT_S):
                await socket.wait_closed()
            assert socket.close_code == 4001
        login = {"email": "owner@example.com", "password": PASSWORD}
        async with service.api(**{"X-Forwarded-For": "198.51.100.8"}) as other:
            await other.post("/auth/login", login)
        async with service.api() as owner:
            events = (await owner.get("/events?limit=50"))["data"]
    assert {event["address"] for event in events if event["eventType"] == "access_refused"} == {"198.51.100.9"}
    assert "198.51.100.8" in {event["address"] for event in events if event["eventType"] == "login"}
