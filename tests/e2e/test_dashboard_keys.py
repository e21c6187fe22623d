"""API keys in the browser: an end and networks at the start and later, and a new secret beside the old one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from playwright.async_api import expect

from support.browser import DESKTOP, open_browser_without_worker
from support.service import ApiClient, Service


async def test_a_key_is_limited_and_its_secret_is_replaced(service: Service, owner: ApiClient) -> None:
    ends = (datetime.now() + timedelta(days=3)).replace(second=0, microsecond=0)
    async with open_browser_without_worker(service, DESKTOP) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/keys")
        await page.get_by_role("button", name="New key").first.click()
        form = page.get_by_role("dialog", name="New API key")
        await form.get_by_label("Name").fill("Robot")
        await form.get_by_label("Ends on").fill(ends.isoformat(timespec="minutes"))
        await form.get_by_label("Only from these networks").fill("127.0.0.0/8 2001:db8::/32")
        await form.get_by_role("button", name="Create", exact=True).click()
        await page.get_by_role("dialog", name="The new key").get_by_role("button", name="I have stored it").click()
        [made] = await owner.get("/keys")
        assert made["allowedNetworks"] == ["127.0.0.0/8", "2001:db8::/32"]
        assert timedelta(days=1) < datetime.fromisoformat(made["expiresAt"]) - datetime.now(UTC) < timedelta(days=5)

        line = page.get_by_role("listitem", name="Robot")
        await expect(line).to_contain_text("ends soon")
        await expect(line).to_contain_text("only from 127.0.0.0/8, 2001:db8::/32")
        await line.get_by_role("button", name="Limits").click()
        limits = page.get_by_role("dialog", name="Limits of “Robot”")
        await limits.get_by_label("Ends on").fill("")
        await limits.get_by_role("button", name="Save").click()
        await expect(line).not_to_contain_text("ends soon")
        [limited] = await owner.get("/keys")
        assert (limited["expiresAt"], limited["allowedNetworks"]) == (None, made["allowedNetworks"])

        await line.get_by_role("button", name="Replace").click()
        await page.get_by_role("dialog").get_by_role("button", name="Replace").click()
        shown = page.get_by_role("dialog", name="The new key")
        await expect(shown.get_by_label("Key", exact=True)).to_have_value(re.compile("^sk_live_"))
        await shown.get_by_role("button", name="I have stored it").click()
        await expect(line).to_contain_text(f"the old key {made['prefix']}… ends")
    [replaced] = await owner.get("/keys")
    assert replaced["previousPrefix"] == made["prefix"] != replaced["prefix"]
