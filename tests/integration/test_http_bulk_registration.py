"""Many devices with one request, in the composed program: an outcome for each row, and nothing made twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.devices import registration
from domain.kernel.caller import Role
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

PATH = "/devices/register/bulk"


def a_row(number: int, **fields: Any) -> dict[str, Any]:
    return {"name": f"Relay {number}", "boardType": "TASMOTA", "appType": "RELAY", "externalId": f"SN-{number}"} | fields


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        yield program


@pytest.fixture
async def ada(app: InProcessApp) -> ApiCaller:
    await app.create_account("ada@example.com")
    return await app.sign_in("ada@example.com")


async def test_two_hundred_relays_come_with_their_lines_and_a_repeat_changes_nothing(app: InProcessApp, ada: ApiCaller) -> None:
    rows = [a_row(number, tags=["hall"], location="Hall 3") for number in range(200)]
    made = await ada.send_ok("POST", PATH, {"devices": rows, "credentials": "NEW"})
    assert (made["created"], made["existing"], made["failed"]) == (200, 0, 0)
    assert [each["externalId"] for each in made["devices"]] == [row["externalId"] for row in rows]
    one = made["devices"][7]
    assert one["credentials"]["mqttUsername"] == one["deviceId"]
    assert one["credentials"]["configBlock"].startswith("Backlog MqttHost ")
    assert len({each["credentials"]["mqttPassword"] for each in made["devices"]}) == 200
    link: Any = app.program.adapters.link
    assert link.admitted[one["deviceId"]][1] == one["credentials"]["mqttPassword"]

    repeated = await ada.send_ok("POST", PATH, {"devices": [*rows[:199], a_row(200)], "credentials": "NEW"})
    assert (repeated["created"], repeated["existing"]) == (1, 199)
    again = repeated["devices"][7]
    assert (again["outcome"], again["deviceId"], again["credentials"]) == ("EXISTS", one["deviceId"], None)
    [found] = await ada.send_ok("GET", "/devices?externalId=SN-7")
    assert (found["name"], found["tags"], found["deviceStatus"]) == ("Relay 7", ["hall"], "ACTIVE")


async def test_credentials_whose_answer_was_lost_are_made_anew_until_the_device_connects(
    app: InProcessApp, ada: ApiCaller
) -> None:
    body = {"devices": [a_row(1), a_row(2)], "credentials": "UNUSED"}
    first = await ada.send_ok("POST", PATH, body)
    device_id = first["devices"][0]["deviceId"]
    async with app.services.uow.write(caller=None) as tx:
        [device] = await tx.devices.list_by_ids([device_id])
        await tx.devices.update_last_seen({device.device_no: app.clock.now_ms()})
    second = await ada.send_ok("POST", PATH, body)
    assert second["devices"][0]["credentials"] is None
    renewed = second["devices"][1]["credentials"]["mqttPassword"]
    assert renewed != first["devices"][1]["credentials"]["mqttPassword"]
    link: Any = app.program.adapters.link
    assert link.admitted[second["devices"][1]["deviceId"]][1] == renewed


async def test_one_wrong_row_is_told_and_the_others_are_made(ada: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MAX_DEVICES_PER_ACCOUNT", 2)
    rows = [a_row(1), a_row(2, projectId="prj_nowhere"), a_row(3), a_row(4)]
    made = await ada.send_ok("POST", PATH, {"devices": rows})
    assert [each["outcome"] for each in made["devices"]] == ["CREATED", "FAILED", "CREATED", "FAILED"]
    assert [each["error"] for each in made["devices"]] == [None, "NOT_FOUND", None, "TOO_MANY_DEVICES"]
    assert made["devices"][0]["credentials"] is None
    assert len(await ada.send_ok("GET", "/devices")) == 2


async def test_a_malformed_request_makes_nothing_and_names_every_field(ada: ApiCaller) -> None:
    rows = [a_row(1), a_row(2, name=""), a_row(3, colour="red")]
    refused = await ada.send("POST", PATH, {"devices": rows})
    assert refused.status_code == 400
    assert {each["field"] for each in refused.json()["details"]} == {"devices.1.name", "devices.2.colour"}
    twice = await ada.send("POST", PATH, {"devices": [a_row(1), a_row(1)]})
    assert (twice.status_code, twice.json()["details"][0]["field"]) == (400, "devices.1.externalId")
    for rows in ([], [a_row(number) for number in range(201)]):
        assert (await ada.send("POST", PATH, {"devices": rows})).json()["details"][0]["field"] == "devices"
    assert await ada.send_ok("GET", "/devices") == []


async def test_an_idempotency_key_gives_the_first_answer_with_its_credentials_again(ada: ApiCaller) -> None:
    body = {"devices": [a_row(1)], "credentials": "NEW"}
    first = await ada.send("POST", PATH, body, headers={"Idempotency-Key": "k1"})
    second = await ada.send("POST", PATH, body, headers={"Idempotency-Key": "k1"})
    assert (second.json(), second.headers["Idempotency-Replayed"]) == (first.json(), "true")


async def test_an_external_id_is_of_one_device_of_an_account_until_it_is_deleted(app: InProcessApp, ada: ApiCaller) -> None:
    await app.create_account("bob@example.com", "Other")
    bob = await app.sign_in("bob@example.com")
    first = (await ada.send_ok("POST", "/devices/register", a_row(1)))["deviceId"]
    assert (await ada.send("POST", "/devices/register", a_row(1))).json()["error"] == "EXTERNAL_ID_TAKEN"
    assert (await bob.send_ok("POST", PATH, {"devices": [a_row(1)]}))["created"] == 1
    second = (await ada.send_ok("POST", "/devices/register", a_row(2)))["deviceId"]
    taken = await ada.send("PUT", f"/devices/{second}", {"externalId": "SN-1"})
    assert (taken.status_code, taken.json()["error"]) == (409, "EXTERNAL_ID_TAKEN")
    await ada.send_ok("DELETE", f"/devices/{first}")
    assert (await ada.send_ok("POST", PATH, {"devices": [a_row(1)]}))["created"] == 1


async def test_a_viewer_registers_nothing(app: InProcessApp) -> None:
    created = await app.create_account("ada@example.com")
    await app.create_member(created, "vic@example.com", Role.VIEWER)
    vic = await app.sign_in("vic@example.com")
    assert (await vic.send("POST", PATH, {"devices": [a_row(1)]})).json()["error"] == "ROLE_REQUIRED"
