"""API keys over memory storage."""

from __future__ import annotations

import pytest

from domain.kernel.caller import SessionCaller
from support.http import HttpWorld


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld()


@pytest.fixture
async def owner(world: HttpWorld) -> SessionCaller:
    return await world.owner()
