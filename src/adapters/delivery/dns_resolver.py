"""Resolves host names for deliveries, on threads of its own, and rejects names that lead to a forbidden address.

The system's resolver blocks its thread, for up to half a minute when a name server is dead. On the event loop's shared threads a
few such names would delay everything else. Here one name occupies at most one thread, and concurrent requests for the same name
share one lookup.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from adapters.delivery.address_guard import AddressGuard, ForbiddenAddressError

MAX_THREADS = 64

HostLookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host name, port) → its IP addresses as text, in the order to try them. Raises OSError."""


class UnknownHostError(OSError):
    """The host name cannot be resolved. `args[0]` is the name."""


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
