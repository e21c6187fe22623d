"""Debian's Chromium without a window, driven like a user: by labels, roles and button texts."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import BrowserContext, ConsoleMessage, Page, expect

from support.service import EMAIL, PASSWORD, Service
from support.shared_chromium import shared_chromium
from support.waiting import TIMEOUT_S

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HEADLESS_SHELL = shutil.which("chromium-headless-shell") or CHROMIUM
"""Takes a third less processor time than Chromium. It shows no notifications."""
REQUIRED = "LATCHBOARD_REQUIRE_CHROMIUM"
TIMEOUT_MS = int(1_000 * TIMEOUT_S)

expect.set_options(timeout=TIMEOUT_MS)


def require_chromium() -> None:
    if CHROMIUM is None and not os.environ.get(REQUIRED):
        pytest.skip(f"Chromium is not installed; set {REQUIRED}=1 to make this a failure")
    assert CHROMIUM is not None, f"Chromium is not installed and {REQUIRED} is set; `make apt` installs it"


SIGN_IN_WORDS = {"en": ("Email", "Password", "Sign in", "Devices"), "de": ("E-Mail", "Passwort", "Anmelden", "Geräte")}
"""The labels of its fields, its button, and the page behind it."""


@dataclass
class Browser:
    """One user's browser; its tabs share storage. `words`: of the sign-in. `errors`: the errors in the console."""

    service: Service
    context: BrowserContext
    words: tuple[str, str, str, str]
    errors: list[str] = field(default_factory=list)

    async def open_tab(self, place: str = "") -> Page:
        page = await self.context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        await page.goto(f"{self.service.url}/{place}")
        return page

    async def open_signed_in(self, email: str = EMAIL, password: str = PASSWORD) -> Page:
        page = await self.open_tab()
        await self.sign_in(page, email, password)
        return page

    async def sign_in(self, page: Page, email: str = EMAIL, password: str = PASSWORD) -> None:
        email_label, password_label, button, heading = self.words
        await page.get_by_label(email_label).fill(email)
        await page.get_by_label(password_label).fill(password)
        await page.get_by_role("button", name=button, exact=True).click()
        await expect(page.get_by_role("heading", name=heading)).to_be_visible()
        await expect_live(page)

    def _on_console(self, message: ConsoleMessage) -> None:
        # The browser itself logs refused requests and an unreachable service.
        if (
            message.type == "error"
            and "Failed to load resource" not in message.text
            and "WebSocket connection" not in message.text
        ):
            self.errors.append(message.text)


async def expect_live(page: Page) -> None:
    await expect(page.locator(".live:visible")).to_have_text("Live")


async def find_faults(page: Page) -> list[object]:
    """What axe finds, and how far the page is wider than the screen."""
    result = await Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    faults: list[object] = [
        {"rule": fault["id"], "at": [node["html"][:160] for node in fault["nodes"][:3]]}
        for fault in result.response["violations"]
    ]
    outside = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [*faults, *([f"{outside} px outside the screen"] if outside > 0 else [])]


PHONE, DESKTOP = (390, 844), (1440, 900)


@contextlib.asynccontextmanager
async def open_browser(
    service: Service,
    size: tuple[int, int] = DESKTOP,
    *,
    language: str = "en-GB",
    theme: Literal["light", "dark"] = "light",
    binary: str | None = HEADLESS_SHELL,
    service_workers: Literal["allow", "block"] = "allow",
) -> AsyncIterator[Browser]:
    """Fails at its end if a page raised an error or violated its Content-Security-Policy."""
    require_chromium()
    assert binary is not None
    width, height = size
    async with shared_chromium(binary) as chromium:
        context = await chromium.new_context(
            viewport={"width": width, "height": height},
            has_touch=size == PHONE,
            locale=language,
            color_scheme=theme,
            reduced_motion="reduce",  # a colour in the middle of a transition has too little contrast
            service_workers=service_workers,
        )
        try:
            context.set_default_timeout(TIMEOUT_MS)
            browser = Browser(service, context, SIGN_IN_WORDS[language[:2]])
            yield browser
            assert browser.errors == []
        finally:
            await context.close()


open_browser_without_worker = partial(open_browser, service_workers="block")
"""For tests that answer calls of the page themselves (`page.route`): a service worker makes them behind Playwright's back, as soon
as it has started."""
