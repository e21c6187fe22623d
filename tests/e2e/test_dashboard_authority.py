"""In the dashboard: what outlives a session asks for a proof in the flow; after a sign-out everywhere each channel is confirmed
again, and what was made lately is ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from support.browser import DESKTOP, PHONE, find_faults, open_browser_without_worker
from support.service import PASSWORD, ApiClient, Service

NTFY = {"name": "Phone", "ntfy": {"url": "https://ntfy.example", "topic": "latch-topic", "token": "tk_secret"}}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    """Each test has its own: one of them ends all sessions."""
    with Service(tmp_path) as service:
        yield service


async def let_the_first_call_need_a_proof(page: Page, path: str, method: str) -> None:
    """As the service responds when the last proof is older than it may be (`tests/security/test_authority.py`)."""
    refused: list[str] = []

    async def refuse(route: Route) -> None:
        if route.request.method != method or refused:
            await route.continue_()
        else:
            refused.append(route.request.url)
            body = {"success": False, "error": "STEP_UP_REQUIRED", "message": "Confirm that it is you."}
            await route.fulfill(status=httpx.codes.FORBIDDEN, json=body)

    await page.route(path, refuse)


async def confirm(page: Page) -> None:
    proof = page.get_by_role("dialog", name="Confirm that it is you")
    await proof.get_by_label("Your password").fill(PASSWORD)
    await proof.get_by_role("button", name="Confirm").click()


async def test_a_key_asks_for_the_password_in_the_flow(service: Service, owner: ApiClient) -> None:
    async with open_browser_without_worker(service, DESKTOP) as browser:
        page = await browser.open_signed_in()
        await let_the_first_call_need_a_proof(page, "**/api/v1/keys", "POST")
        await page.goto(f"{service.url}/#/keys")
        await page.get_by_role("button", name="New key").first.click()
        await page.get_by_role("dialog").get_by_label("Name").fill("Robot")
        await page.get_by_role("button", name="Create", exact=True).click()
        await confirm(page)
        await expect(page.get_by_role("dialog", name="The new key")).to_be_visible()
    assert [key["name"] for key in await owner.get("/keys")] == ["Robot"]


async def test_channels_are_confirmed_and_lately_made_things_are_ended_after_a_sign_out(
    service: Service, owner: ApiClient
) -> None:
    await owner.post("/keys", {"name": "Thief's robot"}, expect=201)
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))
    code = {"name": "Thief's code", "boardType": "ESP32", "appType": "PUMP", "maxDevices": 9, "expiresAt": soon}
    await owner.post("/provisioning-codes", code, expect=201)
    await owner.post("/auth/notifications/channels", NTFY, expect=201)
    async with open_browser_without_worker(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/account")
        await page.get_by_role("button", name="Sign out everywhere else").click()
        await page.get_by_role("dialog").get_by_role("button", name="Sign out").click()
        looking = page.get_by_role("dialog", name="What was made lately?")
        await looking.get_by_role("button", name="Look", exact=True).click()
        ending = page.get_by_role("dialog", name="End what is not yours")
        assert await find_faults(page) == []
        await ending.get_by_role("button", name="API key Thief's robot").click()
        await ending.get_by_role("button", name="provisioning code Thief's code").click()
        await ending.get_by_role("button", name="End", exact=True).click()
        await expect(page.get_by_text("2 were ended.")).to_be_visible()
        line = page.get_by_role("listitem", name="Phone")
        await expect(line.get_by_text("suspended", exact=True)).to_be_visible()
        await let_the_first_call_need_a_proof(page, "**/confirm", "POST")
        await line.get_by_role("button", name="Confirm Phone").click()
        await confirm(page)
        await expect(line.get_by_role("button", name="Send a test to Phone")).to_be_visible()
        await page.get_by_role("button", name="Look and end").click()
        await looking.get_by_role("button", name="Look", exact=True).click()
        await expect(page.get_by_text("Nothing was made in that time.")).to_be_visible()


async def test_an_explanation_of_access_tells_where_a_key_works_and_until_when(service: Service, owner: ApiClient) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))
    key = await owner.post("/keys", {"name": "Nearby", "expiresAt": soon, "allowedNetworks": ["10.0.0.0/8"]}, expect=201)
    device = await owner.post("/devices/register", {"name": "Gate", "boardType": "ESP32", "appType": "GATE"}, expect=201)
    path = f"/devices/{device['deviceId']}"
    await owner.post(f"{path}/grants", {"apiKeyId": key["keyId"], "commands": ["ON"]}, expect=201)
    async with open_browser_without_worker(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/device/{device['deviceId']}/access")
        elsewhere = "denied · This API key may not be used from 192.168.1.7"
        for address, told, limits in (
            ("", "allowed · Grant", "The key works only from 10.0.0.0/8. The key works until tomorrow"),
            ("192.168.1.7", elsewhere, "The key works only from 10.0.0.0/8."),
        ):
            await page.get_by_role("button", name="Explain", exact=True).click()
            asked = page.get_by_role("dialog")
            await asked.get_by_label("API key").select_option("Nearby")
            await asked.get_by_label("Calls from (an IP address)").fill(address)
            await asked.get_by_role("button", name="Explain", exact=True).click()
            await expect(page.get_by_role("status").filter(has_text=told)).to_contain_text(limits)
        assert await find_faults(page) == []
