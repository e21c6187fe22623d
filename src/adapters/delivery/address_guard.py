"""Decides where a delivery may go: https to a public address, or http(s) into a network that the operator names; checked on the
address that is connected to.

A URL proves little: its host name may resolve to a public address when it is entered and to 127.0.0.1 when it is used (DNS
rebinding). So the URL is checked for what no DNS response can correct, every name is resolved again for each connection and
rejected if any of its addresses is special, and the address is checked once more right before the connection. The list of special
addresses is our own: what Python 3.11 calls global includes NAT64, 6to4, multicast and fec0::/10.

The system's resolver blocks its thread, for up to half a minute when a name server is dead. On the event loop's shared threads a
few such names would delay everything else. So names are resolved on threads of their own: one name occupies at most one, and
concurrent requests for the same name share one lookup.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
HostLookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host name, port) → its IP addresses as text, in the order to try them. Raises OSError."""

MAX_URL_LENGTH = 2_048
DEFAULT_PORTS = frozenset({80, 443})
FIRST_UNPRIVILEGED_PORT = 1_024
MAX_THREADS = 64

# IANA special-purpose registries (RFC 6890 and successors), multicast, and one metadata service on a public address.
_BLOCKED_V4 = [
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",  # Azure's host agent
    )
]
# Of IPv6, only global unicast is allowed at all; that excludes ::1, mapped and NAT64 addresses, fc00::/7, fe80::/10, ff00::/8.
_GLOBAL_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
_BLOCKED_V6 = [
    ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
]

_LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
_AUTHORITY = re.compile(r"[^/]*//([^/?#]*).*")
_NUMERIC_LABEL = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)


class ForbiddenAddressError(OSError):
    """Deliveries may not go to this address. An OSError, so that HTTP clients treat it as a failed connection. `rule`: what it
    breaks, such as `is not public`. It does not name the address: a name in public DNS would else tell about our network."""

    def __init__(self, rule: str, subject: str = "its address") -> None:
        super().__init__(f"{subject} {rule}")
        self.rule = rule


class UnknownHostError(OSError):
    """The host name cannot be resolved. `args[0]` is the name."""


def is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _BLOCKED_V4)
    return address in _GLOBAL_UNICAST_V6 and not any(address in network for network in _BLOCKED_V6)


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """`allow_private` allows http and every address, for development and tests. `networks`: special addresses that receivers may
    have, by http too. `low_ports`: the allowed ports below 1024, in addition to 80 and 443. `advice`: a sentence that says how to
    allow a receiver in a private network; it ends the reasons that such a receiver is given."""

    allow_private: bool = False
    low_ports: frozenset[int] = frozenset()
    networks: tuple[IpNetwork, ...] = ()
    advice: str = ""

    @lru_cache(maxsize=4_096)  # noqa: B019 - a guard is its settings, of which a process has one or two
    def rejection_reason(self, url: str) -> str | None:
        """Why nothing can ever be delivered to this URL, or None. Cached, because every attempt needs it."""
        if len(url) > MAX_URL_LENGTH:
            return f"is longer than {MAX_URL_LENGTH} characters."
        if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            return "must be plain printable ASCII without spaces; percent-encode the rest."
        from yarl import URL  # takes 1 MiB, and a service without webhooks has no URL

        try:
            parts = URL(url)
            host, port = parts.host, parts.port
        except ValueError:
            return "is not a URL. Give one such as https://example.com/hook."
        if parts.scheme not in ("https", "http") or not host or port is None:
            return "must be a whole https URL, such as https://example.com/hook."
        if parts.scheme == "http" and not self.allow_private and not self.networks:
            return self._with_advice("must be https, so that a delivery can be neither read nor changed in transit.")
        if parts.user is not None or parts.password is not None or "@" in _AUTHORITY.sub(r"\1", url):
            return "must not contain a user name or password; check the signature instead."
        return self._port_rejection(port) or self._host_rejection(host, https=parts.scheme == "https")

    def check_address(self, address: str, *, https: bool) -> None:
        """Raises ForbiddenAddressError. `address`: an IP address as text."""
        if not self._is_allowed(ipaddress.ip_address(address), https=https):
            raise ForbiddenAddressError(self._address_rule(https=https))

    def _is_allowed(self, address: IpAddress, *, https: bool) -> bool:
        return self.allow_private or (https and is_public(address)) or any(address in network for network in self.networks)

    def _address_rule(self, *, https: bool) -> str:
        if not https:
            return "is not in an allowed network; use https for public addresses"
        return "is not public and not in an allowed network" if self.networks else "is not public"

    def _port_rejection(self, port: int) -> str | None:
        if self.allow_private or port >= FIRST_UNPRIVILEGED_PORT or port in DEFAULT_PORTS or port in self.low_ports:
            return None
        return f"must not use port {port}; of the ports below {FIRST_UNPRIVILEGED_PORT} only 80 and 443 are allowed."

    def _host_rejection(self, host: str, *, https: bool) -> str | None:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            if _NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]):
                return "names its host by a number that is not an address. Write it as a host name."
            if host.rstrip(".").lower().endswith("localhost") and not self._is_allowed(_LOOPBACK, https=https):
                return self._with_advice("must not be this machine. Deliveries go to public addresses only.")
            return None
        if not self._is_allowed(address, https=https):
            return self._with_advice(f"must not use the address {address}, which {self._address_rule(https=https)}.")
        return None

    def _with_advice(self, reason: str) -> str:
        return f"{reason} {self.advice}".rstrip()


