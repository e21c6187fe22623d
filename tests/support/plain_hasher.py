"""A password hasher that costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


class PlainHasher:
    """`plain:<version>:<password>`; counts its work, because the work done must not tell who exists."""

    def __init__(self) -> None:
        self.version = 1
        self.verified = 0
        self.hashed = 0

    async def hash(self, password: str) -> str:
        self.hashed += 1
        return f"plain:{self.version}:{password}"

    async def verify(self, password_hash: str, password: str) -> bool:
        self.verified += 1
        await asyncio.sleep(0)  # as with the real one, others run meanwhile
        return password_hash.split(":", 2)[2] == password

    async def verify_dummy(self, password: str) -> None:
        self.verified += 1

    async def is_guessable(self, password: str, related: Sequence[str]) -> bool:
        return password in {"password", *related}

    def needs_rehash(self, password_hash: str) -> bool:
        return not password_hash.startswith(f"plain:{self.version}:")

    def close(self) -> None:
        pass
