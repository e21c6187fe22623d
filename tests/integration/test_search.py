"""Everything is found by its own name, in any alphabet and case, through the API and on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support import postgres
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]
NAMES = ("Насос", "Ölpumpe", "ÉCLUSE", "Ωμέγας")


@pytest.fixture(params=DATABASES)
async def program(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcessApp]:
    chosen = {"database_url": await empty_postgres()} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        yield program


@pytest.fixture
async def owner(program: InProcessApp) -> ApiCaller:
    await program.create_account("owner@example.com")
    return await program.sign_in("owner@example.com")


async def names(caller: ApiCaller, path: str) -> list[str]:
    answer = await caller.send("GET", path)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return [each["name"] for each in (found if isinstance(found, list) else found["data"])]


@pytest.mark.parametrize("kind", ["devices", "groups", "keys"])
async def test_a_name_is_found_in_any_case(owner: ApiCaller, kind: str) -> None:
    path = "/devices/register" if kind == "devices" else f"/{kind}"
    more = {"boardType": "ESP32", "appType": "PUMP"} if kind == "devices" else {}
    for name in NAMES:
        await owner.send_ok("POST", path, {"name": name, **more})
    for name in NAMES:
        for text in (name, name.upper(), name.lower(), name.title(), name[:3].swapcase()):
            assert await names(owner, f"/{kind}?search={text}") == [name]
    assert await names(owner, f"/{kind}?search=nothing") == []


async def test_the_first_page_of_a_search_begins_with_word_beginnings(owner: ApiCaller) -> None:
    for name in ("Umbau A", "Neuer Bau A", "Bau B", "Bau A"):
        await owner.send_ok("POST", "/devices/register", {"name": name, "boardType": "ESP32", "appType": "PUMP"})
    assert await names(owner, "/devices?search=%22BAU A%22&limit=2") == ["Neuer Bau A", "Bau A"]
    first = await owner.send("GET", "/devices?search=%22BAU A%22&limit=2")
    link = first.headers["Link"]
    assert await names(owner, link[1 : link.index(">")].removeprefix("/api/v1")) == ["Umbau A"]
    assert await names(owner, "/devices?search=%22bau a%22&sort=created") == ["Umbau A", "Neuer Bau A", "Bau A"]


async def test_an_external_id_an_address_and_an_event_are_found(owner: ApiCaller) -> None:
    new = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP", "externalId": "Шлюз-7"}
    await owner.send_ok("POST", "/devices/register", new)
    assert await names(owner, "/devices?search=ШЛЮЗ-7") == ["Pump"]
    assert len(await names(owner, "/members?search=OWNER@EXAMPLE")) == 1
    assert await names(owner, "/members?search=somebody") == []
    await owner.send_ok("POST", "/projects", {"name": "Ωμέγας"})
    found = (await owner.send("GET", "/events?text=ΩΜΈΓΑΣ")).json()["data"]
    assert [event["description"] for event in found] == ["Project Ωμέγας was created"]
