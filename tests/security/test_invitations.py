"""Invitations: the link works once and for a week, for the role that its inviter may still give, and nobody but the invited
person ever knows the password."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from domain.kernel.caller import Role
from domain.kernel.errors import Unavailable
from domain.team.invitations import INVITATION_TTL_MS
from support.empty_database import empty_postgres
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, KEY_RING

ADA, GRACE = "ada@example.com", "grace@example.com"
GUEST = {"email": GRACE, "name": "Grace", "role": "Member"}
OWN_PASSWORD = "a password of her own"
PUBLIC_URL = "https://latchboard.example.com"


@asynccontextmanager
async def program(**settings: Any) -> AsyncIterator[tuple[InProcessApp, ApiCaller]]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder), public_url=PUBLIC_URL, **settings) as app:
            await app.create_account(ADA)
            yield app, await app.sign_in(ADA)


@pytest.fixture
async def app() -> AsyncIterator[InProcessApp]:
    async with program() as (made, _):
        yield made


@pytest.fixture(params=DATABASES)
async def on_either(request: pytest.FixtureRequest) -> AsyncIterator[InProcessApp]:
    settings = {"database_url": await empty_postgres(), "secret_keys": KEY_RING} if request.param == "postgres" else {}
    async with program(**settings) as (made, _):
        yield made


async def invite(by: ApiCaller, **changes: str) -> tuple[str, str]:
    """The id and the token of a new invitation."""
    sent = await by.send_ok("POST", "/invitations", GUEST | changes)
    assert sent["mailed"] is False
    assert sent["link"].startswith(f"{PUBLIC_URL}/#/invitation/")
    return sent["invitationId"], sent["link"].rpartition("/")[2]


async def accept(app: InProcessApp, token: str, password: str = OWN_PASSWORD, **more: str) -> tuple[int, str]:
    answer = await app.caller().send("POST", "/invitations/accept", {"token": token, "password": password, **more})
    return answer.status_code, answer.json().get("error", "")


async def statuses(owner: ApiCaller) -> list[str]:
    return [one["status"] for one in await owner.send_ok("GET", "/invitations")]


async def test_an_invited_person_signs_in_with_a_password_of_her_own(on_either: InProcessApp) -> None:
    app = on_either
    owner = await app.sign_in(ADA)
    _, token = await invite(owner)
    seen = await app.caller().send_ok("POST", "/invitations/preview", {"token": token})
    assert (seen["accountName"], seen["email"], seen["role"]) == ("Analytical Engines", GRACE, "Member")
    assert await accept(app, token, name="Grace Hopper") == (201, "")
    signed_in = await app.caller().send_ok("POST", "/auth/login", {"email": GRACE, "password": OWN_PASSWORD})
    assert (signed_in["user"]["role"], signed_in["user"]["name"]) == ("Member", "Grace Hopper")
    assert signed_in["user"]["emailVerified"] is False  # the link was passed on by hand
    assert await owner.send_ok("GET", "/invitations") == []
    assert await accept(app, token) == (400, "LINK_INVALID")


async def test_of_many_who_use_one_link_at_once_one_becomes_a_member(on_either: InProcessApp) -> None:
    app = on_either
    owner = await app.sign_in(ADA)
    _, token = await invite(owner)
    outcomes = await asyncio.gather(*(accept(app, token, f"four words of caller {number}") for number in range(6)))
    assert sorted(outcomes) == [(201, "")] + [(400, "LINK_INVALID")] * 5
    assert len(await owner.send_ok("GET", "/members")) == 2


async def test_a_link_ends_with_its_week_and_sending_it_again_gives_another(app: InProcessApp) -> None:
    owner = await app.sign_in(ADA)
    invitation_id, old = await invite(owner)
    app.clock.forward(INVITATION_TTL_MS)
    owner = await app.sign_in(ADA)
    assert await statuses(owner) == ["EXPIRED"]
    assert await accept(app, old) == (400, "LINK_INVALID")
    again = await owner.send_ok("POST", f"/invitations/{invitation_id}/resend")
    assert await statuses(owner) == ["PENDING"]
    assert await accept(app, old) == (400, "LINK_INVALID")
    assert await accept(app, again["link"].rpartition("/")[2]) == (201, "")


async def test_a_revoked_link_does_not_work(app: InProcessApp) -> None:
    owner = await app.sign_in(ADA)
    invitation_id, token = await invite(owner)
    await owner.send_ok("DELETE", f"/invitations/{invitation_id}")
    assert await accept(app, token) == (400, "LINK_INVALID")
    assert (await owner.send("DELETE", f"/invitations/{invitation_id}")).status_code == 404


@pytest.mark.parametrize("loss", ["demoted", "removed"])
async def test_an_invitation_is_void_when_its_inviter_lost_the_role_to_give_it(app: InProcessApp, loss: str) -> None:
    owner = await app.sign_in(ADA)
    admin_id = (await owner.send_ok("POST", "/members", GUEST | {"email": "admin@x.org", "role": "Admin", "password": PASSWORD}))[
        "membershipId"
    ]
    invitation_id, token = await invite(await app.sign_in("admin@x.org"))
    if loss == "demoted":
        await owner.send_ok("PATCH", f"/members/{admin_id}", {"role": "Member"})
    else:
        await owner.send_ok("DELETE", f"/members/{admin_id}")
    assert await statuses(owner) == ["VOID"]
    assert await accept(app, token) == (409, "INVITATION_VOID")
    again = await owner.send_ok("POST", f"/invitations/{invitation_id}/resend")  # now it depends on the Owner
    assert await accept(app, again["link"].rpartition("/")[2]) == (201, "")


async def test_an_admin_neither_invites_an_owner_nor_touches_such_an_invitation(app: InProcessApp) -> None:
    owner = await app.sign_in(ADA)
    await owner.send_ok("POST", "/members", GUEST | {"email": "admin@x.org", "role": "Admin", "password": PASSWORD})
    admin = await app.sign_in("admin@x.org")
    invitation_id, _ = await invite(owner, role="Owner")
    refused = [
        await admin.send("POST", "/invitations", GUEST | {"email": "x@x.org", "role": "Owner"}),
        await admin.send("POST", f"/invitations/{invitation_id}/resend"),
        await admin.send("DELETE", f"/invitations/{invitation_id}"),
    ]
    assert [answer.json()["error"] for answer in refused] == ["ROLE_REQUIRED"] * 3


async def test_an_address_that_has_a_user_or_an_invitation_is_not_invited(app: InProcessApp) -> None:
    owner = await app.sign_in(ADA)
    taken = await owner.send("POST", "/invitations", GUEST | {"email": "ADA@example.com"})
    assert (taken.status_code, taken.json()["error"]) == (409, "EMAIL_TAKEN")
    _, token = await invite(owner)
    twice = await owner.send("POST", "/invitations", GUEST)
    assert (twice.status_code, twice.json()["error"]) == (409, "INVITATION_EXISTS")
    await owner.send_ok("POST", "/members", GUEST | {"password": PASSWORD})  # meanwhile somebody adds her
    assert await accept(app, token) == (409, "EMAIL_TAKEN")


async def test_an_invitation_of_another_account_does_not_exist(app: InProcessApp) -> None:
    invitation_id, _ = await invite(await app.sign_in(ADA))
    await app.create_account("eve@example.com", "Other")
    eve = await app.sign_in("eve@example.com")
    assert await eve.send_ok("GET", "/invitations") == []
    assert (await eve.send("POST", f"/invitations/{invitation_id}/resend")).status_code == 404
    assert (await eve.send("DELETE", f"/invitations/{invitation_id}")).status_code == 404


async def test_a_guessed_link_costs_no_password_hash(app: InProcessApp) -> None:
    hashes = 0
    hash_password = app.login_hasher.hash

    async def counted(password: str) -> str:
        nonlocal hashes
        hashes += 1
        return str(await hash_password(password))

    app.login_hasher.hash = counted
    assert await accept(app, "guessed") == (400, "LINK_INVALID")
    assert hashes == 0


async def test_with_a_mail_server_only_the_mailbox_gets_the_link() -> None:
    async with program(smtp_url="smtp://mail.test") as (app, owner):
        sent = await owner.send_ok("POST", "/invitations", GUEST)
        assert (sent["mailed"], sent["link"]) == (True, None)
        ((to, _, text),) = app.mail.mails
        assert to == GRACE
        assert "Member" in text
        token = next(line for line in text.splitlines() if PUBLIC_URL in line).rpartition("/")[2]
        assert await accept(app, token) == (201, "")
        signed_in = await app.caller().send_ok("POST", "/auth/login", {"email": GRACE, "password": OWN_PASSWORD})
        assert signed_in["user"]["emailVerified"] is True


async def test_a_mail_that_is_not_accepted_gives_the_link_to_the_admin() -> None:
    async with program(smtp_url="smtp://mail.test") as (app, owner):
        app.mail.broken = Unavailable("The mail could not be sent.")
        sent = await owner.send_ok("POST", "/invitations", GUEST)
        assert sent["mailed"] is False
        assert await accept(app, sent["link"].rpartition("/")[2]) == (201, "")
        signed_in = await app.caller().send_ok("POST", "/auth/login", {"email": GRACE, "password": OWN_PASSWORD})
        assert signed_in["user"]["emailVerified"] is False


async def test_an_account_mails_a_bounded_number_of_invitations_an_hour() -> None:
    async with program(smtp_url="smtp://mail.test") as (app, owner):
        invitation_id = (await owner.send_ok("POST", "/invitations", GUEST))["invitationId"]
        seen = [(await owner.send("POST", f"/invitations/{invitation_id}/resend")).status_code for _ in range(60)]
        assert seen == [200] * 59 + [429]
        assert len(app.mail.mails) == 60


async def test_expired_invitations_are_deleted_after_a_month(app: InProcessApp) -> None:
    owner = await app.sign_in(ADA)
    await invite(owner)
    app.clock.forward(days=36)
    assert await statuses(await app.sign_in(ADA)) == ["EXPIRED"]
    app.clock.forward(days=2)
    async for _ in app.services.stored_telemetry.retention.purge_steps():
        pass
    assert await statuses(await app.sign_in(ADA)) == []


async def test_a_member_does_not_see_invitations(app: InProcessApp) -> None:
    account = await app.create_account("boss@example.com", "Third")
    await app.create_member(account, "member@example.com", Role.MEMBER)
    refused = await (await app.sign_in("member@example.com")).send("GET", "/invitations")
    assert (refused.status_code, refused.json()["error"]) == (403, "ROLE_REQUIRED")
