"""Groups in the browser: made, filled, and sent a command that is shown beforehand and has an outcome for each device."""

from __future__ import annotations

from playwright.async_api import expect

from support.browser import PHONE, open_browser
from support.service import ApiClient, Service


async def test_a_group_is_made_and_a_command_is_previewed_sent_and_told(service: Service, owner: ApiClient) -> None:
    rows = [{"name": f"Pump {number}", "boardType": "ESP32", "appType": "PUMP"} for number in (1, 2, 3)]
    made = await owner.post("/devices/register/bulk", {"devices": rows, "credentials": "NEW"})
    first, second, _ = [each["deviceId"] for each in made["devices"]]
    await owner.patch(f"/devices/{second}/toggle", {})
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/fleet/groups")
        await expect(page.get_by_text("No groups yet")).to_be_visible()
        await page.get_by_role("button", name="New group").click()
        await page.get_by_label("Name").fill("Pumps")
        await page.get_by_role("button", name="Create").click()
        for name in ("Pump 1", "Pump 2"):
            await page.get_by_role("dialog").get_by_role("button", name=name).click()
        await page.get_by_role("button", name="Save").click()
        group = page.get_by_role("listitem", name="Pumps")
        await expect(group).to_contain_text("2 devices")

        await group.get_by_role("button", name="Send a command").click()
        await page.get_by_role("button", name="Preview").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("1 would be sent, 1 would be refused")
        await expect(dialog).to_contain_text("Pump 2:")
        assert (await owner.get(f"/devices/{first}/executions"))["data"] == []
        await page.get_by_role("button", name="Send to 1 device").click()
        outcomes = page.get_by_role("list", name="Outcome of each device")
        await expect(outcomes.get_by_role("listitem").filter(has_text="Pump 1")).to_contain_text("queued")
        await expect(outcomes.get_by_role("listitem").filter(has_text="Pump 2")).to_contain_text("refused")
        [execution] = (await owner.get(f"/devices/{first}/executions"))["data"]
        assert execution["cmd"] == "ON"
