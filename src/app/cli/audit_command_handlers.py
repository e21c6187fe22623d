"""What `latchboard audit` does with the database and the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from adapters.clock import SystemClock
from adapters.crypto.tokens import Ed25519AuditSealKeyProvider
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.cli.open_database import open_database
from app.cli.open_key_ring import open_key_ring
from app.config.settings import Settings
from app.runtime.start import StartupError
from domain.audit.export import AuditExportGenerator, AuditSelection
from domain.audit.seals import AuditSealService
from domain.kernel.clock import from_iso
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId


def list_public_keys(settings: Settings) -> Sequence[tuple[str, str]]:
    """Ids and public keys, newest first. Raises StartupError."""
    return [(key.key_id, key.public_key) for key in Ed25519AuditSealKeyProvider(open_key_ring(settings)).all()]


async def seal_log(settings: Settings) -> int:
    """How many accounts were sealed. Raises StartupError, Conflict, and what the database raises."""
    keys = Ed25519AuditSealKeyProvider(open_key_ring(settings))
    async with open_database(settings) as uow:
        return await AuditSealService(uow=uow, clock=SystemClock(), keys=keys).seal()


async def export_log(
    settings: Settings,
    file: TextIO,
    account: str | None,
    *,
    since: str | None,
    until: str | None,
    command: str | None,
    after_seal: int | None,
) -> None:
    """Raises StartupError, NotFound, ValidationFailed, and what the database raises."""
    selection = AuditSelection(_time("--since", since), _time("--until", until), command)
    async with open_database(settings) as uow:
        account_id = await choose_account(uow, account)
        exporter = AuditExportGenerator(uow=uow, clock=SystemClock())
        async for line in exporter.lines(account_id, selection, after_seal=after_seal):
            file.write(line + "\n")


async def choose_account(uow: SqlUnitOfWork, named: str | None) -> AccountId:
    """Raises StartupError."""
    async with uow.read() as tx:
        known = await tx.accounts.list_ids()
    if named is not None and named in known:
        return AccountId(named)
    if named is None and len(known) == 1:
        return known[0]
    raise StartupError(
        f"There is no account {named}. See: latchboard account list" if named else "Name the account with --account ID."
    )


def _time(option: str, text: str | None) -> int | None:
    """Unix milliseconds. Raises ValidationFailed."""
    try:
        return None if text is None else from_iso(text)
    except (ValueError, OverflowError):
        raise ValidationFailed(f"{option} {text} is no ISO 8601 date-time with offset, such as 2026-11-21T04:00:00Z.") from None
