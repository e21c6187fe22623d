"""Where deliveries go, and where they do not, whatever a name server says in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from ipaddress import ip_network

import pytest

from adapters.delivery.address_guard import AddressGuard, ForbiddenAddressError, is_public
from domain.webhooks.ports import OutboundHttpRequest
from support.couriers import COURIERS, CourierClient
from support.webhook_receiver import respond, webhook_receiver
from support.webhook_world import MovableClock

GUARD = AddressGuard()
OPEN = AddressGuard(allow_private=True)

SPECIAL = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses_are_closed(address: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        GUARD.check_address(address, https=True)
    OPEN.check_address(address, https=False)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1", "2001:4860::8888"],
)
def test_public_addresses_are_open(address: str) -> None:
    GUARD.check_address(address, https=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "example.com/hook",
        "https://",
        "https:///hook",
        "https://user@example.com/",
        "https://@example.com/",
        "https://:@example.com/",
        "https://user:secret@example.com/",
        "https://example.com:22/",
        "https://example.com:99999/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0x7f000001/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fe80::1%25eth0]/",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/",
        "https://hook.localhost./",
        "https://exa mple.com/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com/\r\nHost: other",
        "https://" + "a" * 3_000 + ".com/",
        "",
    ],
)
def test_urls_that_can_never_be_delivered_to_are_refused_with_a_reason(url: str) -> None:
    assert GUARD.rejection_reason(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook?a=b",
        "https://example.com/@me?to=a@b.example#@",
        "https://example.com?a@b",
        "https://example.com:8443/",
        "https://8.8.8.8/",
        "https://xn--bcher-kva.example/",
    ],
)
def test_ordinary_urls_are_accepted(url: str) -> None:
    assert GUARD.rejection_reason(url) is None


def test_a_low_port_can_be_opened_and_development_opens_everything_but_user_info() -> None:
    assert AddressGuard(low_ports=frozenset({81})).rejection_reason("https://example.com:81/") is None
    assert OPEN.rejection_reason("http://127.0.0.1:9/hook") is None
    assert OPEN.rejection_reason("http://user@127.0.0.1/")


class Resolver:
    """A name server that changes its mind: an answer for each question, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.left = list(answers)
        self.requested = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.requested += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


class LoopbackIsPublic(AddressGuard):
    """For the test only: 127.0.0.1 counts as a public address, http as https; the rest of 127.0.0.0/8 is as special as ever."""

    def rejection_reason(self, url: str) -> str | None:
        return None

    def check_address(self, address: str, *, https: bool) -> None:
        if address != "127.0.0.1":
            AddressGuard().check_address(address, https=True)


Make = Callable[..., CourierClient]


@pytest.fixture(params=COURIERS)
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    made: list[CourierClient] = []

    def make(guard: AddressGuard, lookup: Resolver | None = None) -> CourierClient:
        made.append(CourierClient(request.param(clock=MovableClock(), guard=guard, lookup=lookup)))
        return made[-1]

    yield make
    for counter in made:
        await counter.courier.close()


def post(url: str) -> OutboundHttpRequest:
    return OutboundHttpRequest(url, (), b"{}", 5.0)


async def test_a_name_that_is_rebound_to_a_special_address_gets_nothing_more(make: Make) -> None:
    names = Resolver(["127.0.0.1"], ["127.0.0.2"])
    courier = make(LoopbackIsPublic(), names)
    async with webhook_receiver(respond(headers="Connection: close\r\n")) as receiver:
        url = receiver.url.replace("127.0.0.1", "receiver.example")
        assert (await courier.send(post(url))).status == 200
        reply = await courier.send(post(url))
        assert len(receiver.requests) == 1
    assert names.requested == 2
    assert reply.status is None
    assert reply.error == "Not sent: the name receiver.example leads to an address that is not public."


async def test_a_name_with_one_special_address_among_public_ones_is_refused(make: Make) -> None:
    courier = make(LoopbackIsPublic(), Resolver(["127.0.0.1", "10.0.0.1"]))
    async with webhook_receiver(respond()) as receiver:
        reply = await courier.send(post(receiver.url.replace("127.0.0.1", "receiver.example")))
        assert not receiver.requests
    assert reply.error == "Not sent: the name receiver.example leads to an address that is not public."


class BlindResolver(LoopbackIsPublic):
    """What if a forbidden address ever came past the resolver? Only the look at the socket is left."""

    looks = 0

    def check_address(self, address: str, *, https: bool) -> None:
        type(self).looks += 1
        if type(self).looks > 1:
            super().check_address(address, https=https)


async def test_the_address_is_looked_at_once_more_when_its_socket_is_made(make: Make) -> None:
    BlindResolver.looks = 0
    courier = make(BlindResolver(), Resolver(["127.0.0.2"]))
    async with webhook_receiver(respond()) as receiver:
        reply = await courier.send(post(receiver.url.replace("127.0.0.1", "receiver.example")))
        assert not receiver.requests
    assert reply.error == "Not sent: its address is not public."


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.1", "localhost"])
async def test_without_the_setting_loopback_gets_nothing_however_it_is_written(make: Make, host: str) -> None:
    courier = make(AddressGuard())
    async with webhook_receiver(respond()) as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        reply = await courier.send(post(f"https://{host}:{port}/hook"))
        assert not receiver.connections
    assert reply.status is None
    assert reply.error


NETWORKS = AddressGuard(networks=(ip_network("127.0.0.0/30"), ip_network("192.168.1.0/24"), ip_network("fd00::/64")))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://192.168.1.20:1880/hook", None),
        ("https://192.168.1.20/hook", None),
        ("http://[fd00::7]:8123/hook", None),
        ("http://localhost:1880/hook", None),
        ("http://node-red.lan:1880/hook", None),
        ("https://example.com/hook", None),
        ("http://192.168.2.20:1880/hook", "not in an allowed network"),
        ("https://192.168.2.20/hook", "is not public and not in an allowed network"),
        ("http://8.8.8.8/hook", "use https"),
        ("http://192.168.1.20:22/hook", "must not use port 22"),
    ],
)
def test_networks_that_the_operator_names_are_open_by_http_too(url: str, reason: str | None) -> None:
    told = NETWORKS.rejection_reason(url)
    assert told is None if reason is None else reason in str(told)


@pytest.mark.parametrize(
    ("addresses", "error"),
    [
        (["127.0.0.1"], None),
        (["8.8.8.8"], "is not in an allowed network; use https for public addresses"),
        (["127.0.0.1", "10.0.0.1"], "is not in an allowed network; use https for public addresses"),
        (["127.0.0.9"], "is not in an allowed network; use https for public addresses"),
    ],
)
async def test_http_goes_only_where_every_address_of_the_name_is_in_such_a_network(
    make: Make, addresses: list[str], error: str | None
) -> None:
    courier = make(NETWORKS, Resolver(addresses))
    async with webhook_receiver(respond()) as receiver:
        reply = await courier.send(post(receiver.url.replace("127.0.0.1", "node-red.lan")))
        assert len(receiver.requests) == (error is None)
    assert reply.error == (error and f"Not sent: the name node-red.lan leads to an address that {error}.")


def test_the_list_has_no_hole_at_its_edges() -> None:
    import ipaddress

    for text in ("9.255.255.255", "11.0.0.0", "126.255.255.255", "128.0.0.0", "172.15.255.255", "223.255.255.255"):
        assert is_public(ipaddress.ip_address(text)), text
