"""An installation moves from SQLite to PostgreSQL: devices keep their passwords, readings and events, and stay switched once."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.storage.sql.move import move_to_postgres
from app.cli.database import MOVED_SUFFIX
from support import postgres
from support.device import create_device
from support.empty_database import bare_postgres
from support.service import Service


@pytest.mark.skipif(not postgres.available(), reason="PostgreSQL is not installed")
async def test_after_the_move_everything_is_there_and_the_old_database_does_not_start(tmp_path: Path) -> None:
    url = await bare_postgres()
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            async with pump.online(service) as line:
                await line.publish("telemetry", {"temperature": 21.4})
                await owner.wait_until(f"/devices/{pump.device_id}/telemetry/latest", lambda latest: latest["telemetry"])
            before = [event["id"] for event in (await owner.get("/events?limit=200"))["data"]]
        assert service.launch("move-to", url).wait(60) == 1, "the service still runs"
        assert "Stop it first" in service.log()
        service.kill()
        assert service.launch("move-to", url).wait(60) == 0, service.log()
        assert (service.data_dir / f"latchboard.db{MOVED_SUFFIX}").is_file()
        code, output = service.expect_start_failure()
        assert (code, "is missing" in output) == (1, True)

        service.settings["LATCHBOARD_DATABASE_URL"] = url
        service.start()
        async with service.api() as owner:
            readings = await owner.get(f"/devices/{pump.device_id}/telemetry")
            assert [reading["value"] for reading in readings] == [21.4]
            async with pump.online(service):
                answer = await owner.post(f"/devices/{pump.device_id}/command", {"cmd": "ON", "waitSeconds": 30})
            assert answer["status"] == "DONE"
            after = [event["id"] for event in (await owner.get("/events?limit=200"))["data"]]
        assert after[-len(before) :] == before


class Interrupted(Exception):
    pass


def interrupt_late(table: str, _rows: int) -> None:
    if table == "readings":
        raise Interrupted


@pytest.mark.skipif(not postgres.available(), reason="PostgreSQL is not installed")
async def test_readings_that_the_service_confirms_after_an_interrupted_move_are_moved_too(tmp_path: Path) -> None:
    url = await bare_postgres()
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            async with pump.online(service) as line:
                await line.report(temperature=1)
            service.stop()
            with pytest.raises(Interrupted):
                await move_to_postgres(service.data_dir / "latchboard.db", url, interrupt_late)
            code, output = service.expect_start_failure()
            assert (code, "move-to --abandon" in output) == (1, True), output
            assert service.launch("move-to", "--abandon").wait(60) == 0, service.log()
            service.start()
            async with pump.online(service) as line:
                for value in range(2, 52):
                    await line.report(temperature=value)
            cursor = (await owner.get("/events?limit=1"))["cursor"]
            service.stop()
            assert service.launch("move-to", url).wait(60) == 0, service.log()
            service.settings["LATCHBOARD_DATABASE_URL"] = url
            service.start()
            readings = await owner.get(f"{pump.path}/telemetry?limit=100")
            assert sorted(reading["value"] for reading in readings) == list(range(1, 52))
            assert (await owner.get(f"/events?limit=1&cursor={cursor}", expect=410))["error"] == "OTHER_LIFE"
