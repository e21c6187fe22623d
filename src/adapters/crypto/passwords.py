"""argon2id (RFC 9106) on a few threads of its own: a hash takes tens of milliseconds of CPU, which the event loop has not got.

19 MiB, two passes, one lane: the parameters OWASP names first. The queue is bounded, so that a flood of logins is answered
`UNAVAILABLE` at once instead of ever later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher, Type
from argon2.exceptions import Argon2Error, InvalidHashError

from domain.kernel.errors import Unavailable

Result = TypeVar("Result")
MEMORY_KIB = 19 * 1024
PASSES = 2


class Argon2Hasher:
    """`threads` hashes at once; `queue` more wait. Close it when the service stops."""

    def __init__(self, *, threads: int = 2, queue: int = 64, memory_kib: int = MEMORY_KIB, passes: int = PASSES) -> None:
        self._argon2 = PasswordHasher(time_cost=passes, memory_cost=memory_kib, parallelism=1, type=Type.ID)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._free = threads + queue
        self._nobody = self._argon2.hash("the password of nobody")

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._argon2.hash(_bytes(password)))

    async def verify(self, password_hash: str, password: str) -> bool:
        return await self._run(lambda: self._verify(password_hash, password))

    async def verify_nothing(self, password: str) -> None:
        await self.verify(self._nobody, password)

    def outdated(self, password_hash: str) -> bool:
        try:
            return self._argon2.check_needs_rehash(password_hash)
        except InvalidHashError:
            return True

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._argon2.verify(password_hash, _bytes(password))
        except (Argon2Error, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._free <= 0:
            raise Unavailable("Too many sign-ins at this moment. Try again in a few seconds.")
        self._free -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._free += 1


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
