"""Strangers who guess cannot keep a person out: a device that signed in before has its own allowance, others get a mailed link."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from support.http import PASSWORD
from support.in_process_app import BASE_URL, InProcessApp, in_process_app
from support.waiting import until

ADA = "ada@example.com"


class Browser:
    """Keeps its cookies; comes from `address`, as a trusted proxy reports it."""

    def __init__(self, app: InProcessApp, address: str) -> None:
        self.address = address
        transport = httpx.ASGITransport(app=app.program.http_app)  # type: ignore[arg-type]
        self.http = httpx.AsyncClient(transport=transport, base_url=BASE_URL)

    async def post(self, path: str, body: object = None, **more: object) -> httpx.Response:
        return await self.http.post(path, json=body, headers={"X-Forwarded-For": self.address, "X-CSRF-Protection": "1"}, **more)  # type: ignore[arg-type]

    async def sign_in(self, password: str = PASSWORD) -> int:
        return await self.sign_in_as(ADA, password)

    async def sign_in_as(self, email: str, password: str = PASSWORD) -> int:
        return (await self.post("/dashboard/session/login", {"email": email, "password": password})).status_code


@pytest.fixture
async def app() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), trusted_proxies="127.0.0.1", public_url="https://latchboard.test") as made:
            await made.create_account(ADA)
            yield made


async def strangers_guess(app: InProcessApp, times: int = 60) -> None:
    """Each from a network of its own, as fast as they can."""
    codes = [await Browser(app, f"198.{number % 250}.{number // 250}.9").sign_in("a guess") for number in range(times)]
    assert codes[-1] == 429


async def test_a_browser_that_signed_in_before_signs_in_from_anywhere_while_strangers_guess(app: InProcessApp) -> None:
    laptop = Browser(app, "192.0.2.1")
    assert await laptop.sign_in() == 200
    await strangers_guess(app)
    laptop.address = "203.0.113.77"
    assert await laptop.sign_in() == 200
    assert await Browser(app, "203.0.114.78").sign_in() == 429, "an unknown browser has to wait"


async def test_wrong_passwords_from_the_same_address_do_not_keep_a_known_browser_out(app: InProcessApp) -> None:
    laptop, neighbour = Browser(app, "192.0.2.1"), Browser(app, "192.0.2.99")
    assert await laptop.sign_in() == 200
    assert [await neighbour.sign_in("a guess") for _ in range(8)] == [401] * 5 + [429] * 3
    assert await laptop.sign_in() == 200
    assert await neighbour.sign_in() == 429, "one block of addresses is counted as one"


async def test_a_known_browser_may_not_guess_without_end(app: InProcessApp) -> None:
    laptop = Browser(app, "192.0.2.1")
    assert await laptop.sign_in() == 200
    assert [await laptop.sign_in("a guess") for _ in range(8)] == [401] * 5 + [429] * 3
    assert await Browser(app, "192.0.2.1").sign_in() == 200, "its guesses are counted for it alone"
    app.clock.forward(minutes=1)
    assert await laptop.sign_in() == 200


async def test_the_cookie_of_a_browser_is_of_one_user_and_cannot_be_made_up(app: InProcessApp) -> None:
    await app.create_account("eve@example.com", "Eve")
    eve = Browser(app, "192.0.2.1")
    assert await eve.sign_in_as("eve@example.com") == 200
    cookie = eve.http.cookies["latchboard_device"]
    await strangers_guess(app)
    eve.address = "203.0.113.1"
    assert await eve.sign_in() == 429
    forged = Browser(app, "203.0.115.1")
    forged.http.cookies.set("latchboard_device", cookie[:-4] + "0000", domain="latchboard.test")
    assert await forged.sign_in() == 429


async def mails(app: InProcessApp) -> list[tuple[str, str, str]]:
    """All mails, after those that the service sends in the background."""
    await until(lambda: asyncio.sleep(0, app.program.adapters.mail_queue.pending), lambda pending: pending == 0)
    return app.mail.mails


async def unlock_link(app: InProcessApp, browser: Browser) -> str:
    assert (await browser.post("/api/v1/auth/unlock/request", {"email": ADA})).status_code == 200
    to, _, text = (await mails(app))[-1]
    assert to == ADA
    [link] = re.findall(r"https://latchboard.test(/account/unlock\?token=\w+)", text)
    return str(link)


async def test_a_mailed_link_lets_a_new_browser_in_while_strangers_guess(app: InProcessApp) -> None:
    phone = Browser(app, "203.0.113.5")
    await strangers_guess(app)
    assert await phone.sign_in() == 429
    link = await unlock_link(app, phone)
    page = await phone.http.get(link)
    assert page.status_code == 200
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    assert await phone.sign_in() == 429, "mail scanners open links: only the button counts"
    form = {"token": link.partition("=")[2]}
    assert (await phone.http.post("/account/unlock", data=form)).status_code == 200
    assert await phone.sign_in() == 200
    again = await Browser(app, "203.0.116.5").http.post("/account/unlock", data=form)
    assert again.status_code == 400, "a link can be used once"


async def test_requests_for_a_link_tell_nothing_and_always_leave_a_valid_one(app: InProcessApp) -> None:
    phone = Browser(app, "203.0.113.5")
    unknown = await phone.post("/api/v1/auth/unlock/request", {"email": "nobody@example.com"})
    known = await phone.post("/api/v1/auth/unlock/request", {"email": ADA})
    assert (unknown.status_code, unknown.content) == (known.status_code, known.content)
    await phone.post("/api/v1/auth/unlock/request", {"email": ADA})
    assert len(await mails(app)) == 1
    app.clock.forward(minutes=54)
    link = re.findall(r"token=(\w+)", (await mails(app))[0][2])[0]
    await Browser(app, "192.0.2.1").post("/api/v1/auth/unlock/request", {"email": ADA})
    assert len(await mails(app)) == 1
    assert (await phone.post("/api/v1/auth/unlock", {"token": link})).status_code == 200
    codes = [(await phone.post("/api/v1/auth/unlock/request", {"email": ADA})).status_code for _ in range(64)]
    assert codes[-1] == 429


async def test_a_program_shows_its_token_instead_of_a_cookie(app: InProcessApp) -> None:
    program = Browser(app, "192.0.2.1")
    login = {"email": ADA, "password": PASSWORD}
    token = (await program.post("/api/v1/auth/login", login)).json()["deviceToken"]
    await strangers_guess(app)
    program.address = "203.0.113.5"
    assert (await program.post("/api/v1/auth/login", login)).status_code == 429
    assert (await program.post("/api/v1/auth/login", login | {"deviceToken": "made up"})).status_code == 429
    again = await program.post("/api/v1/auth/login", login | {"deviceToken": token})
    assert (again.status_code, again.json()["deviceToken"]) == (200, token)


async def test_wrong_codes_are_counted_over_all_codes(app: InProcessApp) -> None:
    ada = await app.sign_in(ADA)
    seen: list[str] = []
    for _ in range(2):
        app.clock.forward(minutes=1)
        await ada.send_ok("POST", "/auth/password/request-otp")
        for _ in range(5):
            body = {"otp": "no code", "newPassword": PASSWORD}
            seen.append((await ada.send("POST", "/auth/change-password", body)).json()["error"])
    assert seen == ["OTP_INVALID"] * 10
    app.clock.forward(minutes=1)
    asked = await ada.send("POST", "/auth/password/request-otp")
    assert (asked.status_code, asked.json()["error"]) == (429, "LOGIN_THROTTLED")
    app.clock.forward(days=1)
    ada = await app.sign_in(ADA)
    await ada.send_ok("POST", "/auth/password/request-otp")
