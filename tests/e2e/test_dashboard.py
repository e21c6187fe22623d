"""The dashboard, used by a person in a real browser, beside real devices."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from playwright.async_api import Page, expect

from support.browser import Browser, open_browser
from support.device import Device, create_device, register_device
from support.service import EMAIL, PASSWORD, ApiClient, Service


@pytest.fixture
async def browser(service: Service) -> AsyncIterator[Browser]:
    async with open_browser(service) as made:
        yield made


def line(page: Page, name: str):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


async def credentials_shown(page: Page) -> dict[str, object]:
    shown = page.get_by_role("dialog")

    async def value(label: str) -> str:
        return await shown.get_by_role("textbox", name=label, exact=True).input_value()

    port, websocket = map(int, re.findall(r"\d+", await value("Port (WebSocket)")))
    named = {"mqttUsername": "User name", "mqttPassword": "Password", "mqttHost": "Host"}
    return {name: await value(label) for name, label in named.items()} | {"mqttPort": port, "wsPort": websocket}


async def test_a_wrong_password_is_reported_and_a_session_survives_a_reload(service: Service, browser: Browser) -> None:
    page = await browser.open_tab()
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password").fill("not this one")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("password")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()


async def test_a_device_is_registered_connects_and_is_switched_and_the_page_shows_its_reports(
    service: Service, browser: Browser
) -> None:
    page = await browser.open_signed_in()
    await page.get_by_role("button", name="Register a device").click()
    await page.get_by_label("Name", exact=True).fill("Well pump")
    await page.get_by_label("What it switches").select_option("PUMP")
    await page.get_by_role("button", name="Register", exact=True).click()
    await page.get_by_role("button", name="Generate credentials").click()
    credentials = await credentials_shown(page)
    await page.get_by_role("button", name="Close").click()
    pump = Device(str(credentials["mqttUsername"]), credentials)
    async with pump.online(service) as device:
        await page.get_by_role("link", name="Devices", exact=True).click()
        mine = line(page, "Well pump")
        await expect(mine.get_by_text("online", exact=True)).to_be_visible()
        await mine.get_by_role("button", name="ON", exact=True).click()
        await expect(mine.get_by_text("done, confirmed by the device")).to_be_visible()
        await expect(mine.get_by_text("ON", exact=True).first).to_be_visible()
        assert (await device.next_command())["cmd"] == "ON"
        await device.press_button(False)
        await expect(mine.locator(".badge").get_by_text("OFF")).to_be_visible()
    await expect(mine.get_by_text("offline")).to_be_visible()
    await mine.get_by_role("button", name="OFF", exact=True).click()
    await expect(mine.get_by_text("waits for the device to come online")).to_be_visible()


async def test_pending_approvals_are_counted_and_approved_by_a_click(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    gate = await create_device(owner, "Gate")
    await owner.post(f"{gate.path}/commands", {"name": "ON", "label": "Open", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["ON"], "apiKeyId": key["keyId"]}, expect=201)
    page = await browser.open_signed_in()
    async with gate.online(service) as device, service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{gate.path}/command", {"cmd": "ON"}, expect=202)
        await page.get_by_role("link", name="Approvals").click()
        requested = line(page, "Gate")
        await expect(requested).to_contain_text("Robot")
        await requested.get_by_role("button", name="Approve").click()
        assert (await device.next_command())["cmd"] == "ON"
    await expect(requested.get_by_text("approved")).to_be_visible()
    await expect(page.get_by_text("Nothing waits for approval.")).to_be_visible()


async def test_text_from_other_users_is_never_run_as_markup(service: Service, owner: ApiClient, browser: Browser) -> None:
    nasty = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    device = await create_device(owner, nasty[:100])
    async with device.online(service) as line_:
        await line_.report(**{"<b>heat</b>": 3, "mode": "<script>document.title='taken'</script>"})
        page = await browser.open_signed_in()
        await expect(page.get_by_role("link", name=re.compile("^<img src=x"))).to_be_visible()
        for tab in ("", "/telemetry", "/history", "/setup"):
            await page.goto(f"{service.url}/#/device/{device.device_id}{tab}")
            await expect(page.get_by_role("heading", name=re.compile("^<img src=x"))).to_be_visible()
        await page.goto(f"{service.url}/#/device/{device.device_id}/telemetry")
        await expect(page.get_by_text("<b>heat</b>", exact=True)).to_be_visible()
        assert await page.locator("main img, main script, main b").count() == 0
        assert await page.title() != "taken"


async def test_after_a_kill_the_page_reconnects_and_shows_missed_events(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    lamp = await create_device(owner, "Lamp")
    page = await browser.open_signed_in()
    mine = line(page, "Lamp")
    service.kill()
    await expect(page.get_by_text("not connected")).to_be_visible()
    await mine.get_by_role("button", name="ON", exact=True).click()
    await expect(mine.get_by_text("The service does not answer")).to_be_visible()
    await service.kill_and_restart()
    async with lamp.online(service) as device:
        await device.press_button(True)
        await expect(page.get_by_text("live", exact=True)).to_be_visible()
        await expect(mine.locator(".badge").get_by_text("ON")).to_be_visible()


async def test_signing_out_ends_the_session_in_every_tab(service: Service, browser: Browser) -> None:
    first = await browser.open_signed_in()
    second = await browser.open_tab("#/log")
    await expect(second.get_by_role("heading", name="Log")).to_be_visible()
    await first.get_by_role("button", name="Sign out").click()
    for page in (first, second):
        await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await second.reload()
    await expect(second.get_by_role("button", name="Sign in")).to_be_visible()


async def test_a_viewer_is_offered_nothing_that_changes_anything(service: Service, owner: ApiClient, browser: Browser) -> None:
    lamp = await register_device(owner, "Read only")
    viewer = {"email": "viewer@example.com", "name": "Vera", "role": "Viewer", "password": PASSWORD}
    await owner.post("/members", viewer, expect=201)
    page = await browser.open_signed_in(viewer["email"])
    await expect(line(page, "Read only")).to_be_visible()
    await expect(page.get_by_role("button", name="Register a device")).to_have_count(0)
    await page.goto(f"{service.url}/#/device/{lamp}/setup")
    await expect(page.get_by_role("heading", name="Credentials")).to_be_visible()
    for name in ("Edit", "Delete", "Disable", "Generate credentials"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


async def test_the_files_are_a_fixed_set_with_etags_and_a_content_security_policy(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, verify=False) as http:
        page = await http.get("/")
        assert page.headers["content-type"].startswith("text/html")
        seen, left = set(), set(re.findall(r'(?:src|href)="(/dashboard/[^"]+)"', page.text))
        while left:
            path = left.pop()
            seen.add(path)
            answer = await http.get(path)
            assert answer.status_code == 200, path
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            folder = path.rpartition("/")[0]
            named = re.findall(r'from "(\.[^"]+)"', answer.text) if path.endswith(".js") else []
            left |= {str(httpx.URL(f"http://x{folder}/").join(each).path) for each in named} - seen
            again = await http.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert len(seen) > 10
        for outside in (
            "/dashboard/",
            "/dashboard/__init__.py",
            "/dashboard/../__init__.py",
            "/dashboard/%2e%2e/__init__.py",
            "/dashboard/views",
        ):
            assert (await http.get(outside)).status_code == 404


async def test_editing_a_slot_changes_only_the_edited_fields(service: Service, owner: ApiClient, browser: Browser) -> None:
    feeder = await create_device(owner, "Feeder")
    schema = {"type": "object", "properties": {"grams": {"type": "integer"}}, "required": ["grams"]}
    await owner.post(f"{feeder.path}/commands", {"name": "FEED", "label": "Feed", "paramsSchema": schema}, expect=201)
    feed = {"command": "FEED", "params": {"grams": 40}}
    kept = {"onTs": 1_900_000_007, "offTs": 1_900_000_067, "onCommand": feed, "misfireGraceSeconds": 120}
    zoned = {"rrule": "FREQ=DAILY", "timezone": "Asia/Kathmandu"}
    await owner.post(f"{feeder.path}/schedules", {"slot": 1, **kept, **zoned}, expect=201)
    page = await browser.open_signed_in()
    await page.goto(f"{service.url}/#/device/{feeder.device_id}/schedules")
    await page.get_by_role("row").filter(has_text="FEED").get_by_role("button", name="Edit").click()
    await page.get_by_label("Label").fill("Breakfast")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Breakfast")).to_be_visible()
    [slot] = await owner.get(f"{feeder.path}/schedules")
    wanted = {"label": "Breakfast", **kept, **zoned}
    assert {name: slot[name] for name in wanted} == wanted


async def test_the_page_of_the_api_cannot_reach_the_session_of_the_dashboard(service: Service, browser: Browser) -> None:
    await browser.open_signed_in()
    page = await browser.open_tab("docs")
    await expect(page.get_by_role("heading", name="Latchboard")).to_be_visible()
    call = "path => fetch(path, {method: 'POST', headers: {'X-CSRF-Protection': '1'}}).then(got => got.status, () => 'stopped')"
    assert await page.evaluate(call, "/dashboard/session/refresh") == "stopped"
    assert await page.evaluate("() => fetch('/api/v1/catalog/boards').then(got => got.status)") == 200
    assert await page.evaluate("() => document.cookie") == ""
    assert await page.evaluate("() => Object.values(localStorage)") == ["yes"]
    assert await page.evaluate("() => open('/') === null")
    browser.errors[:] = [text for text in browser.errors if "Content Security Policy" not in text and "sandboxed" not in text]
