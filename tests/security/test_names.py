"""Names and addresses are what they look like: one line, no bidirectional or invisible characters, one recipient."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.accounts.policy import check_email
from domain.kernel.errors import ValidationFailed
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
LIES = {
    "a second line": "Ada\nApproved by the Owner",
    "a return": "Ada\rApproved",
    "an escape of terminals": "Ada\x1b[2K",
    "a C1 control": "Ada\x9b2K",
    "a line separator": "Ada\u2028Approved",
    "a turned direction": "Ada \u202egro.live",
    "an isolate": "Ada \u2067x",
    "zero width": "\u200b\u200d",
    "fillers": "\u3164\u115f",
    "empty Braille": "\u2800",
    "an accent alone": "\u0301",
}
HONEST = ["Ada", "Zoë", "李雷", "עדה", "أدا", "O'Neil-Smith, Jr.", "🌱", "Pump #1 (left)", "e\u0301tage", "👩\u200d🌾"]


@pytest.fixture
async def program() -> AsyncIterator[InProcessApp]:
    with tempfile.TemporaryDirectory() as folder:
        async with in_process_app(Path(folder)) as made:
            await made.create_account("owner@example.com")
            yield made


def named(device: str) -> list[tuple[str, str, dict[str, Any], str]]:
    """Each place that takes a name: method, path, the rest of the body, and the field."""
    return [
        ("POST", "/members", {"email": "new@example.com", "role": "Member", "password": PASSWORD}, "name"),
        ("POST", "/projects", {}, "name"),
        ("POST", "/keys", {}, "name"),
        ("POST", "/devices/register", NEW, "name"),
        ("POST", "/devices/register", NEW, "location"),
        ("PUT", device, {}, "name"),
        ("POST", "/device-types", {"commands": []}, "name"),
        ("POST", f"{device}/commands", {"name": "SPIN"}, "label"),
        ("POST", f"{device}/schedules", {"slot": 1, "onTs": 4_000_000_000, "offTs": 4_000_003_600}, "label"),
    ]


async def device_of(owner: ApiCaller) -> str:
    return f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"


async def test_a_deceptive_name_is_refused_by_its_field(program: InProcessApp) -> None:
    owner = await program.sign_in("owner@example.com")
    wrong: list[str] = []
    for method, path, rest, field in named(await device_of(owner)):
        for kind, lie in LIES.items():
            answer = await owner.send(method, path, {**rest, field: lie})
            reported = answer.json()
            if answer.status_code != 400 or [one["field"] for one in reported["details"]] != [field]:
                wrong.append(f"{method} {path} {field} with {kind}: {answer.text[:200]}")
    assert wrong == []


async def test_names_in_all_scripts_are_accepted(program: InProcessApp) -> None:
    owner = await program.sign_in("owner@example.com")
    for name in HONEST:
        made = await owner.send_ok("POST", "/projects", {"name": name})
        assert made["name"] == name
        await owner.send_ok("POST", "/devices/register", NEW | {"name": name})


ADDRESSES = [
    "ada@example.com,eve@example.com",
    "ada@example.com;eve@x.org",
    "ada,eve@example.com",
    "Ada <ada@example.com>",
    '"a b"@example.com',
    "ada@example.com\r\nBcc: eve@x.org",
    "ada@exam\u202eple.com",
    "ada\u2028@example.com",
    "ada@exa mple.com",
    "(x)ada@example.com",
    "ada@[127.0.0.1]",
    "ada\\@example.com",
    "@example.com",
    "ada@",
    "ada",
    "a@b@c",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_anything_but_one_email_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationFailed):
        check_email(address)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada@Example.com", " ada@example.COM "),
        ("zo\u00eb@example.com", "zoe\u0308@example.com"),
        ("\u212aate@x.org", "kate@x.org"),
    ],
    ids=["case and spaces", "composed or not", "the Kelvin sign"],
)
async def test_two_spellings_of_an_address_are_one_person(program: InProcessApp, one: str, other: str) -> None:
    owner = await program.sign_in("owner@example.com")
    member = {"name": "M", "role": "Viewer", "password": PASSWORD}
    await owner.send_ok("POST", "/members", member | {"email": one})
    taken = await owner.send("POST", "/members", member | {"email": other})
    assert (taken.status_code, taken.json()["error"]) == (409, "EMAIL_TAKEN")
    await program.sign_in(other)


async def test_lookalikes_are_other_people(program: InProcessApp) -> None:
    """A fullwidth or Cyrillic letter makes another address, with its own password."""
    nobody = program.caller()
    for lookalike in ("ｏwner@example.com", "оwner@example.com", "owner@example.com\u200b", "owner\u00ad@example.com"):
        answer = await nobody.send("POST", "/auth/login", {"email": lookalike, "password": PASSWORD})
        assert (answer.status_code, answer.json()["error"]) == (401, "INVALID_CREDENTIALS"), json.dumps(lookalike)
