"""The dashboard, used by a person in a real browser, beside real devices."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator

import httpx
import pytest
from playwright.async_api import Locator, Page, WebSocketRoute, expect

from support.browser import DESKTOP, PHONE, Browser, expect_live, open_browser
from support.device import Device, create_device, register_device
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S


@pytest.fixture
async def browser(service: Service) -> AsyncIterator[Browser]:
    async with open_browser(service) as made:
        yield made


@pytest.fixture(params=[PHONE, DESKTOP], ids=["phone", "desktop"])
async def either_browser(service: Service, request: pytest.FixtureRequest) -> AsyncIterator[Browser]:
    async with open_browser(service, request.param) as made:
        yield made


@pytest.fixture
async def phone(service: Service) -> AsyncIterator[Browser]:
    async with open_browser(service, PHONE) as made:
        yield made


async def find_card(page: Page, name: str) -> Locator:
    """The device on the list, which may have more pages."""
    await page.get_by_role("searchbox", name="Find devices").fill(name)
    await expect(page.get_by_role("list", name="Devices").get_by_role("listitem")).to_have_count(1)
    return card(page, name)


async def assert_fits(page: Page) -> None:
    """Nothing lies outside the screen: no sideways scrolling."""
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("listitem", name=name, exact=True)


def half(page: Page | Locator, text: str, name: str) -> Locator:
    """One half of a device's switch."""
    return page.get_by_role("button", name=f"{text}: {name}", exact=True)


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
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("password")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", name="Devices")).to_be_visible()


async def test_a_device_gets_credentials_connects_and_is_switched_and_the_page_shows_its_reports(
    service: Service, owner: ApiClient, either_browser: Browser
) -> None:
    name = f"Well pump {secrets.token_hex(3)}"
    path = await register_device(owner, name)
    page = await either_browser.open_signed_in()
    await page.goto(f"{service.url}/#/device/{path.rpartition('/')[2]}/setup")
    await page.get_by_role("button", name="Generate credentials").click()
    credentials = await credentials_shown(page)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="I have stored it").click()
    await assert_fits(page)
    pump = Device(str(credentials["mqttUsername"]), credentials)
    async with pump.online(service) as device:
        await page.locator("a.back").click()
        mine = await find_card(page, name)
        await expect(mine.get_by_text("online", exact=True)).to_be_visible()
        await half(mine, "On", name).click()
        await expect(mine.get_by_text("Done, confirmed by the device")).to_be_visible()
        await expect(half(mine, "On", name)).to_have_attribute("aria-pressed", "true")
        assert (await device.next_command())["cmd"] == "ON"
        await device.press_button(False)
        await expect(half(mine, "Off", name)).to_have_attribute("aria-pressed", "true")
    await expect(mine.get_by_text("offline", exact=True)).to_be_visible()
    await half(mine, "Off", name).click()
    await expect(mine.get_by_text(re.compile("Offline: it will be delivered if the device returns within"))).to_be_visible()
    await assert_fits(page)


