"""A rule on a metric that the device has not reported yet, in the browser."""

from __future__ import annotations

from playwright.async_api import expect

from support.browser import PHONE, find_faults, open_browser
from support.device import create_device
from support.service import ApiClient, Service


async def test_a_metric_is_named_and_a_rule_made_on_it_before_the_device_connects(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner, "Cellar pump")
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/device/{pump.device_id}/rules")
        await page.get_by_role("button", name="New rule").first.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Name one that it will report")
        assert await find_faults(page) == []
        await dialog.get_by_label("Metric").fill("moisture")
        await dialog.get_by_role("button", name="Add").click()
        await page.get_by_role("textbox", name="Name", exact=True).fill("Dry")
        await page.get_by_label("Value").fill("20")
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("listitem", name="Dry")).to_be_visible()
        await page.get_by_role("button", name="Name a metric").click()
        await dialog.get_by_label("Metric").fill("depth")
        await dialog.get_by_role("button", name="Add").click()
        await expect(page.get_by_text("Rules can use it now: depth, moisture")).to_be_visible()
        assert await find_faults(page) == []
    [rule] = await owner.get(f"{pump.path}/rules")
    assert rule["conditions"][0]["metric"] == "moisture"