class SystemHostLookup:
    """A `HostLookup` by getaddrinfo (RFC 3493)."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="webhook-dns")
        self._pending: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        task = self._pending.get(host)
        if task is None:
            task = asyncio.create_task(self._look_up(host, port), name=f"dns {host}")
            self._pending[host] = task
            task.add_done_callback(lambda done: self._on_done(host, done))
        return await asyncio.shield(task)

    def close(self) -> None:
        for task in self._pending.values():
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        def look_up() -> Sequence[str]:
            return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

        return await asyncio.get_running_loop().run_in_executor(self._pool, look_up)

    def _on_done(self, host: str, task: asyncio.Task[Sequence[str]]) -> None:
        self._pending.pop(host, None)
        if not task.cancelled():
            task.exception()  # every waiter has received it; without a waiter it must not be logged as never retrieved


class GuardedResolver:
    """Resolves a host to the addresses that a connection may use. Rejects the host as soon as one of its addresses is special: a
    name that is set up correctly has none."""

    def __init__(self, guard: AddressGuard, lookup: HostLookup | None = None) -> None:
        """`lookup`: None for the system's resolver."""
        self._guard = guard
        self._lookup = lookup or SystemHostLookup()

    async def resolve(self, host: str, port: int, *, https: bool) -> Sequence[str]:
        """At least one address, as text. `host` is a name or an address. Raises UnknownHostError and ForbiddenAddressError."""
        addresses = [host] if _is_address(host) else await self._look_up(host, port, https=https)
        for address in addresses:
            self._guard.check_address(address, https=https)  # once more, right before the connection
        return addresses

    def close(self) -> None:
        if isinstance(self._lookup, SystemHostLookup):
            self._lookup.close()

    async def _look_up(self, host: str, port: int, *, https: bool) -> Sequence[str]:
        try:
            addresses = await self._lookup(host, port)
        except (OSError, ValueError) as error:  # ValueError: a label that IDNA cannot encode
            raise UnknownHostError(host) from error
        if not addresses:
            raise UnknownHostError(host)
        for address in addresses:
            try:
                self._guard.check_address(address, https=https)
            except ForbiddenAddressError as error:
                raise ForbiddenAddressError(error.rule, f"the name {host} leads to an address that") from None
        return addresses


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
