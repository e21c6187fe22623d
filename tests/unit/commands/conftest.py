from __future__ import annotations

import pytest

from support.device_world import DeviceWorld


@pytest.fixture
async def world() -> DeviceWorld:
    return await DeviceWorld().populate()
