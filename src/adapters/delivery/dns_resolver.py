"""Names to addresses, on threads of our own.

The system's resolver blocks its thread, for half a minute on a dead name server; on the loop's shared threads a few such names
would hold up everybody. Here one name takes at most one thread, whoever asks for it meanwhile waits for the same answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

from adapters.delivery.address_guard import AddressGuard, ForbiddenAddressError

MAX_THREADS = 64

HostLookup = Callable[[str, int], Awaitable[Sequence[tuple[int, str]]]]
"""(host, port) → (address family, address) of each address of the host. Raises OSError."""


class SystemHostLookup:
    """A `Lookup` by getaddrinfo."""

    def __init__(self, threads: int = MAX_THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="webhook-dns")
        self._pending: dict[str, asyncio.Task[list[tuple[int, str]]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[tuple[int, str]]:
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

    async def _look_up(self, host: str, port: int) -> list[tuple[int, str]]:
        def ask() -> list[tuple[int, str]]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return [(int(family), str(place[0])) for family, _, _, _, place in found]

        return await asyncio.get_running_loop().run_in_executor(self._pool, ask)

    def _on_done(self, host: str, task: asyncio.Task[list[tuple[int, str]]]) -> None:
        self._pending.pop(host, None)
        if not task.cancelled():
            task.exception()  # whoever waited has it; if nobody did, it is no news


class GuardedResolver(AbstractResolver):
    """Refuses a name as soon as one of its addresses is special: an honest name has none."""

    def __init__(self, guard: AddressGuard, lookup: HostLookup) -> None:
        self._guard = guard
        self._lookup = lookup

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        found = await self._lookup(host, port)
        if not found:
            raise OSError(None, f"the name {host} has no address")
        for _, address in found:
            try:
                self._guard.check_address(address)
            except ForbiddenAddressError as error:
                raise ForbiddenAddressError(f"the name {host} leads to a forbidden address: {error}") from None
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=flags) for kind, address in found
        ]

    async def close(self) -> None:
        """The lookup belongs to whoever made it."""
