import pytest

from support.telemetry_world import TelemetryWorld


@pytest.fixture
async def world() -> TelemetryWorld:
    world = TelemetryWorld()
    await world.populate()
    return world
