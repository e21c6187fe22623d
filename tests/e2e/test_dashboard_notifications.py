"""A person chooses channels in the dashboard, and decides from a notification: by its link, without a sign-in, on the phone too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyotp
import pytest
from playwright.async_api import CDPSession, Page, expect

from support.browser import CHROMIUM, DESKTOP, PHONE, find_faults, open_browser
from support.device import create_device
from support.push_browser import PushBrowser
from support.service import PASSWORD, ApiClient, Service
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S, until
from support.webhook_receiver import Receiver, respond, webhook_receiver

PICTURES = os.environ.get("LATCHBOARD_TEST_PICTURES")
"""A folder for pictures of what the tests see."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("notifications")) as service:
        yield service


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with webhook_receiver(respond(200)) as made:
        yield made


async def look(page: Page, name: str) -> None:
    """axe finds nothing and nothing lies outside the screen, once no button waits or is pointed at."""
    await page.mouse.move(0, 0)
    await expect(page.locator("[aria-busy=true]")).to_have_count(0)
    await page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished.catch(() => null)))")
    assert await find_faults(page) == []
    if PICTURES:
        await page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


async def ask_to_open(service: Service, owner: ApiClient, name: str, channel: int = 1) -> str:
    """A robot's request that waits; its path."""
    gate = await create_device(owner, name)
    leaves = [{"channel": 1, "kind": "RELAY", "name": "Right leaf"}, {"channel": 2, "kind": "RELAY", "name": "Left leaf"}]
    if channel != 1:
        await owner.call("PUT", gate.path, {"channels": leaves}, 200)
    opening = {"name": "OPEN", "label": "Open", "requiresApproval": True, "paramsSchema": {"type": "object"}}
    await owner.post(f"{gate.path}/commands", opening, expect=201)
    key = await owner.post("/keys", {"name": "Delivery robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    asked = {"cmd": "OPEN", "params": {"width": 2.5, "side": "left"}, "reason": "A truck of 12 t is at the north gate"}
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        made = await robot.post(f"{gate.path}/command", {**asked, "channel": channel}, expect=202)
    return f"{gate.path}/approvals/{made['approvalId']}"


async def pushed_link(service: Service, owner: ApiClient, receiver: Receiver, name: str, channel: int = 1) -> tuple[str, str]:
    """The request's path, and the place in the dashboard that the pushed notification leads to."""
    browser = PushBrowser(receiver.url)
    await owner.call("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": False}, 200)
    made = await owner.post("/auth/notifications/channels", {"name": "Phone", "webPush": browser.subscription()}, expect=201)
    path = await ask_to_open(service, owner, name, channel)
    link = await wait_for_link(browser, receiver)
    await owner.call("DELETE", f"/auth/notifications/channels/{made['channelId']}", None, 200)
    return path, "#" + link.partition("#")[2]


async def wait_for_link(browser: PushBrowser, receiver: Receiver) -> str:
    """That of the request: the person is also told that a key was created."""

    async def look() -> list[str]:
        links = [str(browser.decrypt(request.body)["link"]) for request in receiver.requests]
        return [link for link in links if "/#/decide/" in link]

    return (await until(look, bool))[0]


async def test_a_request_is_approved_from_a_notification_on_the_phone_without_a_sign_in(
    service: Service, owner: ApiClient, receiver: Receiver
) -> None:
    path, place = await pushed_link(service, owner, receiver, "North gate", channel=2)
    async with open_browser(service, PHONE, theme="dark") as browser:
        page = await browser.open_tab(place)
        await expect(page.get_by_role("heading", name="OPEN · Left leaf (channel 2) · North gate")).to_be_visible()
        for text in ("2.5", "left", "Delivery robot", "A truck of 12 t is at the north gate"):
            await expect(page.get_by_text(text, exact=True)).to_be_visible()
        await look(page, "decide-phone-dark")
        approve = page.get_by_role("button", name="Approve")
        box = await approve.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["y"] + box["height"] <= PHONE[1], "the thumb reaches it without scrolling"
        assert (await owner.get(path))["status"] == "PENDING", "opening decides nothing"
        await page.get_by_label("Why (optional)").fill("Welcome")
        await approve.click()
        await expect(page.get_by_text("The command was sent.")).to_be_visible()
        await look(page, "decided-phone-dark")
        await page.reload()
        await expect(page.get_by_text("The command was sent.")).to_be_visible()
        await expect(approve).to_have_count(0)
    decided = await owner.get(path)
    assert (decided["status"], decided["note"]) == ("APPROVED", "Welcome")


async def test_a_request_is_denied_on_the_desktop_in_german_with_a_second_factor(
    service: Service, owner: ApiClient, receiver: Receiver
) -> None:
    await owner.post("/auth/step-up", {"password": PASSWORD})
    secret = (await owner.post("/auth/second-factor/totp", {}))["secret"]
    code = pyotp.TOTP(secret)
    recovery = (await owner.post("/auth/second-factor/totp/confirm", {"code": code.now()}))["recoveryCodes"]
    # Only now: a second factor ends the other sessions, and older links with them.
    path, place = await pushed_link(service, owner, receiver, "Südtor")
    async with open_browser(service, DESKTOP, language="de-DE") as browser:
        page = await browser.open_tab(place)
        await page.get_by_role("button", name="Ablehnen").click()
        await expect(page.get_by_text("Geben Sie zuerst einen Code")).to_be_visible()
        await page.get_by_label("Code").fill("000000")
        await page.get_by_role("button", name="Ablehnen").click()
        await expect(page.get_by_role("alert")).to_contain_text("Der Code ist falsch")
        await look(page, "decide-desktop-light-de")
        assert (await owner.get(path))["status"] == "PENDING"
        await page.get_by_label("Code").fill(recovery[0])
        await page.get_by_role("button", name="Ablehnen").click()
        await expect(page.get_by_text("Der Befehl wird nicht gesendet.")).to_be_visible()
    assert (await owner.get(path))["status"] == "DENIED"
    await owner.call("DELETE", "/auth/second-factor", None, 200)


async def test_a_member_withdraws_their_own_request_on_the_phone_and_no_other(service: Service, owner: ApiClient) -> None:
    await ask_to_open(service, owner, "North gate")
    gate = await create_device(owner, "East gate")
    await owner.post(f"{gate.path}/commands", {"name": "OPEN_WIDE", "label": "Open", "requiresApproval": True}, expect=201)
    member = {"email": "mia@example.com", "name": "Mia", "role": "Member", "password": PASSWORD}
    mine = await owner.post("/members", member, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN_WIDE"], "membershipId": mine["membershipId"]}, expect=201)
    signed_in = await owner.post("/auth/login", {"email": member["email"], "password": PASSWORD})
    async with service.api(Authorization=f"Bearer {signed_in['accessToken']}") as mia:
        await mia.post(f"{gate.path}/command", {"cmd": "OPEN_WIDE"}, expect=202)
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in(member["email"])
        await page.goto(f"{service.url}/#/approvals")
        await expect(page.get_by_text("An Owner or Admin decides.").first).to_be_visible()
        await expect(page.get_by_role("button", name="Withdraw")).to_have_count(1)
        await look(page, "withdraw-phone")
        await page.get_by_role("button", name="Withdraw").click()
        await page.get_by_role("dialog").get_by_role("button", name="Withdraw").click()
        await expect(page.get_by_text("OPEN_WIDE was withdrawn.")).to_be_visible()
    [request] = await owner.get(f"{gate.path}/approvals")
    assert request["status"] == "WITHDRAWN"


async def test_a_wrong_link_says_what_to_do(service: Service) -> None:
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_tab("#/decide/a.b.c")
        await expect(page.get_by_role("alert")).to_contain_text("Sign in to decide")
        await look(page, "decide-wrong-phone")
        await page.get_by_role("link", name="All approvals").click()
        await expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()


NOTHING = {"topics": [], "mail": False}
SUBSCRIBE = """subscription => {
  PushManager.prototype.getSubscription = async () => null;
  PushManager.prototype.subscribe = async (options) => {
    globalThis.pushOptions = { visible: options.userVisibleOnly, key: options.applicationServerKey };
    return { toJSON: () => subscription };
  };
}"""


@pytest.mark.parametrize(("size", "theme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
async def test_a_person_adds_channels_tests_and_deletes_them(
    service: Service, owner: ApiClient, receiver: Receiver, size: tuple[int, int], theme: Any
) -> None:
    """Chromium reaches no push service here, so the subscription comes from the test; all else is the page's own."""
    push = PushBrowser(receiver.url)
    await owner.call("PUT", "/auth/notifications", NOTHING, 200)
    async with open_browser(service, size, theme=theme) as browser:
        await browser.context.grant_permissions(["notifications"], origin=service.url)
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/account")
        await page.evaluate(SUBSCRIBE, push.subscription())
        await page.get_by_role("button", name="Push to this browser").click()
        await expect(page.get_by_text("This browser is told from now on.")).to_be_visible()
        key = (await owner.get("/auth/notifications/push-key"))["publicKey"]
        assert await page.evaluate("pushOptions") == {"visible": True, "key": key}
        await page.get_by_role("button", name="ntfy", exact=True).click()
        await page.get_by_label("Server", exact=True).fill(receiver.url.removesuffix("/hook"))
        await page.get_by_label("Topic", exact=True).fill("latch-topic")
        await page.get_by_label("Access token").fill("tk_secret")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_role("button", name="Send a test to ntfy").click()
        await expect(page.get_by_text("The test was accepted.")).to_be_visible()
        bodies = [request.body for request in receiver.requests if request.body.startswith(b"{")]
        assert [json.loads(body)["topic"] for body in bodies] == ["latch-topic"]
        receiver.behave = respond(403)
        line = page.get_by_role("listitem", name="ntfy")
        await expect(line).to_contain_text("last sent")  # this line moves the button
        await page.get_by_role("button", name="Send a test to ntfy").click()
        await expect(line.get_by_text("The receiver refused it with 403.")).to_be_visible()
        card = page.locator("section.card").filter(has=page.get_by_role("heading", name="Notifications", exact=True))
        await card.get_by_role("button", name="An approval waits").click()
        await card.get_by_label("By mail to").check()
        await card.get_by_role("button", name="Save the notification settings").click()
        await expect(page.get_by_role("listitem", name="Mail")).to_be_visible()
        await look(page, f"channels-{size[0]}-{theme}")
        for channel in ("ntfy", "Mail"):
            await page.get_by_role("button", name=f"Delete {channel}", exact=True).click()
            await page.get_by_role("button", name="Delete", exact=True).click()
            await expect(page.get_by_role("listitem", name=channel)).to_have_count(0)
        settings = await owner.get("/auth/notifications")
        assert (settings["topics"], settings["mail"]) == (["APPROVALS"], False)
        await page.get_by_role("listitem").filter(has_text="this one").get_by_role("button", name="Delete").click()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_text("No channel yet")).to_be_visible()


NOTIFICATIONS = """() => navigator.serviceWorker.ready.then((worker) => worker.getNotifications())
  .then((all) => all.map(({ title, body, tag, data }) => ({ title, body, tag, link: data?.link ?? null })))"""


@dataclass
class PushService:
    """Delivers pushes to the service worker of a page, as Chromium's developer tools do."""

    page: Page
    devtools: CDPSession
    events: list[dict[str, Any]] = field(default_factory=list)
    """What the developer tools said of the worker: registrations, states and errors."""

    @classmethod
    async def of(cls, page: Page) -> PushService:
        made = cls(page, await page.context.new_cdp_session(page))
        for name in ("workerRegistrationUpdated", "workerVersionUpdated", "workerErrorReported"):
            made.devtools.on(f"ServiceWorker.{name}", lambda event: made.events.append(event))  # Playwright takes no built-in
        await made.devtools.send("ServiceWorker.enable")
        return made

    async def _registration(self) -> str:
        """Of the worker that is active."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                versions = [each for event in self.events for each in event.get("versions", ())]
                if active := [each["registrationId"] for each in versions if each["status"] == "activated"]:
                    return str(active[-1])
                await self.page.evaluate("true")  # events arrive between two calls

    async def show(self, data: str, title: str) -> object:
        """The notification that the worker shows for it.

        Nobody learns what became of a delivery, and Chromium closes a notification after some seconds: so a delivery is repeated.
        """
        for _ in range(int(TIMEOUT_S / OPERATION_TIMEOUT_S)):
            delivery = {"origin": await self.page.evaluate("origin"), "registrationId": await self._registration(), "data": data}
            await self.devtools.send("ServiceWorker.deliverPushMessage", delivery)
            with contextlib.suppress(AssertionError):
                shown = await until(
                    lambda: self.page.evaluate(NOTIFICATIONS),
                    lambda shown: title in [each["title"] for each in shown],
                    within_s=OPERATION_TIMEOUT_S,
                )
                return next(each for each in shown if each["title"] == title)
        raise AssertionError(f"{title!r} was not shown; the worker: {self.events}")


async def test_the_service_worker_shows_a_pushed_message_and_nothing_it_cannot_read(service: Service) -> None:
    async with open_browser(service, PHONE, binary=CHROMIUM) as browser:
        await browser.context.grant_permissions(["notifications"], origin=service.url)
        page = await browser.open_signed_in()
        await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        push = await PushService.of(page)
        link = f"{service.url}/#/decide/a.b.c"
        message = {"title": "Gate: a command waits for approval", "body": "OPEN", "link": link, "tag": "apv_1"}
        assert await push.show(json.dumps(message), message["title"]) == message
        assert await push.show("not JSON", "Latchboard") == {"title": "Latchboard", "body": "", "tag": "", "link": None}
