"""The first account of an empty installation: from the settings, made up for the demo, or left to the first visitor, who gets a
one-time link. What is secret of it is in a file with mode 0600.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from adapters.crypto.key_ring import KeyRingFile
from app.runtime.start import FIRST_RUN_FILE, finish_first_start, require_accounts
from app.wiring.program import ComposedApplication
from domain.team.first_run import ACCOUNT_NAME

FIRST_LOGIN_FILE = "first-login.txt"
DEFAULT_EMAIL = "owner@latchboard.local"
GENERATED_PASSWORD_LENGTH = 20


log = structlog.get_logger("start")


@dataclass(frozen=True, slots=True)
class CreatedFirstAccount:
    email: str
    password: str | None = field(repr=False)
    """None when the operator set it: a known password is not shown."""

    path: Path | None = None


@dataclass(frozen=True, slots=True)
class IssuedFirstRunLink:
    """`path`: the file with the link."""

    url: str = field(repr=False)
    path: Path


async def create_first_account(
    program: ComposedApplication, url: str, *, make_up: bool = False, token: str | None = None
) -> CreatedFirstAccount | IssuedFirstRunLink | None:
    """Returns the new login, or the link by which the first visitor makes it, or None when an account exists already.

    `url`: where the dashboard is reached; `make_up`: make a login up instead of waiting for a visitor; `token`: of the link,
    where several processes accept the same one. Raises ValidationFailed for an email or password, StartupError if the accounts
    were lost."""
    operator, settings = program.services.operator, program.settings
    if not await operator.has_no_accounts():
        _warn_about_missing_keys(program)
        finish_first_start(settings.data_dir)
        return None
    require_accounts(settings)
    if not make_up and settings.owner_password is None:
        return _issue_link(program, url, token)
    email = settings.owner_email or DEFAULT_EMAIL
    generated = None if settings.owner_password else program.adapters.ids.random_alphanumeric(GENERATED_PASSWORD_LENGTH)
    password = generated or (settings.owner_password.get_secret_value() if settings.owner_password else "")
    created = await operator.create_account(name=ACCOUNT_NAME, email=email, password=password, only_first=True)
    finish_first_start(settings.data_dir)
    if created is None:
        return None  # another instance has created it
    if generated is None:
        return CreatedFirstAccount(email, None)
    path = settings.data_dir / FIRST_LOGIN_FILE
    _write_secret_file(path, f"email    {email}\npassword {generated}\n\nChange it, then delete this file.\n")
    return CreatedFirstAccount(email, generated, path)


def _issue_link(program: ComposedApplication, url: str, token: str | None) -> IssuedFirstRunLink:
    settings, first_run = program.settings, program.services.sign_in.first_run
    link = f"{url}/#/first-run/{first_run.issue_token(token)}"
    path = settings.data_dir / FIRST_RUN_FILE
    _write_secret_file(
        path, f"{link}\n\nWhoever opens it first, within a day, becomes the Owner. Restart the service for another.\n"
    )
    return IssuedFirstRunLink(link, path)


def _warn_about_missing_keys(program: ComposedApplication) -> None:
    ring = program.adapters.key_ring
    if isinstance(ring, KeyRingFile) and ring.was_created:
        log.warning(
            f"{ring.path} was missing and has been created, but the database is older: its MQTT passwords and webhook secrets "
            "cannot be read. Stop the service and restore the file from a backup, or generate new credentials and secrets."
        )


def _write_secret_file(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
