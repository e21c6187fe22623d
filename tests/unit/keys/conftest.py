"""API keys over memory storage."""

from __future__ import annotations

import pytest

from domain.kernel.caller import Role, SessionCaller
from support.http import HttpWorld


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld()


@pytest.fixture
async def owner(world: HttpWorld) -> SessionCaller:
    created = await world.account()
    membership = created.owner.membership
    return SessionCaller(membership.account_id, membership.user_id, membership.membership_id, Role.OWNER, "192.0.2.1")
