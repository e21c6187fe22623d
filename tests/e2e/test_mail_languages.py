"""A mail with a code or a link is in the language that its recipient, or who invites them, has stored; else in that of the request."""

from __future__ import annotations

from collections.abc import Iterator
from email.header import decode_header, make_header
from uuid import uuid4

import pytest

from support.mail_receiver import Postbox, mail_receiver
from support.service import PASSWORD, Service
from support.waiting import TIMEOUT_S

GERMAN = {"code": "Ihr Code für Latchboard", "invitation": "Sie sind zu Latchboard eingeladen"}
GERMAN["link"] = "In diesem Browser bei Latchboard anmelden"
ENGLISH = {"code": "Your Latchboard code", "invitation": "You are invited to Latchboard"}
ENGLISH["link"] = "Sign in to Latchboard in this browser"
EXPECTED = [
    ("de", "en-GB,en;q=0.9", GERMAN),
    ("en", "de", ENGLISH),
    (None, "de-AT,de;q=0.9,en;q=0.8", GERMAN),
    (None, "fr,de;q=0.3,en;q=0.7", ENGLISH),
    (None, "fr", ENGLISH),
    (None, None, ENGLISH),
]
"""What is stored, the header `Accept-Language`, the subjects."""
NOTIFICATIONS = {"topics": [], "mail": False, "quietFromMinute": None, "quietToMinute": None, "timezone": "UTC"}


NAME = "Grace {code}"
"""Looks like a place for a value."""


@pytest.fixture(scope="module")
def postbox() -> Iterator[tuple[Postbox, int]]:
    with mail_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, postbox: tuple[Postbox, int]) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("mails"), LATCHBOARD_SMTP_URL=f"smtp://127.0.0.1:{postbox[1]}") as service:
        yield service


@pytest.mark.parametrize(("stored", "requested", "subjects"), EXPECTED)
async def test_a_mail_is_in_the_language_of_its_recipient(
    running: Service, postbox: tuple[Postbox, int], stored: str | None, requested: str | None, subjects: dict[str, str]
) -> None:
    email = f"{uuid4().hex}@example.com"
    async with running.api() as owner:
        await owner.post("/members", {"email": email, "name": NAME, "role": "Admin", "password": PASSWORD}, expect=201)
        token = (await owner.post("/auth/login", {"email": email, "password": PASSWORD}))["accessToken"]
    headers = {} if requested is None else {"Accept-Language": requested}
    async with running.api(Authorization=f"Bearer {token}", **headers) as admin:
        if stored is not None:
            await admin.call("PUT", "/auth/notifications", NOTIFICATIONS | {"language": stored}, 200)
        await admin.post("/auth/password/request-otp")
        assert received(postbox, f" {NAME},") == subjects["code"]
        guest = {"email": f"{uuid4().hex}@example.com", "name": "Guest", "role": "Member"}
        sent = await admin.post("/invitations", guest, expect=201)
        assert received(postbox, NAME) == subjects["invitation"]
        await admin.post(f"/invitations/{sent['invitationId']}/resend")
        assert received(postbox, "/#/invitation/") == subjects["invitation"]
    async with running.api(**{"X-No-Credentials": "1"} | headers) as stranger:
        await stranger.post("/auth/unlock/request", {"email": email})
        assert received(postbox, "/account/unlock?token=") == subjects["link"]


def received(postbox: tuple[Postbox, int], part: str) -> str:
    """The subject of the next mail whose text has the part; those about what the person made come between."""
    text = b""
    while part not in text.decode():
        mail = postbox[0].mails.get(timeout=TIMEOUT_S)
        text = mail.get_payload(decode=True)
        assert isinstance(text, bytes)
    return str(make_header(decode_header(mail["Subject"])))