async def test_a_pending_approval_is_announced_and_approved_with_the_whole_request_in_view(
    service: Service, owner: ApiClient, either_browser: Browser
) -> None:
    gate = await create_device(owner, "Gate")
    schema = {"type": "object", "properties": {"seconds": {"type": "integer"}}}
    definition = {"name": "OPEN", "label": "Open", "requiresApproval": True, "paramsSchema": schema}
    await owner.post(f"{gate.path}/commands", definition, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    page = await either_browser.open_signed_in()
    async with gate.online(service) as device, service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{gate.path}/command", {"cmd": "OPEN", "params": {"seconds": 42}}, expect=202)
        await page.get_by_role("link", name="Gate waits for an approval").click()
        asked = page.get_by_role("list", name="Waiting").get_by_role("listitem")
        await expect(asked).to_contain_text("Robot")
        await expect(asked).to_contain_text("42")
        await expect(asked.get_by_role("button", name="Approve")).to_be_in_viewport()
        await asked.get_by_role("button", name="Approve").click()
        sent = await device.next_command()
        assert (sent["cmd"], sent["params"]) == ("OPEN", {"seconds": 42})
    await expect(page.get_by_text("Nothing waits for approval")).to_be_visible()
    await expect(page.get_by_text("approved", exact=True).first).to_be_visible()
    await assert_fits(page)


async def test_a_device_that_stays_offline_is_told_and_not_in_quiet_hours(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    freezer = await create_device(owner, "Freezer")
    page = await browser.open_tab()
    await page.clock.install()
    await browser.sign_in(page)
    async with freezer.online(service):
        await find_card(page, "Freezer")
        await expect(card(page, "Freezer").get_by_text("online", exact=True)).to_be_visible()
    await expect(card(page, "Freezer").get_by_text("offline", exact=True)).to_be_visible()
    told = page.get_by_role("link", name="Freezer has been offline for 5 min")
    await expect(told).to_have_count(0)
    await page.clock.run_for(5 * 60_000)
    await expect(told).to_be_visible()
    quiet = (
        "import('/dashboard/core/browser_notifications.js').then(({ isQuiet }) => "
        "[23, 3, 12].map((hour) => isQuiet(%s, new Date(2026, 0, 1, hour))))"
    )
    assert await page.evaluate(quiet % "{ quietFrom: '22:00', quietTo: '06:00' }") == [True, True, False]
    assert await page.evaluate(quiet % "{ quietFrom: '', quietTo: '' }") == [False, False, False]


async def test_a_form_keeps_what_was_typed_when_the_service_refuses_it(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    feeder = await create_device(owner, "Feeder")
    properties = {"grams": {"type": "integer", "multipleOf": 5}, "mode": {"enum": ["slow", "fast"]}, "loud": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["grams"]}
    await owner.post(f"{feeder.path}/commands", {"name": "FEED", "label": "Feed", "paramsSchema": schema}, expect=201)
    page = await browser.open_signed_in()
    async with feeder.online(service) as device:
        await page.goto(f"{service.url}/#/device/{feeder.device_id}")
        await page.get_by_role("button", name="Send Feed").click()
        await page.get_by_label("grams").fill("7")
        await page.get_by_label("mode").select_option("fast")
        await page.get_by_label("loud").check()
        await page.get_by_role("dialog").get_by_role("button", name="Send").click()
        await expect(page.get_by_label("grams")).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_label("mode")).to_have_value('"fast"')
        await page.get_by_label("grams").fill("40")
        await page.get_by_role("dialog").get_by_role("button", name="Send").click()
        assert (await device.next_command())["params"] == {"grams": 40, "mode": "fast", "loud": True}


async def test_what_waits_for_a_device_is_called_off(service: Service, owner: ApiClient, browser: Browser) -> None:
    boiler = await create_device(owner, "Boiler")
    for cmd in ("ON", "OFF", "STATUS"):
        await owner.post(f"{boiler.path}/command", {"cmd": cmd, "ttlSeconds": 600})
    page = await browser.open_signed_in()
    await page.goto(f"{service.url}/#/device/{boiler.device_id}")
    await page.get_by_role("button", name="Call off OFF").click()
    await expect(page.get_by_role("button", name="Call off OFF")).to_have_count(0)
    await expect(page.get_by_text("Called off before it was sent")).to_have_count(1)
    await page.get_by_role("button", name="Call off all that waits").click()
    await page.get_by_role("dialog").get_by_role("button", name="Call off").click()
    await expect(page.get_by_text("Called off before it was sent")).to_have_count(3)
    found = (await owner.get(f"{boiler.path}/executions"))["data"]
    assert {each["status"] for each in found} == {"CANCELLED"}


async def test_the_log_is_live_searches_old_events_and_says_why_a_call_was_refused(
    service: Service, owner: ApiClient, phone: Browser
) -> None:
    lamp = await create_device(owner, "Lamp")
    key = await owner.post("/keys", {"name": "Night shift"}, expect=201)
    page = await phone.open_signed_in()
    await page.goto(f"{service.url}/#/log")
    await expect(page.get_by_role("heading", name="Log")).to_be_visible()
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{lamp.path}/command", {"cmd": "ON"}, expect=403)
    refused = page.get_by_role("listitem").filter(has_text="access refused").filter(has_text="Night shift")
    await expect(refused).to_be_visible()  # an audit event of another caller, without a reload
    await page.get_by_role("searchbox", name="Find events").fill("no such text")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No event matches")).to_be_visible()
    await page.get_by_role("button", name="Show all events").click()
    await expect(refused).to_be_visible()
    await assert_fits(page)


async def test_a_rule_of_two_conditions_is_built_and_tried_on_stored_telemetry(
    service: Service, owner: ApiClient, either_browser: Browser
) -> None:
    pump = await create_device(owner, "Pump")
    page = await either_browser.open_signed_in()
    async with pump.online(service) as device:
        for humidity, temperature in ((60, 15), (30, 25), (60, 15)):
            await device.report(humidity=humidity, temperature=temperature)
        await page.goto(f"{service.url}/#/device/{pump.device_id}/rules")
        await page.get_by_role("button", name="New rule").first.click()
        await page.get_by_label("Name", exact=True).fill("Dry and warm")
        await page.get_by_role("button", name="Add a condition").click()
        for number, (metric, comparator, value) in enumerate((("humidity", "<", "40"), ("temperature", ">", "20")), 1):
            condition = page.get_by_role("group", name=f"Condition {number}", exact=True)
            await condition.get_by_label("Metric").select_option(metric)
            await condition.get_by_label("Comparison").select_option(comparator)
            await condition.get_by_label("Value").fill(value)
        await page.get_by_role("button", name="Try it on the last week").click()
        await expect(page.get_by_text("It would have fired 1 time.")).to_be_visible()
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("listitem", name="Dry and warm")).to_contain_text("humidity is below 40 and temperature")
    [rule] = await owner.get(f"{pump.path}/rules")
    assert [each["metric"] for each in rule["conditions"]] == ["humidity", "temperature"]
    await assert_fits(page)


async def test_a_week_is_planned_in_clock_times_and_seen_in_the_calendar(
    service: Service, owner: ApiClient, phone: Browser
) -> None:
    lamp = await create_device(owner, "Hall lamp")
    page = await phone.open_signed_in()
    await page.goto(f"{service.url}/#/device/{lamp.device_id}/schedules")
    await page.get_by_role("button", name="Plan slot 0").click()
    await page.get_by_label("Label").fill("Evening")
    await page.get_by_label("Repeat").select_option("daily")
    await page.get_by_label("First switch").fill("18:00")
    await page.get_by_label("Second switch").fill("23:30")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("listitem", name="Evening")).to_contain_text("18:00 ON – 23:30 OFF · every day")
    [slot] = await owner.get(f"{lamp.path}/schedules")
    assert (slot["rrule"], slot["timezone"], slot["offTs"] - slot["onTs"]) == ("FREQ=DAILY", "Europe/Berlin", 5.5 * 3600)
    await page.get_by_role("link", name="Calendar").first.click()
    await expect(page.get_by_role("listitem").filter(has_text="Hall lamp").nth(5)).to_be_attached()
    await assert_fits(page)


