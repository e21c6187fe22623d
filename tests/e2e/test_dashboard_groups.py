"""Groups in the browser: made, filled, and sent a command that is shown beforehand and has an outcome for each device."""

from __future__ import annotations

from playwright.async_api import expect

from support.browser import DESKTOP, PHONE, find_faults, open_browser
from support.device import create_device
from support.service import ApiClient, Service


async def test_a_group_is_made_and_a_command_is_previewed_sent_and_told(service: Service, owner: ApiClient) -> None:
    for group in await owner.get("/groups"):
        await owner.delete(f"/groups/{group['groupId']}")
    rows = [{"name": f"Pump {number}", "boardType": "ESP32", "appType": "PUMP"} for number in (1, 2, 3)]
    made = await owner.post("/devices/register/bulk", {"devices": rows, "credentials": "NEW"})
    first, second, _ = [each["deviceId"] for each in made["devices"]]
    await owner.patch(f"/devices/{second}/toggle", {})
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/fleet/groups")
        await expect(page.get_by_text("No groups yet")).to_be_visible()
        await page.get_by_role("button", name="New group").first.click()
        await page.get_by_label("Name").fill("Pumps")
        await page.get_by_role("button", name="Create").click()
        for name in ("Pump 1", "Pump 2"):
            await page.get_by_role("dialog").get_by_role("button", name=name).click()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Pumps", exact=True)).to_be_visible()
        await expect(page.get_by_role("list", name="Devices of “Pumps”").get_by_role("listitem")).to_have_count(2)

        await page.get_by_role("button", name="Send a command").click()
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


async def test_slots_rules_and_grants_of_a_group_are_made_on_its_page(service: Service, owner: ApiClient) -> None:
    """Who is meant is said before, and the report says what became of each device."""
    first, second = await create_device(owner, "Fan 1"), await create_device(owner, "Fan 2")
    async with first.online(service) as line:
        await line.report(temperature=21)
    made = await owner.post("/groups", {"name": "Fans", "deviceIds": [first.device_id, second.device_id]}, expect=201)
    await owner.post("/keys", {"name": "Robot"}, expect=201)
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/fleet/groups/{made['groupId']}")
        dialog, outcomes = page.get_by_role("dialog"), page.get_by_role("list", name="Outcome of each device")

        await page.get_by_role("button", name="Plan a slot").click()
        await expect(dialog).to_contain_text("For 2 devices: Fan 1, Fan 2.")
        await page.get_by_label("Slot", exact=True).select_option("2")
        await page.get_by_role("button", name="Next").click()
        await page.get_by_label("Label").fill("Airing")
        await page.get_by_role("button", name="Save").click()
        await expect(outcomes.get_by_role("listitem").filter(has_text="done")).to_have_count(2)
        for device in (first, second):
            [slot] = await owner.get(f"{device.path}/schedules")
            assert (slot["slot"], slot["label"]) == (2, "Airing")

        await page.get_by_role("button", name="New rule").click()
        await expect(dialog).to_contain_text("It is tried on Fan 1.")
        await page.get_by_label("Name").fill("Warm")
        await page.get_by_label("Value").fill("30")
        await page.get_by_role("button", name="Save").click()
        await expect(outcomes.get_by_role("listitem").filter(has_text="Fan 1")).to_contain_text("done")
        await expect(outcomes.get_by_role("listitem").filter(has_text="Fan 2")).to_contain_text("refused")
        assert [rule["name"] for rule in await owner.get(f"{first.path}/rules")] == ["Warm"]

        await page.get_by_role("button", name="Cancel a slot").click()
        await page.get_by_label("Slot", exact=True).select_option("2")
        await page.get_by_role("button", name="Cancel the slot").click()
        await expect(outcomes.get_by_role("listitem").filter(has_text="done")).to_have_count(2)
        assert await owner.get(f"{second.path}/schedules") == []

        await page.get_by_role("button", name="New grant").first.click()
        await page.get_by_label("Who").select_option(label="Robot (API key)")
        await page.get_by_role("button", name="Grant", exact=True).click()
        await expect(page.get_by_text("every device of the group")).to_be_visible()
        [grant] = await owner.get(f"/groups/{made['groupId']}/grants")
        assert grant["commands"] == ["ON", "OFF"]
        assert await find_faults(page) == []
        await page.goto(f"{service.url}/#/device/{first.device_id}/access")
        await expect(page.get_by_text("a group of devices")).to_be_visible()
        await expect(page.get_by_role("link", name="Change it at its group")).to_be_visible()


async def test_the_device_list_is_filtered_by_group_and_tag(service: Service, owner: ApiClient) -> None:
    lamp, other = await create_device(owner, "Hall lamp"), await create_device(owner, "Yard lamp")
    await owner.call("PUT", lamp.path, {"tags": ["hall", "night"]}, 200)
    await owner.call("PUT", other.path, {"tags": ["hallway"]}, 200)
    await owner.post("/groups", {"name": "Lamps", "deviceIds": [lamp.device_id, other.device_id]}, expect=201)
    async with open_browser(service, DESKTOP) as browser:
        page = await browser.open_signed_in()
        cards = page.get_by_role("list", name="Devices", exact=True).get_by_role("listitem")
        await page.get_by_label("Group", exact=True).select_option("Lamps")
        await expect(cards).to_have_count(2)
        await page.get_by_role("link", name="hall", exact=True).click()
        await expect(cards).to_have_count(1)
        await expect(cards).to_contain_text("Hall lamp")
        await page.get_by_role("button", name="Show devices without the tag hall too").click()
        await expect(cards.filter(has_text="Yard lamp")).to_be_visible()
