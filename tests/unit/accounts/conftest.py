"""Accounts over memory storage, with a hasher that costs nothing."""

from __future__ import annotations

import asyncio

import pytest

from domain.kernel.caller import Role, SessionCaller
from support.http import HttpWorld


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

    def needs_rehash(self, password_hash: str) -> bool:
        return not password_hash.startswith(f"plain:{self.version}:")

    def close(self) -> None:
        pass


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld(hasher=PlainHasher())


@pytest.fixture
async def owner(world: HttpWorld) -> SessionCaller:
    created = await world.account()
    membership = created.owner.membership
    return SessionCaller(membership.account_id, membership.user_id, membership.membership_id, Role.OWNER, "192.0.2.1")
