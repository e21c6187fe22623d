"""Every page of the dashboard: axe finds nothing, nothing lies outside the screen, and what is sent stays small.

The regular run looks at the phone in the dark and at the desktop in the light theme; `LATCHBOARD_TEST_THOROUGH=1` at all four.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, get_args

import httpx
import pytest
from playwright.async_api import expect

from domain.kernel.domain_event import EventKind
from support.browser import DESKTOP, PHONE, Browser, find_faults, open_browser
from support.device import Device, create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

MAX_TRANSFERRED_BYTES = 250 * 1024
ASSETS = Path(__file__).resolve().parents[2] / "src/adapters/http/dashboard/assets"
PAGES = [
    "devices",
    "approvals",
    "calendar",
    "log",
    "keys",
    "webhooks",
    "team",
    "network",
    "cluster",
    "account",
    "second-factor",
    "more",
    "fleet",
]
DEVICE_TABS = ["control", "telemetry", "schedules", "rules", "access", "history", "setup"]
Look = tuple[tuple[int, int], Literal["light", "dark"]]
USUAL_LOOKS: list[Look] = [(PHONE, "dark"), (DESKTOP, "light")]
LOOKS = usual_or_thorough(USUAL_LOOKS, [*USUAL_LOOKS, (PHONE, "light"), (DESKTOP, "dark")])


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0][0]}-{look[1]}")
async def browser(service: Service, request: pytest.FixtureRequest) -> AsyncIterator[Browser]:
    size, theme = request.param
    async with open_browser(service, size, theme=theme) as made:
        yield made


async def furnish(service: Service, owner: ApiClient) -> Device:
    """A device with values, a slot, a rule, a grant and a request that waits."""
    pump = await create_device(owner, "Well pump")
    async with pump.online(service) as device:
        await device.report(temperature=21.5, mode="eco")
    await owner.post(f"{pump.path}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True}, expect=201)
    day = {"rrule": "FREQ=DAILY", "timezone": "Europe/Berlin", "label": "Morning"}
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": 1_900_000_000, "offTs": 1_900_003_600, **day}, expect=201)
    condition = {"metric": "temperature", "comparator": ">", "value": 27}
    rule = {"name": "Warm", "conditions": [condition], "action": {"command": "ON"}, "forSeconds": 60}
    await owner.post(f"{pump.path}/rules", rule, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["FLUSH"], "apiKeyId": key["keyId"]}, expect=201)
    await owner.post("/webhooks", {"url": "http://127.0.0.1:9/", "keyId": key["keyId"]}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{pump.path}/command", {"cmd": "FLUSH"}, expect=202)
    return pump


async def test_every_page_passes_axe_and_fits_the_screen(service: Service, owner: ApiClient, browser: Browser) -> None:
    pump = await furnish(service, owner)
    page = await browser.open_signed_in()
    found: dict[str, object] = {}
    for place in [*PAGES, *(f"device/{pump.device_id}/{tab}" for tab in DEVICE_TABS)]:
        await page.goto(f"{service.url}/#/{place}")
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".skeleton")).to_have_count(0)
        if faults := await find_faults(page):
            found[place] = faults
    assert found == {}


async def test_the_keyboard_reaches_the_content_and_switches_a_device(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    lamp = await create_device(owner, "Desk lamp")
    page = await browser.open_signed_in()
    async with lamp.online(service) as device:
        await page.goto(f"{service.url}/#/device/{lamp.device_id}")
        await page.reload()
        await expect(page.get_by_role("heading", name="Desk lamp")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        on = page.get_by_role("button", name="On: Desk lamp", exact=True)
        for _ in range(12):
            await page.keyboard.press("Tab")
            if await on.evaluate("element => element === document.activeElement"):
                break
        await page.keyboard.press("Enter")
        assert (await device.next_command())["cmd"] == "ON"
        await expect(on).to_be_focused()


async def test_every_text_has_a_german_translation() -> None:
    texts = (ASSETS / "locales/de.js").read_text()
    sources = [path.read_text() for path in ASSETS.rglob("*.js") if path.parts[-2] not in ("vendor", "locales")]
    keys = {key for source in sources for key in re.findall(r'\b[tn]\("((?:[^"\\]|\\.)*)"', source)}
    assert len(keys) > 300
    translated = set(re.findall(r'^\s*(?:"((?:[^"\\]|\\.)*)"|\w+):', texts, re.M)) | set(re.findall(r"\b(\w+):", texts))
    translated |= set(re.findall(r'"((?:[^"\\]|\\.)*)":', texts))
    assert sorted(keys - translated) == []


async def test_each_kind_of_event_can_be_chosen_in_the_log_and_has_a_german_word() -> None:
    page, texts = (ASSETS / "pages/event_log.js").read_text(), (ASSETS / "locales/de.js").read_text()
    kinds = set(get_args(EventKind)) - {"telemetry"}  # readings are no entries of the log
    assert [kind for kind in sorted(kinds) if f'"{kind}"' not in page or f"word:{kind}" not in texts] == []


async def test_german_is_shown_to_a_german_browser(service: Service) -> None:
    async with open_browser(service, PHONE, language="de-DE") as browser:
        page = await browser.open_tab()
        await expect(page.get_by_role("button", name="Anmelden", exact=True)).to_be_visible()
        assert await page.evaluate("document.documentElement.lang") == "de"


async def test_all_that_a_browser_loads_is_below_250_kilobytes(service: Service) -> None:
    total = 0
    async with httpx.AsyncClient(base_url=service.url, headers={"Accept-Encoding": "gzip"}, timeout=TIMEOUT_S) as http:
        for path in ASSETS.rglob("*"):
            if path.suffix in (".js", ".css", ".html", ".svg", ".png", ".webmanifest"):
                async with http.stream("GET", f"/dashboard/{path.relative_to(ASSETS)}") as answer:
                    assert answer.status_code == 200
                    total += sum([len(chunk) async for chunk in answer.aiter_raw()])
    assert 50_000 < total < MAX_TRANSFERRED_BYTES


async def test_the_page_can_be_installed_and_has_an_offline_page(service: Service) -> None:
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_tab()
        manifest = await page.evaluate("fetch('/dashboard/manifest.webmanifest').then((answer) => answer.json())")
        assert (manifest["display"], manifest["scope"]) == ("standalone", "/")
        await page.evaluate("navigator.serviceWorker.ready.then(() => undefined)")
        service.kill()
        await page.reload()
        await expect(page.get_by_role("heading", name="Latchboard cannot be reached")).to_be_visible()
    await service.kill_and_restart()
