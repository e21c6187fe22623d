"""A secret is only in the response that creates it: in no other response, not in the database files, not in the log."""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.devices.firmware import PASSWORD_PLACEHOLDER
from security.access_table import rows
from security.people import People, gather
from security.test_access_matrix import call
from support.http import PASSWORD
from support.in_process_app import in_process_app

SHOWN_BY = {
    "mqttPassword": {("POST", "credentials"), ("POST", "reveal"), ("POST", "bulk"), ("POST", "apply")},
    "key": {("POST", "keys"), ("POST", "rotate")},
    "secret": {("POST", "webhooks"), ("POST", "apply"), ("POST", "rotate-secret"), ("POST", "totp")},
    "link": {("POST", "invitations"), ("POST", "resend")},
    "refreshToken": {("POST", "login"), ("POST", "refresh")},
    "accessToken": {("POST", "login"), ("POST", "refresh")},
}
"""The response fields that are secrets, and the calls (method, last word of the path) whose responses may contain them."""
DOCUMENT = ("GET", "openapi.json")
"""Its examples look like secrets; it is still searched for real ones."""
OF_ANY_USE = 8
"""Shorter blobs are numbers and flags."""


async def all_responses(people: People) -> list[httpx.Response]:
    """The responses of each operation to each permitted caller, and the other pages."""
    for row, expected in rows().items():
        for column in (column for column, status in expected.items() if status < 300 and column != "nobody"):
            await call(people.callers[column], row, await people.ours.create(row))
    for path in ("/metrics", "/openapi.json", "/readyz", "/healthz", "/"):
        await people.app.http.get(path)
    owner = people.callers["Owner"]
    for path in ("/events?limit=200", "/keys", "/members", "/webhooks", "/devices", "/approvals"):
        await owner.send_ok("GET", path)
    return people.app.responses


def secrets_in(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in SHOWN_BY and isinstance(inner, str) and inner != PASSWORD_PLACEHOLDER:
                yield name, inner
            yield from secrets_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_in(inner)


def content(answer: httpx.Response) -> Any:
    return answer.json() if answer.headers.get("content-type") == "application/json" else None


def call_of(answer: httpx.Response) -> tuple[str, str]:
    return answer.request.method, answer.request.url.path.rpartition("/")[2]


def kept(database: Path) -> set[str]:
    """Each blob of the database in its text encodings, and each password hash."""
    found: set[str] = set()
    with sqlite3.connect(database) as connection:
        for (table,) in connection.execute("select name from sqlite_master where type = 'table'").fetchall():
            for line in connection.execute(f'select * from "{table}"'):
                for value in line:
                    if isinstance(value, bytes) and len(value) >= OF_ANY_USE:
                        found |= {value.hex(), base64.b64encode(value).decode(), base64.urlsafe_b64encode(value).decode()}
                    elif isinstance(value, str) and value.startswith("$argon2"):
                        found.add(value)
    return found


async def test_secrets_stay_where_they_belong(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    caplog.set_level(logging.DEBUG)
    async with in_process_app(tmp_path, log_level="DEBUG") as program:
        people = await gather(program)
        replies = await all_responses(people)
        blobs = kept(program.sqlite_path())
    secrets: dict[str, str] = {}
    for answer in replies:
        for name, secret in secrets_in(content(answer)) if call_of(answer) != DOCUMENT else ():
            assert call_of(answer) in SHOWN_BY[name], f"{name} in the reply to {call_of(answer)}"
            secrets[secret] = name
    assert set(secrets.values()) == SHOWN_BY.keys(), "the calls above make no secret of some kind any more"
    assert any(blob.startswith("$argon2id$") for blob in blobs)

    leaks: list[str] = []
    for answer in replies:
        own = {secret for _, secret in secrets_in(content(answer))}
        leaks += [f"{secrets[secret]} in {call_of(answer)}" for secret in secrets.keys() - own if secret in answer.text]
        leaks += [f"a stored {blob[:12]}… in {call_of(answer)}" for blob in blobs if blob in answer.text]
        if PASSWORD in answer.text:
            leaks.append(f"a password in {call_of(answer)}")
    assert leaks == []

    reported = caplog.text + "".join(capfd.readouterr())
    assert [secrets[secret] for secret in {*secrets, PASSWORD} if secret in reported] == []
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert [secrets[secret] for secret in secrets if secret.encode() in files] == []
    assert PASSWORD.encode() not in files


async def test_a_stored_response_is_encrypted_and_belongs_to_one_caller(tmp_path: Path) -> None:
    once = {"Idempotency-Key": "11111111"}
    async with in_process_app(tmp_path) as program:
        people = await gather(program)
        owner, admin, other = (people.callers[column] for column in ("Owner", "Admin", "other"))
        made = [await caller.send("POST", "/keys", {"name": "Robot"}, headers=once) for caller in (owner, admin, other)]
        again = await owner.send("POST", "/keys", {"name": "Robot"}, headers=once)
    assert [answer.status_code for answer in made] == [201, 201, 201]
    assert len({answer.json()["key"] for answer in made}) == 3
    assert again.json() == made[0].json()
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert json.dumps(made[0].json()["key"]).encode()[1:-1] not in files
