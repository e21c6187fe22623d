"""A person with a passkey uses the dashboard in Chromium, whose virtual authenticator confirms with the finger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import CDPSession, Page, Route, expect

from support.browser import PHONE, Browser, expect_live, open_browser_without_worker
from support.device import create_device
from support.empty_database import empty_postgres
from support.service import EMAIL, PASSWORD, Service
from support.two_instances import DATABASES

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture(params=DATABASES)
async def own_service(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Service]:
    more: dict[str, Any] = {} if request.param == "sqlite" else {"LATCHBOARD_DATABASE_URL": await empty_postgres()}
    with Service(tmp_path, **more) as service:
        yield service


async def open_page(phone: Browser, *, is_verified: bool = True) -> tuple[Page, CDPSession, str]:
    """At the public address, with an authenticator: the page, its session of the debugger, the authenticator's id."""
    page = await phone.open_tab()
    debugger = await phone.context.new_cdp_session(page)
    await debugger.send("WebAuthn.enable")
    made = await debugger.send("WebAuthn.addVirtualAuthenticator", {"options": {**AUTHENTICATOR, "isUserVerified": is_verified}})
    await page.goto(f"http://localhost:{phone.service.port}/")
    return page, debugger, made["authenticatorId"]


async def enter_password(page: Page) -> None:
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def add_passkey(page: Page, name: str) -> None:
    await page.get_by_role("button", name="Add a passkey").click()
    await page.get_by_role("dialog").get_by_label("Name").fill(name)
    await page.get_by_role("dialog").get_by_role("button", name="Add").click()


async def refuse_once(page: Page, path: str, method: str) -> None:
    """As the service responds when the last proof is older than it may be (`tests/security/test_second_factor.py`)."""
    refused: list[str] = []

    async def handle(route: Route) -> None:
        if route.request.method != method or refused:
            await route.continue_()
        else:
            refused.append(route.request.url)
            body = {"error": "STEP_UP_REQUIRED", "message": "Confirm that it is you."}
            await route.fulfill(status=httpx.codes.FORBIDDEN, json=body)

    await page.route(path, handle)


async def test_a_passkey_is_added_signs_in_approves_and_is_removed_on_the_phone(own_service: Service) -> None:
    async with own_service.api() as owner, open_browser_without_worker(own_service, PHONE) as phone:
        gate = await create_device(owner, "Gate")
        await owner.post(f"{gate.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True}, expect=201)
        key = await owner.post("/keys", {"name": "Robot"}, expect=201)
        await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
        page, _, _ = await open_page(phone)
        await enter_password(page)
        await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
        await page.goto(f"http://localhost:{own_service.port}/#/second-factor")
        await add_passkey(page, "My phone")
        await expect(page.get_by_role("dialog").get_by_role("textbox", name="Recovery codes")).to_be_visible()
        await page.get_by_role("button", name="I have stored it").click()
        await expect(page.get_by_text("My phone")).to_be_visible()
        await expect(page.get_by_text("10 left")).to_be_visible()
        again = page.get_by_role("button", name="Add a passkey")
        await expect(again).not_to_have_attribute("aria-busy", "true")
        await again.click()
        await expect(page.get_by_text("This device has a passkey for you already.")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await sign_out(page)
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect_live(page)
        async with gate.online(own_service) as device, own_service.api(**{"X-Api-Key": key["key"]}) as robot:
            await robot.post(f"{gate.path}/command", {"cmd": "OPEN"}, expect=202)
            await refuse_once(page, "**/approve", "POST")
            await page.goto(f"http://localhost:{own_service.port}/#/approvals")
            await page.get_by_role("button", name="Approve").click()
            await page.get_by_role("dialog").get_by_role("button", name="Use a passkey").click()
            assert (await device.next_command())["cmd"] == "OPEN"
        await sign_out(page)
        await enter_password(page)
        await page.get_by_role("button", name="Use a passkey").click()
        await expect_live(page)
        await page.goto(f"http://localhost:{own_service.port}/#/second-factor")
        await page.get_by_role("button", name="Remove").click()
        await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await expect(page.get_by_text("My phone")).to_have_count(0)
        await expect(page.get_by_role("heading", name="Recovery codes")).to_have_count(0)


async def sign_out(page: Page) -> None:
    await page.goto(f"{page.url.split('#')[0]}#/account")
    await page.locator("header").get_by_role("button", name="Sign out", exact=True).click()
    await expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


async def test_who_must_have_a_factor_takes_a_passkey_and_one_that_checks_nobody_is_told(tmp_path: Path) -> None:
    with Service(tmp_path, LATCHBOARD_REQUIRE_SECOND_FACTOR="all") as service:
        async with open_browser_without_worker(service, PHONE) as phone:
            page, debugger, authenticator = await open_page(phone, is_verified=False)
            await enter_password(page)
            await expect(page.get_by_role("heading", name="Set up a second factor")).to_be_visible()
            await page.get_by_role("button", name="Add a passkey").click()
            await expect(page.get_by_text("No passkey was used.")).to_be_visible()
            verified = {"authenticatorId": authenticator, "isUserVerified": True}
            await debugger.send("WebAuthn.setUserVerified", verified)
            await add_passkey(page, "Key")
            await page.get_by_role("button", name="I have stored it").click()
            await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
            await expect_live(page)
