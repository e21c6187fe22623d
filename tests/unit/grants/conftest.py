from __future__ import annotations

import pytest

from support.schedule_world import ScheduleWorld


@pytest.fixture
async def world() -> ScheduleWorld:
    return await ScheduleWorld().populate()
