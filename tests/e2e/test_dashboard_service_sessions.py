"""Service sessions in the browser: made for a purpose, shown once, used, listed with their last use, and revoked."""

from __future__ import annotations

from playwright.async_api import Page, expect

from support.browser import PHONE, find_faults, open_browser
from support.service import ApiClient, Service
from support.waiting import until

DEVICE = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


async def make(page: Page, name: str, purpose: str) -> None:
    await page.get_by_role("button", name="New service session").click()
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("What it is for").select_option(label=purpose)


async def token_of(page: Page) -> str:
    await page.get_by_role("button", name="Create").click()
    token = await page.get_by_label("Token", exact=True).input_value()
    assert token.startswith("lbs_")
    assert f"LATCHBOARD_TOKEN={token}" in await page.get_by_role("textbox", name="For the command line").input_value()
    await page.get_by_role("button", name="I have stored it").click()
    return token


async def test_one_is_made_for_a_fleet_file_used_and_revoked(service: Service, owner: ApiClient) -> None:
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/keys")
        await make(page, "fleet pipeline", "The fleet as a file")
        token = await token_of(page)
        sessions = page.get_by_role("list", name="Service sessions")
        entry = sessions.get_by_role("listitem").filter(has_text="fleet pipeline")
        await expect(entry).to_contain_text("last used never")
        await expect(entry).to_contain_text("changes Devices, Commands")
        assert await find_faults(page) == []

        async with service.api(Authorization=f"Bearer {token}") as pipeline:
            plan = await pipeline.post("/fleet/plan", {"document": {"version": 1, "projects": [{"name": "Barn"}]}})
            assert [each["name"] for each in plan["objects"]] == ["Barn"]
            await pipeline.get("/members", expect=403)
            await until(  # it is written every few seconds
                lambda: owner.get("/service-sessions"),
                lambda found: any(each["name"] == "fleet pipeline" and each["lastUsedAt"] for each in found),
            )
            await page.reload()
            await expect(entry).to_be_visible()
            await expect(entry).not_to_contain_text("never")
            await page.get_by_role("button", name="Revoke fleet pipeline").click()
            await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
            await expect(entry).to_have_count(0)
            await pipeline.get("/devices", expect=401)


async def test_its_operations_are_chosen_and_none_is_a_mistake_that_is_shown(service: Service, owner: ApiClient) -> None:
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.evaluate("localStorage.setItem('latchboard.language', 'de')")
        await page.reload()
        await page.goto(f"{service.url}/#/keys")
        await page.get_by_role("button", name="Neue Dienstsitzung").click()
        await page.get_by_label("Name").fill("Einrichtung")
        await page.get_by_label("Wofür sie ist").select_option(label="Etwas anderes: auswählen")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Anlegen").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("mindestens eines")
        assert await find_faults(page) == []
        await dialog.get_by_role("group", name="lesen und ändern").get_by_role("button", name="Geräte", exact=True).click()
        await dialog.get_by_role("group", name="nur lesen").get_by_role("button", name="Freigaben").click()
        await dialog.get_by_label("Rolle").select_option(label="Mitglied")
        await dialog.get_by_role("button", name="Anlegen").click()
        await page.get_by_role("button", name="Ich habe es gespeichert").click()
        [made] = [each for each in await owner.get("/service-sessions") if each["name"] == "Einrichtung"]
        assert (made["role"], made["operations"]) == ("Member", ["approvals:read", "devices:write"])
