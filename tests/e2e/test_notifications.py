"""A member is told by mail what waits, by the running program."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from queue import SimpleQueue

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler

from support.device import create_device
from support.ports import free_ports
from support.service import EMAIL, ApiClient, Service

MAIL_TIMEOUT_S = 15.0


class Postbox(MessageHandler):
    def __init__(self) -> None:
        super().__init__()
        self.mails: SimpleQueue[Message] = SimpleQueue()

    def handle_message(self, message: Message) -> None:
        self.mails.put(message)


@pytest.fixture(scope="module")
def postbox() -> Iterator[tuple[Postbox, int]]:
    box, [port] = Postbox(), free_ports(1)
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield box, port
    controller.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, postbox: tuple[Postbox, int]) -> Iterator[Service]:
    settings = {"LATCHBOARD_SMTP_URL": f"smtp://127.0.0.1:{postbox[1]}", "LATCHBOARD_PUBLIC_URL": "https://latch.example"}
    with Service(tmp_path_factory.mktemp("notifications"), **settings) as service:
        yield service


async def test_a_request_for_approval_is_mailed_with_a_link_to_the_inbox(
    service: Service, owner: ApiClient, postbox: tuple[Postbox, int]
) -> None:
    chosen = {"topics": ["approvals"], "quietFromMinute": None, "quietToMinute": None, "timezone": "Europe/Berlin"}
    assert await owner.get("/auth/notifications") == {**chosen, "topics": [], "offlineMinutes": 5, "timezone": "UTC"}
    await owner.call("PUT", "/auth/notifications", chosen, 200)
    assert (await owner.call("PUT", "/auth/notifications", {**chosen, "timezone": "Mars/Base"}, 400))[
        "error"
    ] == "VALIDATION_ERROR"
    gate = await create_device(owner, "Gate")
    await owner.post(f"{gate.path}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True}, expect=201)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{gate.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        await robot.post(f"{gate.path}/command", {"cmd": "OPEN"}, expect=202)
    mail = postbox[0].mails.get(timeout=MAIL_TIMEOUT_S)
    assert (mail["To"], mail["Subject"]) == (EMAIL, "Gate: a command waits for approval")
    assert "https://latch.example/#/approvals" in mail.get_payload()
    assert (await owner.get("/approvals?status=PENDING"))[0]["cmd"] == "OPEN"  # the mail decides nothing
