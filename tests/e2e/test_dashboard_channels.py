"""A board with several channels in the browser: each is a row with the control of its kind, and every form names them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from support.browser import DESKTOP, PHONE, expect_live, find_faults, open_browser
from support.device import Device, DeviceConnection, create_device
from support.service import PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S

KINDS = ["RELAY", "RELAY", "LEVEL", "COVER", "INPUT"]
NAMES = ["Pump", "Gate light", "Hall lamp", "Garage door", "Door bell"]
REPORTED = [
    {"ch": 2, "relay": "OFF"},
    {"ch": 3, "relay": "ON", "level": 40},
    {"ch": 4, "position": 30},
    {"ch": 5, "action": "SINGLE"},
]


@asynccontextmanager
async def online(board: Device, service: Service, owner: ApiClient) -> AsyncIterator[DeviceConnection]:
    """It has said hello and what its channels do, and answers nothing by itself."""
    async with board.online(service, auto_reply=False) as line:
        await line.publish("hello", {"fw": "1", "ch": KINDS, "names": NAMES})
        for state in REPORTED:
            await line.publish("state", state)
        await owner.wait_until(board.path, lambda device: device["channels"][-1:] and device["channels"][-1]["state"] == "SINGLE")
        yield line


async def answer(line: DeviceConnection, cmd: str, channel: int | None, params: Any, state: dict[str, Any]) -> None:
    """The next command must be this one; it is done, with this state."""
    order = await line.next_command(cmd)
    assert (order.get("ch"), order["params"]) == (channel, params)
    await line.publish("state", {**state, "by": "cmd", "id": order["id"]})
    await line.publish("result", {"id": order["id"], "status": "done"})


async def answer_all(line: DeviceConnection, cmd: str, channel: int, field: str, last: float) -> None:
    """Quick presses become one command; slow ones, as on a busy machine, become several. Each is done, up to the last value."""
    value = None
    while value != last:
        order = await line.next_command(cmd)
        assert order.get("ch") == channel
        value = order["params"][field]
        await line.publish("state", {"ch": channel, "relay": "ON", field: value, "by": "cmd", "id": order["id"]})
        await line.publish("result", {"id": order["id"], "status": "done"})


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("list", name="Channels of").get_by_role("listitem", name=name)


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


async def open_page(page: Page, service: Service, board: Device, tab: str = "control") -> None:
    await page.goto(f"{service.url}/#/device/{board.device_id}/{tab}")
    await expect(page.locator(".skeleton")).to_have_count(0)


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
async def test_each_channel_is_switched_by_its_own_control_and_tells_its_own_end(
    service: Service, owner: ApiClient, size: tuple[int, int]
) -> None:
    board = await create_device(owner, "North board")
    async with online(board, service, owner) as line, open_browser(service, size) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await expect(row(page, "Pump (channel 1)")).to_contain_text("not reported yet")
        await expect(row(page, "Door bell (channel 5)")).to_contain_text("pressed once")

        await button(page, "On: Gate light (channel 2)").click()
        await expect(button(page, "On: Gate light (channel 2)")).to_have_attribute("aria-busy", "true")
        await answer(line, "ON", 2, None, {"ch": 2, "relay": "ON"})
        gate = row(page, "Gate light (channel 2)")
        await expect(gate).to_contain_text("Done, confirmed by the device")
        await expect(button(page, "On: Gate light (channel 2)")).to_have_attribute("aria-pressed", "true")
        await expect(row(page, "Pump (channel 1)")).not_to_contain_text("Done")
        await button(page, "On: Pump (channel 1)").click()
        await answer(line, "ON", None, None, {"relay": "ON"})
        await expect(button(page, "On: Pump (channel 1)")).to_have_attribute("aria-pressed", "true")

        level = page.get_by_role("slider", name="Level: Hall lamp (channel 3)")
        await expect(level).to_have_attribute("aria-valuetext", "40 %")
        await level.fill("70")
        order = await line.next_command("SET_LEVEL")
        assert (order["ch"], order["params"]) == (3, {"level": 70})
        await expect(level).to_have_attribute("aria-valuetext", "70 %")
        await line.publish("result", {"id": order["id"], "status": "error", "code": "OVERHEATED"})
        await expect(row(page, "Hall lamp (channel 3)")).to_contain_text("The device reported a failure: OVERHEATED")
        await expect(level).to_have_attribute("aria-valuetext", "40 %")
        answering = asyncio.create_task(answer_all(line, "SET_LEVEL", 3, "level", 42))
        await level.press("ArrowRight")
        await level.press("ArrowRight")
        await asyncio.wait_for(answering, TIMEOUT_S)
        await expect(row(page, "Hall lamp (channel 3)")).to_contain_text("On, 42 %")

        await button(page, "Open: Garage door (channel 4)").click()
        await answer(line, "OPEN", 4, None, {"ch": 4, "position": 100})
        await expect(page.get_by_role("slider", name="Position: Garage door (channel 4)")).to_have_attribute(
            "aria-valuetext", "open"
        )
        await page.get_by_role("slider", name="Position: Garage door (channel 4)").fill("20")
        await answer(line, "SET_POSITION", 4, {"position": 20}, {"ch": 4, "position": 20})
        await expect(row(page, "Garage door (channel 4)")).to_contain_text("20 % open")
        for control in await page.locator(".channel .half, .channel input").all():
            box = await control.bounding_box()
            assert box is not None
            assert box["height"] >= (44 if size == PHONE else 32)
        assert await find_faults(page) == []


async def test_light_and_heating_are_set_and_the_page_says_what_is_known(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "South board")
    async with board.online(service, auto_reply=False) as line, open_browser(service, PHONE) as browser:
        await line.publish("hello", {"fw": "1", "ch": ["COLOR", "CLIMATE"], "names": ["Bar", "Floor heating"]})
        await line.publish("state", {"relay": "ON", "level": 80, "color": "#ff8800"})
        await line.publish("state", {"ch": 2, "celsius": 20.5, "mode": "HEAT"})
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await expect(row(page, "Bar (channel 1)")).to_contain_text("On, 80 %, #ff8800")
        await page.get_by_label("Colour: Bar (channel 1)").fill("#0000ff")
        await answer(line, "SET_COLOR", None, {"color": "#0000ff"}, {"relay": "ON", "color": "#0000ff"})
        await expect(row(page, "Bar (channel 1)")).to_contain_text("#0000ff")
        await page.get_by_role("slider", name="White: Bar (channel 1)").fill("2700")
        await answer(line, "SET_COLOR", None, {"kelvin": 2700}, {"relay": "ON", "kelvin": 2700})
        await expect(row(page, "Bar (channel 1)")).to_contain_text("white, 2700 K")
        answering = asyncio.create_task(answer_all(line, "SET_TARGET", 2, "celsius", 22))
        for _ in range(3):
            await button(page, "Warmer: Floor heating (channel 2)").click()
        await asyncio.wait_for(answering, TIMEOUT_S)
        await expect(row(page, "Floor heating (channel 2)")).to_contain_text("22 °C, heat")
        await page.get_by_label("Mode: Floor heating (channel 2)").select_option("OFF")
        await answer(line, "SET_MODE", 2, {"mode": "OFF"}, {"ch": 2, "mode": "OFF"})
        await expect(row(page, "Floor heating (channel 2)")).to_contain_text("22 °C, off")
        assert await find_faults(page) == []


async def test_what_happens_at_the_board_is_live_and_right_after_a_reconnection(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "East board")
    async with open_browser(service) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await expect(button(page, "On: East board")).to_be_visible()
        async with online(board, service, owner) as line:
            await expect(row(page, "Hall lamp (channel 3)")).to_contain_text("On, 40 %")  # hello made the page load again
            await line.publish("state", {"ch": 2, "relay": "ON", "by": "button"})
            await line.publish("state", {"ch": 3, "relay": "ON", "level": 55})
            await line.publish("state", {"ch": 4, "position": 0})
            await line.publish("state", {"ch": 5, "action": "LONG"})
            await expect(button(page, "On: Gate light (channel 2)")).to_have_attribute("aria-pressed", "true")
            await expect(row(page, "Hall lamp (channel 3)")).to_contain_text("On, 55 %")
            await expect(row(page, "Garage door (channel 4)")).to_contain_text("closed")
            await expect(row(page, "Door bell (channel 5)")).to_contain_text("held down")
            await line.publish("state", {"ch": 3, "relay": "OFF", "level": 55})
            await expect(button(page, "Off: Hall lamp (channel 3)")).to_have_attribute("aria-pressed", "true")
        service.kill()
        await expect(page.locator(".live:visible")).to_contain_text("onnecting")
        await service.kill_and_restart()
        async with board.online(service, auto_reply=False) as line:
            await line.publish("hello", {"fw": "1", "ch": KINDS, "names": NAMES})
            await line.publish("state", {"ch": 2, "relay": "OFF"})
            await line.publish("state", {"ch": 4, "position": 80})
            await expect_live(page)
            await expect(button(page, "Off: Gate light (channel 2)")).to_have_attribute("aria-pressed", "true")
            await expect(row(page, "Garage door (channel 4)")).to_contain_text("80 % open")
            await expect(row(page, "Door bell (channel 5)")).to_contain_text("held down")


async def test_a_channel_is_renamed_in_place_and_the_others_follow_their_firmware(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "West board")
    async with online(board, service, owner) as line, open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await button(page, "Rename Gate light (channel 2)").click()
        name = page.get_by_label("Name of Gate light (channel 2)")
        await expect(name).to_be_focused()
        await name.fill("Driveway")
        await page.keyboard.press("Escape")
        await expect(row(page, "Gate light (channel 2)")).to_be_visible()
        await button(page, "Rename Gate light (channel 2)").click()
        await name.fill("Driveway")
        assert await find_faults(page) == []
        await page.keyboard.press("Enter")
        await expect(row(page, "Driveway (channel 2)")).to_be_visible()
        await expect(button(page, "Rename Driveway (channel 2)")).to_be_focused()
        await line.publish("hello", {"fw": "2", "ch": KINDS, "names": ["Pump", "R2", "Stairs lamp", "Garage door", "Door bell"]})
        await expect(row(page, "Stairs lamp (channel 3)")).to_be_visible()
        await expect(row(page, "Driveway (channel 2)")).to_be_visible()
        await button(page, "Rename Driveway (channel 2)").click()
        await page.get_by_label("Name of Driveway (channel 2)").fill("")
        await button(page, "Save").click()
        await expect(row(page, "R2 (channel 2)")).to_be_visible()

        viewer = {"email": "vera@example.com", "name": "Vera", "role": "Viewer", "password": PASSWORD}
        await owner.post("/members", viewer, expect=201)
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in("vera@example.com")
        await open_page(page, service, board)
        await expect(row(page, "R2 (channel 2)")).to_be_visible()
        await expect(page.get_by_role("button", name="Rename")).to_have_count(0)


async def test_a_disabled_device_says_why_nothing_can_be_switched(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "Cellar board")
    async with online(board, service, owner):
        pass
    await owner.patch(f"{board.path}/toggle", {})
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await expect(page.get_by_text("It is disabled: enable it to switch.")).to_be_visible()
        for control in await page.locator(".channel .half, .channel input").all():
            await expect(control).to_be_disabled()
        await expect(row(page, "Hall lamp (channel 3)")).to_contain_text("On, 40 %, last known")


async def test_the_list_shows_two_channels_and_how_many_more(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "List board")
    async with online(board, service, owner) as line, open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.get_by_role("searchbox", name="Find devices").fill("List board")
        rows = page.get_by_role("list", name="Channels of List board").get_by_role("listitem")
        await expect(rows).to_have_count(3)
        await expect(rows.last).to_have_text("3 more")
        await button(page, "On: List board, Gate light (channel 2)").click()
        await answer(line, "ON", 2, None, {"ch": 2, "relay": "ON"})
        await expect(rows.nth(1)).to_contain_text("Done, confirmed by the device")
        assert await find_faults(page) == []


async def test_a_grant_covers_the_chosen_channels_and_access_is_explained_for_each(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "Granted board")
    key = await owner.post("/keys", {"name": "Porter"}, expect=201)
    async with online(board, service, owner), open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board, "access")
        await button(page, "New grant").first.click()
        await page.get_by_label("Who").select_option(label="Porter (API key)")
        await page.get_by_role("switch", name="Gate light (channel 2)").check()
        assert await find_faults(page) == []
        await button(page, "Grant").click()
        await expect(page.get_by_text("only Gate light (channel 2)")).to_be_visible()
        [grant] = await owner.get(f"{board.path}/grants")
        assert grant["channels"] == [2]
        async with service.api(**{"X-Api-Key": key["key"]}) as porter:
            await porter.post(f"{board.path}/command", {"cmd": "ON", "channel": 2})
            refused = await porter.post(f"{board.path}/command", {"cmd": "ON"}, expect=403)
            assert refused["error"] == "CHANNEL_NOT_GRANTED"
        for channel, said in (("Gate light (channel 2)", "allowed"), ("Pump (channel 1)", "denied")):
            await button(page, "Explain").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("API key").select_option(label="Porter")
            await dialog.get_by_label("Command").select_option("ON")
            await dialog.get_by_label("Channel").select_option(label=channel)
            await dialog.get_by_role("button", name="Explain").click()
            await expect(page.get_by_text(said, exact=True)).to_be_visible()
        await page.locator(".grants").get_by_role("button", name="Edit").click()
        await page.get_by_role("switch", name="Gate light (channel 2)").uncheck()
        await button(page, "Save").click()
        await expect(page.get_by_text("all channels")).to_be_visible()


async def test_a_definition_for_one_channel_asks_for_approval_there_and_the_inbox_names_it(
    service: Service, owner: ApiClient
) -> None:
    board = await create_device(owner, "Guarded board")
    key = await owner.post("/keys", {"name": "Courier"}, expect=201)
    await owner.post(f"{board.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    async with online(board, service, owner) as line, open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await button(page, "Define a command").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name", exact=True).fill("OPEN")
        await dialog.get_by_label("Label").fill("Open")
        await dialog.get_by_role("button", name="Garage door (channel 4)").click()
        await dialog.get_by_role("switch", name="Requires approval").check()
        await dialog.get_by_role("button", name="Define").click()
        await expect(dialog).to_have_count(0)
        [defined] = [each for each in await owner.get(f"{board.path}/commands") if each["name"] == "OPEN"]
        assert (defined["channels"], defined["requiresApproval"]) == ([4], True)
        async with service.api(**{"X-Api-Key": key["key"]}) as courier:
            await courier.post(f"{board.path}/command", {"cmd": "OPEN", "channel": 4}, expect=202)
        await page.goto(f"{service.url}/#/approvals")
        asked = page.get_by_role("list", name="Waiting").get_by_role("listitem", name="Guarded board")
        await expect(asked.get_by_role("heading")).to_have_text("OPEN · Garage door (channel 4)")
        await expect(asked).to_contain_text("30 % open")
        await asked.get_by_role("button", name="Approve").click()
        await answer(line, "OPEN", 4, None, {"ch": 4, "position": 100})
        await expect(page.get_by_text("OPEN · Garage door (channel 4)").last).to_be_visible()
        await open_page(page, service, board)
        await expect(page.locator(".execution").first).to_contain_text("Garage door (channel 4)")


async def test_a_command_for_several_channels_asks_for_which(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "Toggled board")
    async with online(board, service, owner) as line, open_browser(service) as browser:
        page = await browser.open_signed_in()
        await open_page(page, service, board)
        await page.get_by_role("button", name="Send Toggle").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Channel", exact=True).select_option(label="Hall lamp (channel 3)")
        await dialog.get_by_role("button", name="Send").click()
        await answer(line, "TOGGLE", 3, None, {"ch": 3, "relay": "OFF"})
        await expect(button(page, "Off: Hall lamp (channel 3)")).to_have_attribute("aria-pressed", "true")


async def test_slots_and_rules_are_made_for_a_channel_with_the_commands_that_it_has(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "Planned board")
    async with online(board, service, owner) as line, open_browser(service, PHONE) as browser:
        await line.report(temperature=21)
        page = await browser.open_signed_in()
        await open_page(page, service, board, "schedules")
        await button(page, "Plan slot 0").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("on the channel").first.select_option(label="Garage door (channel 4)")
        await expect(dialog.get_by_label("on the channel").last).to_have_value("4")
        offered = await dialog.get_by_label("does").first.locator("option").all_inner_texts()
        assert "Open (OPEN)" in offered
        assert not [each for each in offered if "(ON)" in each or "SET_LEVEL" in each]
        await dialog.get_by_label("does").last.select_option("SET_POSITION")
        await dialog.get_by_label("position").fill("10")
        assert await find_faults(page) == []
        await button(page, "Save").click()
        await expect(page.get_by_text("Garage door (channel 4):")).to_be_visible()
        [slot] = await owner.get(f"{board.path}/schedules")
        assert slot["onCommand"] == {"command": "OPEN", "params": None, "channel": 4}
        assert slot["offCommand"] == {"command": "SET_POSITION", "params": {"position": 10}, "channel": 4}
        await button(page, "Edit").last.click()
        await dialog.get_by_label("Label").fill("Airing")
        await button(page, "Save").click()
        await expect(page.get_by_text("Airing", exact=True)).to_be_visible()
        [again] = await owner.get(f"{board.path}/schedules")
        assert (again["onCommand"], again["offCommand"]) == (slot["onCommand"], slot["offCommand"])

        await open_page(page, service, board, "rules")
        await button(page, "New rule").first.click()
        await dialog.get_by_label("Name").fill("Warm")
        await dialog.get_by_label("Value").fill("30")
        await dialog.get_by_label("Channel").select_option(label="Hall lamp (channel 3)")
        await dialog.get_by_label("Command").select_option("SET_LEVEL")
        await dialog.get_by_label("level").fill("5")
        assert await find_faults(page) == []
        await button(page, "Save").click()
        await expect(page.get_by_text("SET_LEVEL · Hall lamp (channel 3)")).to_be_visible()
        [rule] = await owner.get(f"{board.path}/rules")
        assert rule["action"] == {"command": "SET_LEVEL", "params": {"level": 5}, "channel": 3}


async def test_a_command_goes_to_all_channels_of_a_kind_in_a_group(service: Service, owner: ApiClient) -> None:
    board, plain = await create_device(owner, "Group board"), await create_device(owner, "Group pump")
    made = await owner.post("/groups", {"name": "Boards", "deviceIds": [board.device_id, plain.device_id]}, expect=201)
    async with online(board, service, owner) as line, open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/fleet/groups/{made['groupId']}")
        await button(page, "Send a command").click()
        await page.get_by_label("Command", exact=True).fill("OPEN")
        await page.get_by_label("on the channel").select_option(label="every cover")
        assert await find_faults(page) == []
        await button(page, "Preview").click()
        await button(page, "Send to 1 device").click()
        outcomes = page.get_by_role("list", name="Outcome of each device").get_by_role("listitem")
        await expect(outcomes.filter(has_text="Garage door (channel 4)")).to_contain_text("queued")
        await answer(line, "OPEN", 4, None, {"ch": 4, "position": 100})


async def test_the_log_and_the_webhooks_have_words_for_channels_in_german(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner, "Tafel")
    day = int(time.time()) + 3600
    edge = {"command": "OPEN", "channel": 4}
    async with online(board, service, owner), open_browser(service, PHONE, language="de-DE", theme="dark") as browser:
        slot = {"slot": 0, "onTs": day, "offTs": day + 600, "onCommand": edge, "offCommand": {**edge, "command": "CLOSE"}}
        await owner.post(f"{board.path}/schedules", slot, expect=201)
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/device/{board.device_id}/history")
        await expect(page.get_by_text("Hall lamp: ein", exact=True)).to_be_visible()
        await expect(page.get_by_text("Door bell: einmal gedrückt", exact=True)).to_be_visible()
        await expect(page.get_by_text("Zustand eines Kanals").first).to_be_visible()
        await expect(page.get_by_text("Eingang gemeldet")).to_be_visible()
        await page.goto(f"{service.url}/#/webhooks")
        await page.get_by_role("button", name="Neuer Webhook").first.click()
        await expect(page.get_by_role("button", name="Eingang gemeldet")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.goto(f"{service.url}/#/calendar")
        await expect(page.get_by_role("link", name="Tafel").first).to_contain_text("Garage door (Kanal 4)")
