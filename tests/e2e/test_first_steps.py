"""From an empty data directory to the first switch, in a real browser."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Download, Page, expect

from support.browser import DESKTOP, PHONE, Browser, expect_live, find_faults, open_browser
from support.certificate import certificate
from support.example_firmware import require_compiler, run_project
from support.ports import free_ports
from support.service import PASSWORD, Service
from support.waiting import TIMEOUT_S


class EmptyService(Service):
    """Its first account is left to its first visitor."""

    starts_on_nothing = True

    def launch(self, *arguments: str) -> Any:
        for name in ("EMAIL", "PASSWORD"):
            self.settings.pop(f"LATCHBOARD_OWNER_{name}", None)
        return super().launch(*arguments)

    @property
    def link(self) -> str:
        return (self.data_dir / "first-run-link.txt").read_text().splitlines()[0]


@pytest.fixture(params=[PHONE, DESKTOP], ids=["phone", "desktop"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    found: tuple[int, int] = request.param
    return found


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[EmptyService]:
    with EmptyService(tmp_path) as service:
        yield service


@pytest.fixture
async def browser(empty: EmptyService, size: tuple[int, int]) -> AsyncIterator[Browser]:
    async with open_browser(empty, size, theme="dark" if size == PHONE else "light") as made:
        yield made


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0.05)


async def make_login(page: Page) -> None:
    await page.get_by_label("Your name").fill("Ada")
    await page.get_by_label("Email").fill("ada@example.com")
    await page.get_by_label("Password", exact=True).fill("correct horse")
    await page.get_by_role("button", name="Make my login").click()


async def test_the_first_visitor_makes_the_login_and_sees_how_phones_and_devices_reach_the_machine(
    empty: EmptyService, browser: Browser
) -> None:
    page = await browser.open_tab()
    await expect(page.get_by_text("Nobody has a login here yet")).to_be_visible()
    link = empty.link
    late = await browser.context.new_page()
    await late.goto(link)
    await expect(late.get_by_role("heading", name="Welcome to Latchboard")).to_be_visible()
    await page.goto(link)
    await page.reload()
    await expect(page.get_by_label("Your name")).to_be_visible()
    assert await find_faults(page) == []
    await make_login(page)
    await expect(page.get_by_role("heading", name="Phones and devices")).to_be_visible()
    await expect_live(page)
    await expect(page.get_by_text("LATCHBOARD_HTTP_HOST=0.0.0.0")).to_be_visible()
    await expect(page.get_by_text("LATCHBOARD_MQTT_HOST=0.0.0.0")).to_be_visible()
    assert await find_faults(page) == []
    await late.get_by_label("Your name").fill("Eve")
    await late.get_by_label("Email").fill("eve@example.com")
    await late.get_by_label("Password", exact=True).fill("too late, Eve")
    await late.get_by_role("button", name="Make my login").click()
    await expect(late.get_by_text("has an account already")).to_be_visible()
    assert not (empty.data_dir / "first-run-link.txt").exists()
    assert link.rpartition("/")[2] not in empty.log()


async def test_the_addresses_are_those_of_the_network_when_the_service_listens_there(tmp_path: Path) -> None:
    settings = {"LATCHBOARD_HTTP_HOST": "0.0.0.0", "LATCHBOARD_MQTT_HOST": "0.0.0.0", "LATCHBOARD_MQTT_PUBLIC_HOST": "barename"}
    with Service(tmp_path, **settings) as service:
        async with service.api() as owner, open_browser(service, PHONE) as browser:
            network = await owner.get("/network")
            assert [problem["code"] for problem in network["problems"]] == ["MQTT_HOST_BARE_NAME"]
            assert re.fullmatch(r"http://[\d.]+:\d+", network["dashboardUrl"] or "http://0:0")
            page = await browser.open_signed_in()
            await page.goto(f"{service.url}/#/network")
            await expect(page.get_by_text("Devices cannot resolve the bare name")).to_be_visible()
            if network["dashboardUrl"] is not None:  # a machine without a network has none
                await expect(page.get_by_role("img", name="QR code of")).to_be_visible()


async def test_a_restart_ends_the_old_link_and_prints_a_new_one(empty: EmptyService) -> None:
    old = empty.link
    empty.stop()
    empty.start()
    assert empty.link != old
    async with httpx.AsyncClient(base_url=empty.url, headers={"X-CSRF-Protection": "1"}, timeout=TIMEOUT_S) as client:
        for link, state in ((old, "LINK_NEEDED"), (empty.link, "READY")):
            body = {"token": link.rpartition("/")[2]}
            assert (await client.post("/dashboard/session/first-run/state", json=body)).json() == {"state": state}


@dataclass
class ClickCounter:
    page: Page
    count: int = 0

    async def click(self, role: Any, name: str) -> None:
        self.count += 1
        await self.page.get_by_role(role, name=name, exact=True).first.click()

    async def download(self, name: str, files: int = 1) -> dict[str, bytes]:
        found: list[Download] = []
        self.page.on("download", lambda download: found.append(download))
        await self.click("button", name)
        await wait_until(lambda: len(found) == files)
        return {each.suggested_filename: (await each.path()).read_bytes() for each in found}


async def add_device(clicks: ClickCounter, firmware: str, name: str) -> None:
    """Through the assistant to the complete firmware."""
    await clicks.click("link", "Add a device")
    clicks.count += 1
    await clicks.page.get_by_role("button", name=firmware).click()
    await clicks.page.get_by_label("Name", exact=True).fill(name)
    await clicks.click("button", "Continue")
    await expect(clicks.page.get_by_role("heading", name="Put this on the device")).to_be_visible()


async def switch_on(clicks: ClickCounter, name: str) -> None:
    await expect(clicks.page.get_by_text("Connected", exact=True)).to_be_visible()
    await clicks.click("button", f"On: {name}")
    await expect(clicks.page.get_by_text("It works: the device confirmed the command")).to_be_visible()


async def test_from_an_empty_service_to_the_first_switch_of_a_compiled_sketch_in_six_clicks(
    empty: EmptyService, browser: Browser, tmp_path: Path
) -> None:
    require_compiler()
    page = await browser.open_tab()
    await page.goto(empty.link)
    await page.reload()
    await make_login(page)
    clicks = ClickCounter(page, count=1)
    await add_device(clicks, "ESP32 or ESP8266", "Well pump")
    await page.get_by_label("Wi-Fi name").fill('Home "5"')
    await page.get_by_label("Pin of the relay").fill("5")
    assert await find_faults(page) == []
    files = await clicks.download("Download latchboard_relay.ino")
    sketch = files["latchboard_relay.ino"].decode()
    assert '#define WIFI_NAME "Home \\"5\\""' in sketch
    assert "#define RELAY_PIN 5\n" in sketch
    async with run_project("arduino", files, tmp_path) as board:
        await switch_on(clicks, "Well pump")
        await board.wait_for_relay("OFF", "ON")
    assert clicks.count == 6, "docs/tutorials/first-switch.md says six"
    assert await find_faults(page) == []


async def test_micropython_gets_its_files_with_the_authority_of_the_service(tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    shutil.copy(chain, tmp_path / "ca.pem")
    tls = {"PORT": free_ports(1)[0], "CERTIFICATE": chain, "KEY": key}
    with Service(tmp_path, **{f"LATCHBOARD_MQTT_TLS_{name}": value for name, value in tls.items()}) as service:
        async with open_browser(service) as browser:
            page = await browser.open_signed_in()
            clicks = ClickCounter(page)
            await add_device(clicks, "MicroPython", "Gate")
            files = await clicks.download("Download all", files=5)
            assert b'CA_FILE = "ca.der"' in files["main.py"]
            board_folder = tmp_path / "board"
            board_folder.mkdir()
            async with run_project("micropython", files, board_folder) as board:
                await switch_on(clicks, "Gate")
                await board.wait_for_relay("OFF", "ON")


async def test_the_line_of_a_tasmota_relay_is_shown_again_only_for_the_password(service: Service) -> None:
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        clicks = ClickCounter(page)
        await add_device(clicks, "Tasmota", "Yard lamp")
        line = page.locator("pre").filter(has_text="Backlog MqttHost")
        await expect(line).to_be_visible()
        await expect(page.get_by_role("img", name="QR code of the line")).to_be_visible()
        assert await find_faults(page) == []
        shown = await line.text_content()
        assert shown is not None
        assert "YOUR_MQTT_PASSWORD" not in shown
        await page.reload()
        await expect(page.get_by_text("your own is needed")).to_be_visible()
        await page.get_by_role("button", name="Show it").click()
        await page.get_by_label("Your password").fill(PASSWORD)
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(line).to_have_text(shown)
