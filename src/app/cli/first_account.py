"""Creates the first account of an empty installation. The password is printed once and written to a file with mode 0600."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from adapters.crypto.key_ring_file import KeyRingFile
from app.runtime.first_start import finish_first_start, require_accounts
from app.wiring.program import Program

FIRST_LOGIN_FILE = "first-login.txt"
DEFAULT_EMAIL = "owner@latchboard.local"
GENERATED_PASSWORD_LENGTH = 20
ACCOUNT_NAME = "My account"


log = structlog.get_logger("start")


@dataclass(frozen=True, slots=True)
class FirstLogin:
    email: str
    password: str | None = field(repr=False)
    """None when the operator set it: a known password is not shown."""

    path: Path | None = None


async def create_first_account(program: Program) -> FirstLogin | None:
    """Returns the new login, or None when an account exists already. Raises ValidationFailed for an email or
    password, StartupError if the accounts were lost."""
    operator, settings = program.services.operator, program.settings
    if not await operator.has_no_accounts():
        _warn_about_missing_keys(program)
        finish_first_start(settings.data_dir)
        return None
    require_accounts(settings)
    email = settings.owner_email or DEFAULT_EMAIL
    generated = None if settings.owner_password else program.adapters.ids.random_alphanumeric(GENERATED_PASSWORD_LENGTH)
    password = generated or (settings.owner_password.get_secret_value() if settings.owner_password else "")
    created = await operator.create_account(name=ACCOUNT_NAME, email=email, password=password, only_first=True)
    finish_first_start(settings.data_dir)
    if created is None:
        return None  # another instance has created it
    if generated is None:
        return FirstLogin(email, None)
    path = settings.data_dir / FIRST_LOGIN_FILE
    _write_login_file(path, email, generated)
    return FirstLogin(email, generated, path)


def _warn_about_missing_keys(program: Program) -> None:
    ring = program.adapters.key_ring
    if isinstance(ring, KeyRingFile) and ring.was_created:
        log.warning(
            f"{ring.path} was missing and has been created, but the database is older: its MQTT passwords and webhook secrets "
            "cannot be read. Stop the service and restore the file from a backup, or generate new credentials and secrets."
        )


def _write_login_file(path: Path, email: str, password: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"email    {email}\npassword {password}\n\nChange it, then delete this file.\n")
