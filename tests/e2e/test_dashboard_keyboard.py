"""The main jobs by the keyboard alone, while the page changes under the fingers: the focus stays where the person left it."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

from support.browser import open_browser
from support.device import create_device
from support.service import ApiClient, Service

MOST_TABS = 60


async def tab_to(page: Page, wanted: Locator) -> None:
    for _ in range(MOST_TABS):
        if await wanted.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{MOST_TABS} times Tab did not reach it")


async def test_a_device_is_found_and_switched_in_the_list_and_the_focus_survives_every_change(
    service: Service, owner: ApiClient
) -> None:
    pump, other = await create_device(owner, "Key pump"), await create_device(owner, "Key lamp")
    async with open_browser(service) as browser, pump.online(service) as device, other.online(service) as lamp:
        page = await browser.open_signed_in()
        await tab_to(page, page.get_by_role("searchbox", name="Find devices"))
        await page.keyboard.type("Key ")
        await page.keyboard.press("Enter")
        rows = page.get_by_role("list", name="Devices").get_by_role("listitem")
        await expect(rows).to_have_count(2)
        on, off = (page.get_by_role("button", name=f"{text}: Key pump", exact=True) for text in ("On", "Off"))
        await tab_to(page, on)
        await page.keyboard.press("Space")
        assert (await device.next_command())["cmd"] == "ON"
        await expect(on).to_have_attribute("aria-pressed", "true")
        await expect(on).to_be_focused()

        await lamp.press_button(True)
        await owner.call("PUT", other.path, {"location": "Cellar"}, 200)
        await create_device(owner, "Key fan")
        await expect(rows).to_have_count(3)
        await expect(on).to_be_focused()

        await page.keyboard.press("Shift+Tab")
        await expect(off).to_be_focused()
        await page.keyboard.press("Enter")
        assert (await device.next_command())["cmd"] == "OFF"
        await expect(off).to_have_attribute("aria-pressed", "true")
        await expect(off).to_be_focused()


async def test_a_request_is_approved_while_another_arrives_before_it(service: Service, owner: ApiClient) -> None:
    gate = await create_device(owner, "Guarded gate")
    await owner.post(f"{gate.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    async with (
        service.api(**{"X-Api-Key": key["key"]}) as robot,
        open_browser(service) as browser,
        gate.online(service) as device,
    ):
        first = await robot.post(f"{gate.path}/command", {"cmd": "OPEN", "reason": "the first"}, expect=202)
        page = await browser.open_signed_in()
        await tab_to(page, page.get_by_role("navigation").get_by_role("link", name="Approvals"))
        await page.keyboard.press("Enter")
        request = page.get_by_role("list", name="Waiting").get_by_role("listitem").filter(has_text="the first")
        approve = request.get_by_role("button", name="Approve").first
        await expect(approve).to_be_visible()
        await tab_to(page, approve)
        await robot.post(f"{gate.path}/command", {"cmd": "OPEN", "reason": "the second"}, expect=202)
        await expect(page.get_by_text("the second")).to_be_visible()
        await expect(approve).to_be_focused()
        await page.keyboard.press("Enter")
        assert (await device.next_command())["cmd"] == "OPEN"
        await expect(page.get_by_role("list", name="Waiting").get_by_role("listitem")).to_have_count(1)
        assert (await owner.get(f"{gate.path}/approvals/{first['approvalId']}"))["status"] == "APPROVED"
        await expect(
            page.get_by_role("heading", name="Approvals")
        ).to_be_focused()  # not the next request: Enter again decides nothing
