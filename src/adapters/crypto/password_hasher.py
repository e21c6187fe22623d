"""argon2id (RFC 9106) on its own threads, because a hash takes tens of milliseconds of CPU.

19 MiB, two passes, one lane: the first parameters that OWASP recommends. The queue is bounded, so a flood of logins is answered
`UNAVAILABLE` at once instead of with growing delay.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import Argon2Error, InvalidHashError

from domain.kernel.errors import Unavailable

Result = TypeVar("Result")
MEMORY_KIB = 19 * 1024
TIME_COST = 2


class Argon2PasswordHasher:
    """`threads` hashes at once; `queue` more wait. Close it when the service stops."""

    def __init__(self, *, threads: int = 2, queue: int = 64, memory_kib: int = MEMORY_KIB, passes: int = TIME_COST) -> None:
        self._argon2 = PasswordHasher(time_cost=passes, memory_cost=memory_kib, parallelism=1, type=Type.ID)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._free_slots = threads + queue
        self._dummy_hash = f"$argon2id$v=19$m={memory_kib},t={passes},p=1${_unpadded(bytes(16))}${_unpadded(os.urandom(32))}"

    async def hash(self, password: str) -> str:
        return await self._run_in_pool(lambda: self._argon2.hash(_encode(password)))

    async def verify(self, password_hash: str, password: str) -> bool:
        return await self._run_in_pool(lambda: self._verify(password_hash, password))

    async def verify_dummy(self, password: str) -> None:
        await self.verify(self._dummy_hash, password)

    def needs_rehash(self, password_hash: str) -> bool:
        try:
            return self._argon2.check_needs_rehash(password_hash)
        except InvalidHashError:
            return True

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._argon2.verify(password_hash, _encode(password))
        except (Argon2Error, InvalidHashError):
            return False

    async def _run_in_pool(self, work: Callable[[], Result]) -> Result:
        if self._free_slots <= 0:
            raise Unavailable("Too many logins at the moment. Try again in a few seconds.")
        self._free_slots -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._free_slots += 1


def _unpadded(octets: bytes) -> str:
    return base64.b64encode(octets).decode().rstrip("=")


def _encode(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
