"""Many devices in the browser: from a CSV file to the lines for two hundred relays, in a handful of clicks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiomqtt
import httpx
from playwright.async_api import FilePayload, expect

from support.browser import DESKTOP, PHONE, open_browser
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

RELAYS = 200
COUNT_CLICKS = (
    "window.clicks = 0; window.addEventListener('click', (event) => { window.clicks += event.isTrusted && event.detail; }, true)"
)
IN_THE_FILE_DIALOG = 2
"""The button that opens the system's dialog, and the file in it: the test sets the file without them."""


def relay_file(count: int, *, wrong: bool = False) -> FilePayload:
    lines = ["name;externalId;location;tags;address"]
    lines += [f'"Relay; {number}";TAS-{number:04d};Hall {number % 4};hall|light;192.0.2.{number}' for number in range(count)]
    if wrong:
        lines[2] = ";TAS-0001;;;"
    content = "\ufeff" + "\r\n".join(lines) + "\r\n"
    return FilePayload(name="relays.csv", mimeType="text/csv", buffer=content.encode())


async def test_two_hundred_relays_are_registered_and_get_their_lines(service: Service, owner: ApiClient) -> None:
    async with open_browser(service, DESKTOP) as browser:
        page = await browser.open_signed_in()
        await page.evaluate(COUNT_CLICKS)
        await page.get_by_role("link", name="Add many").first.click()
        chooser = page.get_by_label("CSV file")
        await chooser.set_input_files(relay_file(3, wrong=True))
        await expect(page.get_by_role("alert")).to_contain_text("Line 3: the name is missing.")
        await expect(page.get_by_role("button", name="Register")).to_have_count(0)
        await chooser.set_input_files(relay_file(RELAYS))
        await expect(page.get_by_text("Kept in the files that you get")).to_contain_text("address")
        await page.get_by_role("button", name=f"Register {RELAYS} devices").click()
        await expect(page.get_by_text(f"{RELAYS} registered")).to_be_visible()
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="Download the lines").click()
        clicks = await page.evaluate("window.clicks") + IN_THE_FILE_DIALOG
        assert clicks == 5, "docs/tutorials/tasmota-fleet.md says five"
        lines = (await (await waiting.value).path()).read_text(encoding="utf-8").splitlines()
        assert len(lines) == RELAYS
        address, device_id, line = lines[7].split("\t")
        [device] = await owner.get("/devices?externalId=TAS-0007")
        assert (address, device_id, device["name"]) == ("192.0.2.7", device["deviceId"], "Relay; 7")
        assert line.startswith("Backlog MqttHost ")
        assert f"MqttUser {device_id}" in line
        assert (device["tags"], device["location"], device["profile"]) == (["hall", "light"], "Hall 3", "tasmota")
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="Download the table").click()
        assert (await (await waiting.value).path()).read_text(encoding="utf-8").count("CREATED") == RELAYS

    async with open_browser(service, PHONE, language="de-DE") as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/fleet/add")
        await page.get_by_label("CSV-Datei").set_input_files(relay_file(RELAYS + 1))
        await page.get_by_role("button", name=f"{RELAYS + 1} Geräte anlegen").click()
        await expect(page.get_by_text(f"{RELAYS} schon da")).to_be_visible()
        await expect(page.get_by_text("1 angelegt")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_a_kill_amid_the_file_leaves_no_device_twice(service: Service, owner: ApiClient) -> None:
    def rows(start: int) -> list[dict[str, Any]]:
        return [
            {"name": f"K{at}", "boardType": "TASMOTA", "appType": "RELAY", "externalId": f"K-{at}"}
            for at in range(start, start + 100)
        ]

    async def send(start: int) -> dict[str, Any] | None:
        with contextlib.suppress(httpx.TransportError):
            answer: dict[str, Any] = await owner.post("/devices/register/bulk", {"devices": rows(start), "credentials": "NEW"})
            return answer
        return None

    sending = [asyncio.create_task(send(start)) for start in range(0, 600, 100)]
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    await service.kill_and_restart()
    first = await asyncio.gather(*sending)
    assert None in first, "the kill came too late"
    for start, before in zip(range(0, 600, 100), first, strict=True):
        again = await owner.post("/devices/register/bulk", {"devices": rows(start), "credentials": "UNUSED"})
        assert again["created"] in (0, 100), "one request is one transaction"
        assert again["failed"] == 0
        assert before is None or again["existing"] == 100
        assert all(each["credentials"] for each in again["devices"]), "a lost answer loses no device"
    ids = [each["externalId"] for each in await owner.get("/devices")]
    assert sorted(each for each in ids if each and each.startswith("K-")) == sorted(f"K-{at}" for at in range(600))


async def test_a_board_with_a_provisioning_code_waits_is_approved_and_connects(service: Service) -> None:
    async with open_browser(service, PHONE) as browser, httpx.AsyncClient(base_url=service.url, timeout=TIMEOUT_S) as board:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/fleet/codes")
        await page.get_by_role("button", name="New code").click()
        await page.get_by_label("Name").fill("Hall 3")
        await page.get_by_role("button", name="Create").click()
        code = await page.get_by_role("textbox", name="Code").input_value()
        await page.get_by_role("button", name="I have stored it").click()
        claim = {"code": code, "hardwareId": "AA:BB:CC:DD:EE:01", "claimToken": "t" * 32}
        waiting, decided = (page.get_by_role("list", name=name) for name in ("Waiting for approval", "Decided claims"))
        assert (await board.post("/api/v1/provisioning/claim", json=claim)).json()["status"] == "PENDING"
        await expect(waiting.get_by_text("from 127.0.0.1")).to_be_visible()
        await expect(page.get_by_text("A decision is for the one board that asked")).to_be_visible()
        await waiting.get_by_role("button", name="Deny").click()
        assert (await board.post("/api/v1/provisioning/claim", json=claim)).json()["error"] == "CLAIM_DENIED"
        await expect(decided.get_by_role("button", name="Approve")).to_have_count(0)
        await decided.get_by_role("button", name="Forget the claim of AA:BB:CC:DD:EE:01").click()
        await page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        await expect(decided).to_have_count(0)
        assert (await board.post("/api/v1/provisioning/claim", json=claim)).json()["status"] == "PENDING"
        await waiting.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("No device waits.")).to_be_visible()
        given = (await board.post("/api/v1/provisioning/claim", json=claim)).json()
        await expect(page.get_by_text("has its credentials")).to_be_visible()
        await expect(decided.get_by_role("button")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    user, password = given["mqttUsername"], given["mqttPassword"]
    async with aiomqtt.Client(given["mqttHost"], given["mqttPort"], username=user, password=password, identifier=user) as device:
        await device.publish(f"{given['topicPrefix']}/status", "online", qos=1)