async def test_a_fleet_is_searched_filtered_and_paged_by_the_service(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    for number in range(30):
        await register_device(owner, f"Valve no-{number:02}")  # no id has a hyphen: a search finds the one
    page = await browser.open_signed_in()
    await page.get_by_role("searchbox", name="Find devices").fill("valve")
    await expect(page).to_have_url(re.compile("search=valve"))  # the search begins a moment after the last key
    await expect(page.get_by_text("1 to 24 of 30")).to_be_visible()
    await page.get_by_role("button", name="Next page").click()
    await expect(card(page, "Valve no-29")).to_be_visible()
    found = await find_card(page, "Valve no-07")
    await page.get_by_role("button", name=re.compile("^Not set up")).click()
    await expect(found).to_be_visible()
    await page.get_by_role("button", name=re.compile("^Online")).click()
    await expect(page.get_by_text("No device matches")).to_be_visible()


async def test_text_from_other_users_is_never_run_as_markup(service: Service, owner: ApiClient, browser: Browser) -> None:
    nasty = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    device = await create_device(owner, nasty[:100])
    async with device.online(service) as line_:
        await line_.report(**{"<b>heat</b>": 3, "mode": "<script>document.title='taken'</script>"})
        page = await browser.open_signed_in()
        await page.get_by_role("searchbox", name="Find devices").fill("<img")
        await expect(page.get_by_role("link", name=re.compile("^<img src=x"))).to_be_visible()
        for tab in ("", "/telemetry", "/history", "/setup"):
            await page.goto(f"{service.url}/#/device/{device.device_id}{tab}")
            await expect(page.get_by_role("heading", name=re.compile("^<img src=x"))).to_be_visible()
        await page.goto(f"{service.url}/#/device/{device.device_id}/telemetry")
        await expect(page.get_by_text("<b>heat</b>", exact=True).first).to_be_visible()
        assert await page.locator("main img, main script, main small b").count() == 0
        assert await page.title() != "taken"


async def test_after_a_kill_the_page_reconnects_and_shows_missed_events(
    service: Service, owner: ApiClient, browser: Browser
) -> None:
    lamp = await create_device(owner, "Stairs")
    page = await browser.open_signed_in()
    mine = await find_card(page, "Stairs")
    service.kill()
    await expect(page.locator(".live:visible")).to_contain_text("onnecting")
    await half(mine, "On", "Stairs").click()
    await expect(mine.get_by_text("The service does not answer")).to_be_visible()
    await service.kill_and_restart()
    async with lamp.online(service) as device:
        await device.press_button(True)
        await expect_live(page)
        await expect(half(mine, "On", "Stairs")).to_have_attribute("aria-pressed", "true")


async def test_a_silent_connection_is_detected_and_replaced(service: Service, browser: Browser) -> None:
    page = await browser.open_tab()
    await page.clock.install()
    hush = asyncio.Event()

    async def pass_on(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        route.on_message(lambda message: None if hush.is_set() else server.send(message))
        server.on_message(lambda message: None if hush.is_set() else route.send(message))

    await page.route_web_socket(re.compile("/api/v1/ws"), pass_on)
    await browser.sign_in(page)
    hush.set()
    await page.clock.run_for(16_000)
    await expect(page.locator(".live:visible")).to_contain_text("Last heard")
    await page.clock.run_for(8_000)
    await expect(page.locator(".live:visible")).to_contain_text("onnecting")
    hush.clear()
    await page.clock.run_for(3_000)
    await expect_live(page)


async def test_signing_out_ends_the_session_in_every_tab(service: Service, browser: Browser) -> None:
    first = await browser.open_signed_in()
    second = await browser.open_tab("#/log")
    await expect(second.get_by_role("heading", name="Log")).to_be_visible()
    await first.goto(f"{service.url}/#/account")
    await first.locator("header").get_by_role("button", name="Sign out", exact=True).click()
    for page in (first, second):
        await expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
    await second.reload()
    await expect(second.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


async def test_a_viewer_is_offered_nothing_that_changes_anything(service: Service, owner: ApiClient, browser: Browser) -> None:
    lamp = await register_device(owner, "Read only")
    viewer = {"email": "viewer@example.com", "name": "Vera", "role": "Viewer", "password": PASSWORD}
    await owner.post("/members", viewer, expect=201)
    page = await browser.open_signed_in(viewer["email"])
    await find_card(page, "Read only")
    await expect(page.get_by_role("button", name="Add a device")).to_have_count(0)
    await page.goto(f"{service.url}/#/device/{lamp}/setup")
    await expect(page.get_by_role("heading", name="Credentials")).to_be_visible()
    for name in ("Edit", "Delete", "Disable", "Generate credentials"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


async def test_the_files_are_a_fixed_set_with_etags_and_a_content_security_policy(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, verify=False, timeout=TIMEOUT_S) as http:
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
        assert len(seen) > 40
        for outside in (
            "/dashboard/",
            "/dashboard/__init__.py",
            "/dashboard/../__init__.py",
            "/dashboard/%2e%2e/__init__.py",
            "/dashboard/pages",
            "/dashboard/vendor/README.md",
        ):
            assert (await http.get(outside)).status_code == 404


async def test_editing_a_slot_changes_only_the_edited_fields(service: Service, owner: ApiClient, browser: Browser) -> None:
    feeder = await create_device(owner, "Feeder")
    schema = {"type": "object", "properties": {"grams": {"type": "integer"}}, "required": ["grams"]}
    await owner.post(f"{feeder.path}/commands", {"name": "FEED", "label": "Feed", "paramsSchema": schema}, expect=201)
    feed = {"command": "FEED", "params": {"grams": 40}, "channel": 1}
    kept = {"onTs": 1_900_000_007, "offTs": 1_900_000_067, "onCommand": feed, "misfireGraceSeconds": 120}
    zoned = {"rrule": "FREQ=DAILY", "timezone": "Asia/Kathmandu"}
    await owner.post(f"{feeder.path}/schedules", {"slot": 1, **kept, **zoned}, expect=201)
    page = await browser.open_signed_in()
    await page.goto(f"{service.url}/#/device/{feeder.device_id}/schedules")
    await page.get_by_role("listitem").filter(has_text="FEED").get_by_role("button", name="Edit").click()
    await page.get_by_label("Label").fill("Breakfast")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Breakfast").first).to_be_visible()
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
