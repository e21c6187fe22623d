"""A person with a second factor uses the dashboard: its sign-in asks for the code, and so does an approval after a while."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import httpx
import pyotp
import pytest
from playwright.async_api import Page, Route, expect

from support.browser import PHONE, Browser, open_browser
from support.device import create_device
from support.service import EMAIL, PASSWORD, ApiClient, Service


@pytest.fixture
async def phone(service: Service) -> AsyncIterator[Browser]:
    async with open_browser(service, PHONE) as made:
        yield made


async def set_up(owner: ApiClient) -> tuple[pyotp.TOTP, list[str]]:
    setup = await owner.post("/auth/second-factor/totp")
    app = pyotp.TOTP(setup["secret"])
    confirmed = await owner.post("/auth/second-factor/totp/confirm", {"code": app.at(int(time.time()))})
    return app, confirmed["recoveryCodes"]


async def enter_password(page: Page) -> None:
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()


async def enter_code(page: Page, code: str) -> None:
    await page.get_by_label("Code", exact=True).fill(code)
    await page.keyboard.press("Enter")


async def test_the_sign_in_asks_for_the_code_and_an_approval_asks_for_it_again(
    service: Service, owner: ApiClient, phone: Browser
) -> None:
    gate = await create_device(owner, "Gate")
    await owner.post(f"{gate.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    app, recovery_codes = await set_up(owner)
    page = await phone.open_tab()
    await enter_password(page)
    await expect(page.get_by_label("Code", exact=True)).to_be_focused()
    await enter_code(page, "no code")
    await expect(page.get_by_role("alert")).to_contain_text("The code is wrong")
    await page.get_by_role("button", name="Cancel").click()
    await enter_password(page)
    next_code = app.at(int(time.time()) + 30)  # the present one was used to set it up
    await enter_code(page, f"{next_code[:3]} {next_code[3:]}")
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    async with gate.online(service) as device, service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{gate.path}/command", {"cmd": "OPEN"}, expect=202)
        await let_the_first_approval_need_a_proof(page)
        await page.get_by_role("link", name="Gate waits for an approval").click()
        await page.get_by_role("button", name="Approve").click()
        await enter_code(page, recovery_codes[0])
        assert (await device.next_command())["cmd"] == "OPEN"


async def let_the_first_approval_need_a_proof(page: Page) -> None:
    """As the service responds when the sign-in is older than 15 minutes (`tests/security/test_second_factor.py`)."""
    refusal = {"success": False, "error": "STEP_UP_REQUIRED", "message": "Confirm that it is you."}

    async def refuse(route: Route) -> None:
        await route.fulfill(status=httpx.codes.FORBIDDEN, json=refusal)

    await page.route("**/approve", refuse, times=1)
