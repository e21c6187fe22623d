"""An Admin invites somebody in the dashboard; the invited person opens the link in another browser and chooses a password."""

from __future__ import annotations

from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from support.browser import DESKTOP, PHONE, open_browser
from support.service import Service

PASSWORD = "a password of her own"
Size = tuple[int, int]


@pytest.mark.parametrize(("size", "theme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
async def test_an_invited_person_joins_by_the_link(service: Service, size: Size, theme: Literal["dark", "light"]) -> None:
    name = f"Grace {size[0]}"
    async with open_browser(service, size, theme=theme) as browser:
        page = await browser.open_signed_in()
        link = await invite(page, name)
        await expect_accessible(page)
        async with open_browser(service, size, theme=theme) as hers:
            await accept(await hers.open_tab(link.split("/", 3)[3]), name)
        people = page.get_by_role("listitem", name=name)
        await page.goto(f"{service.url}/#/devices")
        await page.goto(f"{service.url}/#/team")
        await expect(people.get_by_text("Member", exact=True)).to_be_visible()


async def invite(page: Page, name: str) -> str:
    await page.goto(page.url.partition("#")[0] + "#/team")
    await page.get_by_role("button", name="Invite a person").click()
    await page.get_by_label("Name", exact=True).fill(name)
    await page.get_by_label("Email").fill(f"{name.replace(' ', '.')}@example.com")
    await page.get_by_role("button", name="Invite", exact=True).click()
    link = await page.get_by_label("Link", exact=True).input_value()
    await page.get_by_role("button", name="I have stored it").click()
    await expect(page.get_by_role("listitem", name=name).get_by_text("waits")).to_be_visible()
    return link


async def accept(page: Page, name: str) -> None:
    await expect(page.get_by_text("You are invited to")).to_be_visible()
    await expect_accessible(page)
    await page.get_by_label("Your new password").fill(PASSWORD)
    await page.get_by_role("button", name="Accept and sign in").click()
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("alert")).to_contain_text("wrong, expired, revoked or used")


async def test_a_withdrawn_link_is_refused_in_german_too(service: Service) -> None:
    async with open_browser(service, PHONE, language="de-DE") as browser:
        page = await browser.open_tab("#/invitation/abc")
        await expect(page.get_by_role("alert")).to_contain_text("Dieser Link ist falsch")
        await expect(page.get_by_role("link", name="Anmelden")).to_be_visible()


async def expect_accessible(page: Page) -> None:
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    width = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0
