"""The button «Sign in with …»: to the identity provider and back, with the page that was asked for; and its failures in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from support.browser import DESKTOP, PHONE, open_browser
from support.identity_provider import IdentityProvider
from support.service import Service

GRACE = {"sub": "grace-1", "email": "grace@example.com", "email_verified": True, "name": "Grace Hopper", "groups": ["plant"]}


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Service]:
    settings = {f"LATCHBOARD_{name.upper()}": value for name, value in provider.settings().items()}
    settings |= {"LATCHBOARD_OIDC_NAME": "Plant SSO", "LATCHBOARD_OIDC_AUTO_CREATE": "true", "LATCHBOARD_OIDC_SIGN_OUT": "true"}
    settings |= {"LATCHBOARD_OIDC_ROLE_CLAIM": "groups", "LATCHBOARD_OIDC_ROLE_MAP": "plant=Viewer,plant-admins=Admin"}
    service = Service(tmp_path_factory.mktemp("service"), **settings)
    service.settings["LATCHBOARD_PUBLIC_URL"] = service.url
    provider.client.redirect_uri = f"{service.url}/dashboard/session/oidc/callback"
    with service:
        yield service


@pytest.mark.parametrize(("size", "theme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
async def test_a_person_of_the_provider_signs_in_and_out(
    service: Service, provider: IdentityProvider, size: tuple[int, int], theme: Literal["dark", "light"]
) -> None:
    provider.person = dict(GRACE)
    async with open_browser(service, size, theme=theme) as browser:
        page = await browser.open_tab("#/log")
        button = page.get_by_role("button", name="Sign in with Plant SSO")
        await expect(button).to_be_visible()
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        await button.click()
        await expect(page.get_by_role("heading", name="Log")).to_be_visible()
        assert page.url == f"{service.url}/#/log"
        await page.reload()
        await expect(page.get_by_role("heading", name="Log")).to_be_visible()
        await page.goto(f"{service.url}/#/account")
        await expect(page.get_by_role("heading", name="Grace Hopper")).to_be_visible()
        await page.locator("header").get_by_role("button", name="Sign out", exact=True).click()
        await page.wait_for_url(f"{provider.issuer}/sign-out?**")


async def test_who_is_not_let_in_reads_why_in_german_too(service: Service, provider: IdentityProvider) -> None:
    provider.person = GRACE | {"sub": "mallory", "email": "mallory@example.com", "groups": []}
    async with open_browser(service, PHONE, language="de-DE") as browser:
        page = await browser.open_tab()
        await page.get_by_role("button", name="Anmelden mit Plant SSO").click()
        await expect(page.get_by_role("alert")).to_contain_text("gibt Ihnen hier keine Rolle")
        assert page.url == f"{service.url}/#/"
