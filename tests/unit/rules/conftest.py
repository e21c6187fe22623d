from __future__ import annotations

import pytest

from support.telemetry_world import TelemetryWorld


@pytest.fixture
async def world() -> TelemetryWorld:
    return await TelemetryWorld().populate()
