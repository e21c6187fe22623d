"""More devices than a page shows: the browser holds one page of them, and the service searches, filters and sorts."""

from __future__ import annotations

from playwright.async_api import Page, Request, expect

from support.browser import DESKTOP, PHONE, open_browser
from support.service import ApiClient, Service

DEVICES, IN_ONE_REQUEST, ON_A_PAGE = 1_200, 200, 24
LAST = f"Relay-{DEVICES - 1:05d}"
"""One word, which the random id of no device can contain: the search looks in ids too."""
MAX_ELEMENTS = 1_500


async def register(owner: ApiClient) -> None:
    if (await owner.get("/devices/summary"))["total"]:
        return
    for start in range(0, DEVICES, IN_ONE_REQUEST):
        numbers = range(start, start + IN_ONE_REQUEST)
        rows = [{"name": f"Relay-{number:05d}", "boardType": "ESP32", "appType": "PUMP"} for number in numbers]
        await owner.post("/devices/register/bulk", {"devices": rows, "credentials": "NEW"})


async def count_elements(page: Page) -> int:
    return int(await page.evaluate("document.querySelectorAll('*').length"))


async def test_the_list_holds_one_page_and_finds_the_last_of_many(service: Service, owner: ApiClient) -> None:
    await register(owner)
    for size in (PHONE, DESKTOP):
        async with open_browser(service, size) as browser:
            page = await browser.open_signed_in()
            cards = page.locator(".device-card")
            await expect(cards).to_have_count(ON_A_PAGE)
            await expect(page.get_by_text(f"1 to {ON_A_PAGE} of 1,200")).to_be_visible()
            assert await count_elements(page) < MAX_ELEMENTS

            await page.get_by_label("Find devices").fill(LAST)
            await expect(cards).to_have_count(1)
            await expect(cards).to_contain_text(LAST)
            await page.get_by_label("Find devices").fill("")
            await page.get_by_role("button", name="Next page").click()
            await expect(cards.first).to_contain_text(f"Relay-{ON_A_PAGE:05d}")
            await expect(cards).to_have_count(ON_A_PAGE)
            assert await count_elements(page) < MAX_ELEMENTS


async def test_a_page_asks_for_no_device_that_it_does_not_show(service: Service, owner: ApiClient) -> None:
    """Neither the list, nor the choice of a group's members, nor the filter of the log loads them all."""
    await register(owner)
    asked: list[str] = []

    def note(request: Request) -> None:
        if "/api/v1/devices?" in request.url:
            asked.append(request.url)

    async with open_browser(service, DESKTOP) as browser:
        page = await browser.open_signed_in()
        page.on("request", note)
        group = await owner.post("/groups", {"name": "Relays"}, expect=201)
        await page.goto(f"{service.url}/#/fleet/groups/{group['groupId']}")
        await page.get_by_role("button", name="Choose devices").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("1,150 more devices match: search for them.")
        await page.get_by_label("Find devices").fill(LAST)
        await dialog.get_by_role("button", name=LAST).click()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("link", name=LAST)).to_be_visible()

        await page.goto(f"{service.url}/#/log")
        await page.get_by_role("button", name="Filter", exact=True).click()
        await page.get_by_label("Device", exact=True).fill("Relay")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(dialog).to_contain_text("1,200 devices match. Type more of its name.")
        await page.get_by_label("Device", exact=True).fill(LAST)
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.get_by_role("list").get_by_role("listitem").filter(has_text=LAST).first).to_be_visible()
        assert asked
        assert [url for url in asked if "limit=" not in url] == []
