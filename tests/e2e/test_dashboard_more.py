"""Lists with more rows than a page, on a phone: “Show more” keeps the rows, the focus stays, and what comes meanwhile is put before them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx
import pytest
from playwright.async_api import Locator, expect

from support.browser import PHONE, open_browser
from support.device import create_device
from support.service import ApiClient, Service


@dataclass(frozen=True)
class LongList:
    """`add(n)` makes a row with the text `row n`; `undecided` one that the page has in another list."""

    place: str
    title: str
    page_size: int
    add: Callable[[int], Awaitable[object]]
    undecided: Callable[[int], Awaitable[object]] | None = None


async def list_of_approvals(service: Service, owner: ApiClient) -> LongList:
    device = await create_device(owner, "Gate")
    await owner.post(f"{device.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{device.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)

    async def ask(number: int) -> str:
        async with service.api(**{"X-Api-Key": key["key"]}) as robot:
            body = {"cmd": "OPEN", "reason": f"row {number}."}
            return str((await robot.post(f"{device.path}/command", body, expect=202))["approvalId"])

    async def decide(number: int) -> None:
        await owner.post(f"{device.path}/approvals/{await ask(number)}/deny")

    return LongList("approvals", "Decided", 25, decide, ask)


async def list_of_claims(service: Service, owner: ApiClient) -> LongList:
    codes = {}
    for approval in (False, True):
        kind = {"name": "Hall", "boardType": "ESP32", "appType": "PUMP", "maxDevices": 1000, "requiresApproval": approval}
        expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))
        codes[approval] = (await owner.post("/provisioning-codes", {**kind, "expiresAt": expiry}, expect=201))["code"]

    def claim(approval: bool) -> Callable[[int], Awaitable[object]]:
        async def send(number: int) -> None:
            async with httpx.AsyncClient(base_url=service.url, verify=False) as board:
                body = {"code": codes[approval], "hardwareId": f"row-{number}.", "name": f"row {number}."}
                answer = await board.post("/api/v1/provisioning/claim", json=body)
                assert answer.is_success, answer.text

        return send

    return LongList("fleet/codes", "Decided claims", 50, claim(False), claim(True))


async def list_of_executions(service: Service, owner: ApiClient) -> LongList:
    device = await create_device(owner, "Pump")
    schema = {"type": "object", "properties": {"note": {"type": "string"}}}
    await owner.post(f"{device.path}/commands", {"name": "NOTE", "label": "Note", "paramsSchema": schema}, expect=201)

    async def send(number: int) -> None:
        await owner.post(f"{device.path}/command", {"cmd": "NOTE", "params": {"note": f"row {number}."}})

    return LongList(f"device/{device.device_id}", "Sent to the device", 20, send)


async def list_of_past_slots(service: Service, owner: ApiClient) -> LongList:
    device = await create_device(owner, "Lamp")

    async def cancel(number: int) -> None:
        slot = {"slot": 0, "onTs": int(time.time()) + 3600, "offTs": int(time.time()) + 7200, "label": f"row {number}."}
        await owner.post(f"{device.path}/schedules", slot, expect=201)
        await owner.delete(f"{device.path}/schedules/0")

    return LongList(f"device/{device.device_id}/schedules", "Past slots", 10, cancel)


LISTS: Mapping[str, Callable[[Service, ApiClient], Awaitable[LongList]]] = {
    "approvals": list_of_approvals,
    "claims": list_of_claims,
    "executions": list_of_executions,
    "past slots": list_of_past_slots,
}


async def expect_rows(card: Locator, newest: int, oldest: int) -> None:
    """Each of them once, the newest first."""
    await expect(card.get_by_role("listitem")).to_contain_text([f"row {number}." for number in range(newest, oldest - 1, -1)])


@pytest.mark.parametrize("name", LISTS)
async def test_more_rows_are_shown_and_stay_while_new_ones_come(name: str, service: Service, owner: ApiClient) -> None:
    shown = await LISTS[name](service, owner)
    size = shown.page_size
    total = 2 * size + 2
    for number in range(total):
        await shown.add(number)
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/{shown.place}")
        card = page.locator(".card", has=page.get_by_role("heading", name=shown.title, exact=True))
        more = card.get_by_role("button", name="Show more")
        await expect_rows(card, total - 1, total - size)
        await more.focus()
        await page.keyboard.press("Enter")
        await expect_rows(card, total - 1, total - 2 * size)
        await expect(more).to_be_focused()

        await shown.add(total)
        await expect_rows(card, total, total - 2 * size)
        await expect(more).to_be_focused()

        await page.keyboard.press("Enter")
        await expect_rows(card, total, 0)
        await expect(more).to_have_count(0)
        await expect(card.locator(".more")).to_be_focused()

        if shown.undecided is not None:  # a page of them, which this list does not show
            for number in range(size):
                await shown.undecided(total + 1 + number)
            await page.goto(f"{service.url}/#/devices")
            await expect(page.get_by_role("heading", name="Devices", exact=True)).to_be_visible()
            await page.goto(f"{service.url}/#/{shown.place}")
            await more.click()
            await expect_rows(card, total, total - size + 1)
        assert browser.errors == []
