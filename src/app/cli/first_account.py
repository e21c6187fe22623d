"""The first account of an empty installation. Its password is shown once, and kept in a file that only the owner can read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from adapters.crypto.key_ring_file import KeyRingFile
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
    """None when the operator chose it: what is known already is not shown again."""

    path: Path | None = None


async def create_first_account(program: Program) -> FirstLogin | None:
    """The login that was made; None when there is an account already. Raises Invalid for an unusable email or password."""
    operator, chosen = program.services.operator, program.settings
    if not await operator.has_no_accounts():
        _warn_about_missing_keys(program)
        return None
    email = chosen.owner_email or DEFAULT_EMAIL
    made_up = None if chosen.owner_password else program.adapters.ids.random_alphanumeric(GENERATED_PASSWORD_LENGTH)
    password = made_up or (chosen.owner_password.get_secret_value() if chosen.owner_password else "")
    created = await operator.create_account(name=ACCOUNT_NAME, email=email, password=password, only_first=True)
    if created is None:
        return None  # another instance was quicker
    if made_up is None:
        return FirstLogin(email, None)
    path = chosen.data_dir / FIRST_LOGIN_FILE
    _write_login_file(path, email, made_up)
    return FirstLogin(email, made_up, path)


def _warn_about_missing_keys(program: Program) -> None:
    ring = program.adapters.key_ring
    if isinstance(ring, KeyRingFile) and ring.was_created:
        log.warning(
            f"{ring.path} was missing and has been made anew, but the database is older: the MQTT passwords and webhook secrets "
            "in it cannot be read. Stop the service and restore the file from its backup, or generate those credentials anew."
        )


def _write_login_file(path: Path, email: str, password: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"email    {email}\npassword {password}\n\nChange it, then delete this file.\n")
