"""A person with a second factor uses the dashboard: its sign-in asks for the code, and so does an approval after a while."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pyotp
import pytest
from playwright.async_api import Page, Route, WebSocketRoute, expect

from support.browser import PHONE, Browser, expect_live, open_browser_without_worker
from support.device import create_device
from support.service import EMAIL, PASSWORD, ApiClient, Service


@pytest.fixture
async def phone(service: Service) -> AsyncIterator[Browser]:
    async with open_browser_without_worker(service, PHONE) as made:
        yield made


async def set_up(owner: ApiClient) -> tuple[pyotp.TOTP, list[str]]:
    setup = await owner.post("/auth/second-factor/totp")
    app = pyotp.TOTP(setup["secret"])
    confirmed = await owner.post("/auth/second-factor/totp/confirm", {"code": app.at(int(time.time()))})
    return app, confirmed["recoveryCodes"]


async def enter_password(page: Page) -> None:
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()


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
    await expect_live(page)  # only what comes live is announced
    async with gate.online(service) as device, service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{gate.path}/command", {"cmd": "OPEN"}, expect=202)
        await let_the_first_call_need_a_proof(page, "**/approve", "POST")
        await page.get_by_role("link", name="Gate waits for an approval").click()
        await page.get_by_role("button", name="Approve").click()
        await enter_code(page, recovery_codes[0])
        assert (await device.next_command())["cmd"] == "OPEN"


async def set_up_in(page: Page) -> tuple[pyotp.TOTP, list[str]]:
    """From the button to the recovery codes, which are downloaded as well."""
    await page.get_by_role("button", name="Set up an authenticator app").click()
    await expect(page.get_by_role("img", name="QR code for the authenticator app")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    app = pyotp.TOTP((await page.locator("code.typed").inner_text()).replace(" ", ""))
    await page.get_by_label("Code", exact=True).fill("000000")
    await page.get_by_role("button", name="Turn on").click()
    await expect(page.get_by_text("This code is wrong")).to_be_visible()
    await page.get_by_label("Code", exact=True).fill(app.at(int(time.time())))
    await page.get_by_role("button", name="Turn on").click()
    shown = page.get_by_role("dialog")
    codes = (await shown.get_by_role("textbox", name="Recovery codes").input_value()).split()
    await page.keyboard.press("Escape")
    await expect(shown).to_be_visible()
    async with page.expect_download() as download:
        await shown.get_by_role("button", name="Download").click()
    assert (await (await download.value).path()).read_text().split() == codes
    await shown.get_by_role("button", name="I have stored it").click()
    return app, codes


async def test_a_person_sets_the_second_factor_up_on_the_phone_renews_the_codes_and_turns_it_off(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with open_browser_without_worker(service, PHONE) as phone:
            await set_up_renew_and_turn_off(phone)


async def set_up_renew_and_turn_off(phone: Browser) -> None:
    page = await phone.open_signed_in()
    await page.goto(f"{phone.service.url}/#/account")
    await page.get_by_role("link", name="Set up").click()
    _, codes = await set_up_in(page)
    await expect(page.get_by_text("10 left")).to_be_visible()
    await page.get_by_role("button", name="Make new codes").click()
    shown = page.get_by_role("dialog").get_by_role("textbox", name="Recovery codes")
    renewed = (await shown.input_value()).split()
    assert len(renewed) == 10
    assert not set(renewed) & set(codes)
    await page.get_by_role("button", name="I have stored it").click()
    await let_the_first_call_need_a_proof(page, "**/auth/second-factor/totp", "DELETE")
    await page.get_by_role("button", name="Turn off").click()
    await page.get_by_role("dialog").get_by_role("button", name="Turn off").click()
    await enter_code(page, renewed[0])
    await expect(page.get_by_role("button", name="Set up an authenticator app")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name="Set up an authenticator app")).to_be_visible()


async def test_who_must_have_a_second_factor_sets_it_up_after_the_sign_in_and_goes_on(tmp_path: Path) -> None:
    with Service(tmp_path, LATCHBOARD_REQUIRE_SECOND_FACTOR="admins") as service:
        async with open_browser_without_worker(service, PHONE, language="de-DE") as browser:
            page = await browser.open_tab()
            await page.get_by_label("E-Mail").fill(EMAIL)
            await page.get_by_label("Passwort").fill(PASSWORD)
            await page.get_by_role("button", name="Anmelden", exact=True).click()
            await expect(page.get_by_role("heading", name="Einen zweiten Faktor einrichten")).to_be_visible()
            await expect(page.get_by_role("navigation")).to_have_count(0)
        async with open_browser_without_worker(service, PHONE) as browser:
            page = await browser.open_tab()
            await enter_password(page)
            await let_the_first_call_need_a_proof(page, "**/second-factor/totp", "POST")
            await page.get_by_role("button", name="Set up an authenticator app").click()
            await page.get_by_role("dialog").get_by_label("Your password").fill(PASSWORD)
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("img", name="QR code for the authenticator app")).to_be_visible()
            await page.reload()
            await set_up_in(page)
            await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
            await expect_live(page)
            await page.goto(f"{service.url}/#/second-factor")
            await expect(page.get_by_text("it cannot be turned off")).to_be_visible()
            await expect(page.get_by_role("button", name="Turn off")).to_have_count(0)


async def let_the_first_call_need_a_proof(page: Page, path: str, method: str) -> None:
    """As the service responds when the last proof is older than it may be (`tests/security/test_second_factor.py`)."""
    refusal = {"success": False, "error": "STEP_UP_REQUIRED", "message": "Confirm that it is you."}
    refused: list[str] = []

    async def refuse(route: Route) -> None:
        if route.request.method != method or refused:
            await route.continue_()
        else:
            refused.append(route.request.url)
            await route.fulfill(status=httpx.codes.FORBIDDEN, json=refusal)

    await page.route(path, refuse)


async def test_a_feed_that_ends_because_a_second_factor_is_needed_now_is_not_opened_again(tmp_path: Path) -> None:
    """As for a Member who is made an Admin: the feed ends with 4001, and the service asks for a second factor."""
    needed, opened = False, 0

    async def answer(route: Route) -> None:
        status = {"enabled": False, "required": needed, "totp": False, "passkeys": 0, "recoveryCodesLeft": 0}
        await route.fulfill(json=status)

    async def end(socket: WebSocketRoute) -> None:
        nonlocal needed, opened
        needed, opened = True, opened + 1
        await socket.close(code=4001, reason="Your role needs a second factor here.")

    with Service(tmp_path) as service:
        async with open_browser_without_worker(service, PHONE) as phone:
            page = await phone.open_signed_in()
            await page.route("**/api/v1/auth/second-factor", answer)
            await page.route_web_socket("**/api/v1/ws?**", end)
            await page.reload()
            await expect(page.get_by_role("heading", name="Set up a second factor")).to_be_visible()
            await page.wait_for_timeout(1_500)  # the first pause before a new connection is half a second
    assert opened == 1
