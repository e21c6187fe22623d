"""Sign-in over memory storage, with a hasher that costs nothing."""

from __future__ import annotations

import pytest

from domain.kernel.caller import SessionCaller
from support.http import HttpWorld
from support.plain_hasher import PlainHasher


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld(hasher=PlainHasher())


@pytest.fixture
async def owner(world: HttpWorld) -> SessionCaller:
    return await world.owner()
