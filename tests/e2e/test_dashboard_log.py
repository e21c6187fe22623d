"""The log and the history of a device in a browser: live, complete, and in the reader's language."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from playwright.async_api import Page, Route, expect

from support import mqtt_packets as wire
from support.browser import PHONE, open_browser_without_worker
from support.device import Device, create_device
from support.mqtt_packets import open_raw
from support.service import ApiClient, Service

COMMANDS = 30
"""Each makes two events or three: more than a page of 50."""


async def switch(owner: ApiClient, device: Device, times: int, word: str) -> None:
    for number in range(times):
        command = {"cmd": ("ON", "OFF")[number % 2], "reason": f"{word} {number}", "waitSeconds": 30}
        assert (await owner.post(f"{device.path}/command", command))["status"] == "DONE"


async def all_descriptions(owner: ApiClient, device: Device) -> list[str]:
    """Of the device's events, newest first, as the API tells them."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await owner.get(f"/events?deviceId={device.device_id}&limit=200{cursor}")
        found += [each["description"] for each in page["data"]]
        if not page["hasMore"]:
            return found
        cursor = f"&cursor={page['cursor']}"


async def shown_descriptions(page: Page) -> list[str]:
    return await page.locator(".event .grow > span").all_inner_texts()


@pytest.mark.parametrize("place", ["log?deviceId={}", "device/{}/history"], ids=["log", "history"])
async def test_events_that_arrive_while_more_is_loaded_are_shown_once_and_push_none_out(
    service: Service, owner: ApiClient, place: str
) -> None:
    device = await create_device(owner, "Busy pump")
    async with open_browser_without_worker(service) as browser, device.online(service):
        await switch(owner, device, COMMANDS, "before")
        page = await browser.open_signed_in()
        held, release = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            held.set()
            await release.wait()
            await route.continue_()

        await page.goto(f"{service.url}/#/{place.format(device.device_id)}")
        await expect(page.locator(".event")).to_have_count(50)
        await page.route("**/api/v1/events?*cursor=*", hold)
        more = page.get_by_role("button", name="Show more")
        await more.click()
        await held.wait()
        await switch(owner, device, 6, "meanwhile")
        await expect(page.get_by_text("meanwhile 5")).to_be_visible()
        release.set()
        await expect(page.get_by_text("before 0", exact=False).last).to_be_visible()
        await expect(more).to_have_count(0)
        assert await shown_descriptions(page) == await all_descriptions(owner, device)

        await switch(owner, device, 4, "afterwards")
        await expect(page.get_by_text("afterwards 3")).to_be_visible()
        await expect(page.locator(".event")).to_have_count(len(await all_descriptions(owner, device)))
        assert await shown_descriptions(page) == await all_descriptions(owner, device)


async def test_the_log_is_german_for_a_german_reader(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner, "Pumpe")
    await owner.post(f"{device.path}/commands", {"name": "OPEN", "label": "Open"}, expect=201)
    tomorrow = int(time.time()) + 86_400
    await owner.post(f"{device.path}/schedules", {"slot": 0, "onTs": tomorrow, "offTs": tomorrow + 60}, expect=201)
    await owner.post(f"{device.path}/metrics", {"metrics": ["temperature"]})
    frost = {"metric": "temperature", "comparator": "<", "value": 0}
    await owner.post(f"{device.path}/rules", {"name": "Frost", "conditions": [frost], "action": {"command": "OFF"}}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{device.path}/grants", {"apiKeyId": key["keyId"], "commands": ["OPEN"]}, expect=201)
    async with device.online(service):
        await switch(owner, device, 1, "Probelauf")
        async with open_browser_without_worker(service, PHONE, language="de-DE") as browser:
            page = await browser.open_signed_in()
            await page.goto(f"{service.url}/#/device/{device.device_id}/history")
            for text in (
                "Relais: ein",
                "Befehl ON: erledigt",
                "Befehl ON für das Gerät angenommen: Probelauf 0",
                "Zugangsdaten erzeugt",
                "Befehl festgelegt: OPEN",
                "Platz 0: Zeitplan angelegt",
                "Regel angelegt: Frost",
                f"Recht vergeben: OPEN für {key['keyId']} auf diesem Gerät",
            ):
                await expect(page.get_by_text(text, exact=True).first).to_be_visible()
            assert not [each for each in await shown_descriptions(page) if each in await all_descriptions(owner, device)]


async def test_a_history_that_opens_while_the_device_switches_is_shown(service: Service, owner: ApiClient) -> None:
    """Head and history of the page load the same names; the head begins again with each change, and must not end that request."""
    device = await create_device(owner, "Busy pump")
    async with open_browser_without_worker(service) as browser, device.online(service):
        page = await browser.open_signed_in()
        held, release = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            held.set()
            await release.wait()
            await route.continue_()

        await page.route("**/api/v1/members", hold)
        await page.goto(f"{service.url}/#/device/{device.device_id}/history")
        await held.wait()
        async with page.expect_request(f"**/api/v1/events?type=relay_changed&deviceId={device.device_id}*"):
            await switch(owner, device, 1, "meanwhile")
        release.set()
        await expect(page.get_by_text("Relay is on").first).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_the_switch_is_on_the_screen_of_a_german_reader_while_the_device_is_away(
    service: Service, owner: ApiClient
) -> None:
    """Its words are the longest then."""
    device = await create_device(owner, "Pumpe")
    async with device.online(service):
        await switch(owner, device, 1, "Probelauf")
    async with open_browser_without_worker(service, PHONE, language="de-DE") as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/device/{device.device_id}/rules")
        await expect(page.get_by_text("Ein, zuletzt bekannt").first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0


async def test_the_page_of_a_device_says_that_it_was_refused_and_why(service: Service, owner: ApiClient) -> None:
    pump, other = await create_device(owner, "Pump"), await create_device(owner, "Gate")
    async with open_browser_without_worker(service, PHONE, language="de-DE") as browser:
        page = await browser.open_signed_in()
        raw = await open_raw(service.mqtt_port, wire.connect(pump.device_id, "x" * 32))
        assert await raw.wait_closed()
        await raw.close()
        await expect_refusal(page, owner, pump, "WRONG_PASSWORD")
        async with pump.online(service) as line:
            await line.client.subscribe(other.topic("cmd"))
        await expect_refusal(page, owner, pump, "TOPIC_NOT_ALLOWED", other.topic("cmd"))


async def expect_refusal(page: Page, owner: ApiClient, device: Device, *words: str) -> None:
    """The reason, and the topic if there is one, on the page of the device."""
    await owner.wait_until(device.path, lambda found: (found["health"]["lastRefusal"] or {}).get("reason") == words[0])
    await page.goto(page.url.partition("#")[0] + "#/more")
    await page.goto(page.url.partition("#")[0] + f"#/device/{device.device_id}/control")
    await expect(page.get_by_text(re.compile(rf"Es wurde abgewiesen, .*: {re.escape(', '.join(words))}$"))).to_be_visible()
