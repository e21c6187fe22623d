"""How the commands of an operator open the database and the key ring, also while the service runs (SQLite serializes the two
processes), and what they do there with accounts, users, an Owner's access token and the event log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TextIO

from adapters.clock import SystemClock
from adapters.crypto.key_ring import MasterKeyRing
from adapters.crypto.passwords import Argon2PasswordHasher
from adapters.crypto.tokens import Ed25519AuditSealKeyProvider, JwtAccessTokenCodec, KeyRingTokenHasher
from adapters.feed_hub import InProcessFeedHub
from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.cli.support import Result, load_settings_or_exit, run_async
from app.config.settings import Settings
from app.runtime.start import KEY_FILE, StartupError, require_database
from app.wiring.adapters import load_key_ring, prepare_data_dir
from domain.audit.export import AuditExportGenerator, AuditSelection
from domain.audit.seals import AuditSealService
from domain.events.dispatcher import EventDispatcher
from domain.kernel.caller import Role
from domain.kernel.clock import from_iso
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId
from domain.sign_in.sessions import SessionTokenIssuer
from domain.team.operator import OperatorService


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[SqlUnitOfWork]:
    """Raises StartupError, and what the database raises."""
    prepare_data_dir(settings.data_dir)
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    uow = database.unit_of_work(EventDispatcher(ids=RandomIdAndSecretGenerator(), observers=[], feed=InProcessFeedHub()))
    try:
        require_database(settings, database.file)
        await database.start()
        yield uow
    finally:
        await database.stop()


@asynccontextmanager
async def open_operator_service(settings: Settings) -> AsyncIterator[OperatorService]:
    hasher = Argon2PasswordHasher(threads=1)
    try:
        async with open_database(settings) as uow:
            yield OperatorService(uow=uow, clock=SystemClock(), ids=RandomIdAndSecretGenerator(), hasher=hasher)
    finally:
        hasher.close()


def run_as_operator(action: Callable[[OperatorService], Awaitable[Result]]) -> Result:
    """Run one method of the service. An error of ours exits the program with its message."""

    async def run() -> Result:
        async with open_operator_service(load_settings_or_exit()) as operator:
            return await action(operator)

    return run_async(run())


async def create_account(operator: OperatorService, name: str, email: str, password: str) -> str:
    created = await operator.create_account(name=name, email=email, password=password)
    if created is None:
        raise StartupError("The account was not created.")
    return created.account.account_id


async def add_user(operator: OperatorService, account_id: str | None, email: str, password: str, role: Role) -> None:
    known = [account.account_id for account in await operator.list_accounts()]
    if account_id is None and len(known) != 1:
        raise StartupError(f"There are {len(known)} accounts; name one with --account (see `latchboard account list`).")
    await operator.add_user(account_id or known[0], email=email, password=password, role=role)


async def issue_owner_token(settings: Settings) -> str:
    """An access token for the Owner of the first account. It grants nothing new: whoever can read the data directory has its
    keys. The token expires after 15 minutes like any other, and each request checks its session and the membership."""
    if not settings.data_dir.is_dir():
        raise StartupError(
            f"There is no data directory {settings.data_dir}. Set LATCHBOARD_TOKEN or LATCHBOARD_DATA_DIR, or give --email."
        )
    async with open_operator_service(settings) as operator:
        ring = load_key_ring(settings)
        issuer = SessionTokenIssuer(
            ids=RandomIdAndSecretGenerator(), tokens=JwtAccessTokenCodec(ring), digest=KeyRingTokenHasher(ring)
        )
        token = await operator.issue_owner_token(issuer)
    if token is None:
        raise StartupError("There is no account yet. Start the service once, or run `latchboard account create`.")
    return token


def open_key_ring(settings: Settings) -> MasterKeyRing:
    """Makes no new one. Raises StartupError."""
    prepare_data_dir(settings.data_dir)
    if settings.secret_keys is None and not (settings.data_dir / KEY_FILE).exists():
        raise StartupError(f"There is no key ring in {settings.data_dir}. Set LATCHBOARD_DATA_DIR to where the service keeps it.")
    return load_key_ring(settings)


def list_public_keys(settings: Settings) -> Sequence[tuple[str, str]]:
    """Ids and public keys, newest first. Raises StartupError."""
    return [(key.key_id, key.public_key) for key in Ed25519AuditSealKeyProvider(ring=open_key_ring(settings)).all()]


async def seal_log(settings: Settings) -> int:
    """How many accounts were sealed. Raises StartupError, Conflict, and what the database raises."""
    keys = Ed25519AuditSealKeyProvider(ring=open_key_ring(settings))
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
    keys = Ed25519AuditSealKeyProvider(ring=open_key_ring(settings))
    async with open_database(settings) as uow:
        account_id = await choose_account(uow, account)
        exporter = AuditExportGenerator(uow=uow, clock=SystemClock(), keys=keys)
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
