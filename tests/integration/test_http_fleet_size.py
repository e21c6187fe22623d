"""How large a fleet's document may be: its objects, its bytes, and that an export is bound as a plan is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.http.core.middleware import MAX_BODY_BYTES, MAX_FLEET_BODY_BYTES
from domain.fleet_file import service as fleet_service
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

NOTE = {"name": "BLINK", "label": "Blink"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        yield program


@pytest.fixture
async def ada(app: InProcessApp) -> ApiCaller:
    await app.create_account("ada@example.com")
    return await app.sign_in("ada@example.com")


def devices(count: int, **fields: Any) -> dict[str, Any]:
    about = {"boardType": "ESP32", "appType": "PUMP", **fields}
    rows = [{"externalId": f"pump-{number}", "name": f"Pump {number}", **about} for number in range(count)]
    return {"document": {"devices": rows}}


async def test_two_thousand_devices_are_one_file(ada: ApiCaller) -> None:
    made = await ada.send_ok("POST", "/fleet/apply", devices(2_000))
    assert made["counts"]["create"] == 2_000
    again = await ada.send_ok("POST", "/fleet/plan", devices(2_000))
    assert again["counts"] == {"create": 0, "change": 0, "delete": 0, "unchanged": 2_000}
    assert len((await ada.send_ok("GET", "/fleet"))["document"]["devices"]) == 2_000


async def test_a_document_may_be_longer_than_other_bodies_and_has_a_bound(ada: ApiCaller) -> None:
    long = devices(600, description="x" * 450)
    assert (await ada.send("POST", "/fleet/plan", long)).status_code == 200
    assert (await ada.send("POST", "/devices/register", {"name": "x" * MAX_BODY_BYTES})).status_code == 413
    too_long = await ada.send("POST", "/fleet/plan", {"document": {}, "prune": "x" * MAX_FLEET_BODY_BYTES})
    assert (too_long.status_code, too_long.json()["error"]) == (413, "PAYLOAD_TOO_LARGE")


async def test_an_export_counts_what_a_plan_of_it_would_count(ada: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default project, and the parts of devices."""
    await ada.send_ok("POST", "/fleet/apply", devices(2, commands=[NOTE]))
    for bound, status in ((5, 200), (4, 409)):
        monkeypatch.setattr(fleet_service, "MAX_OBJECTS", bound)
        answer = await ada.send("GET", "/fleet")
        assert answer.status_code == status
        if status == 200:
            planned = await ada.send_ok("POST", "/fleet/plan", {"document": answer.json()["document"]})
            assert planned["counts"]["unchanged"] == bound
        else:
            assert answer.json()["error"] == "FLEET_TOO_LARGE"
