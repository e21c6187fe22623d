"""Commands that change accounts and users in the database, also while the service runs: SQLite serializes the two processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.clock import SystemClock
from adapters.crypto.access_tokens import JwtAccessTokenCodec
from adapters.crypto.password_hasher import Argon2PasswordHasher
from adapters.crypto.secret_hasher import KeyRingSecretHasher
from adapters.feed_hub import InProcessFeedHub
from adapters.id_generator import RandomIdGenerator
from adapters.storage.sql import SqlDatabase
from app.config.settings import Settings
from app.runtime.lost_database_check import require_database
from app.runtime.startup_errors import StartupError
from app.wiring.adapters import load_key_ring, prepare_data_dir
from domain.events.service import DomainEventRecorder
from domain.kernel.caller import Role
from domain.sign_in.token_issuer import SessionTokenIssuer
from domain.team.operator_accounts import OperatorAccountService


@asynccontextmanager
async def open_operator_service(settings: Settings) -> AsyncIterator[OperatorAccountService]:
    prepare_data_dir(settings.data_dir)
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    ids, hasher = RandomIdGenerator(), Argon2PasswordHasher(threads=1)
    uow = database.unit_of_work(DomainEventRecorder(ids=ids, observers=[], feed=InProcessFeedHub()))
    try:
        require_database(settings, database.file)
        await database.start()
        yield OperatorAccountService(uow=uow, clock=SystemClock(), ids=ids, hasher=hasher)
    finally:
        await database.stop()
        hasher.close()


async def create_account(settings: Settings, name: str, email: str, password: str) -> str:
    async with open_operator_service(settings) as operator:
        created = await operator.create_account(name=name, email=email, password=password)
    if created is None:
        raise StartupError("The account was not created.")
    return created.account.account_id


async def list_accounts(settings: Settings) -> list[tuple[str, str]]:
    async with open_operator_service(settings) as operator:
        return [(account.account_id, account.name) for account in await operator.list_accounts()]


async def add_user(settings: Settings, account_id: str | None, email: str, password: str, role: Role) -> None:
    async with open_operator_service(settings) as operator:
        known = [account.account_id for account in await operator.list_accounts()]
        if account_id is None and len(known) != 1:
            raise StartupError(f"There are {len(known)} accounts; name one with --account (see `latchboard account list`).")
        await operator.add_user(account_id or known[0], email=email, password=password, role=role)


async def set_password(settings: Settings, email: str, password: str) -> None:
    async with open_operator_service(settings) as operator:
        await operator.set_password(email, password)


async def confirm_email(settings: Settings, email: str) -> None:
    async with open_operator_service(settings) as operator:
        await operator.confirm_email(email)


async def reset_second_factor(settings: Settings, email: str) -> None:
    async with open_operator_service(settings) as operator:
        await operator.reset_second_factor(email)


async def issue_owner_token(settings: Settings) -> str:
    """An access token for the Owner of the first account. It grants nothing new: whoever can read the data directory has its
    keys. The token expires after 15 minutes like any other, and each request checks its session and the membership."""
    if not settings.data_dir.is_dir():
        raise StartupError(
            f"There is no data directory {settings.data_dir}. "
            "Give --token, or --email and --password, or set LATCHBOARD_DATA_DIR."
        )
    async with open_operator_service(settings) as operator:
        ring = load_key_ring(settings)
        issuer = SessionTokenIssuer(ids=RandomIdGenerator(), tokens=JwtAccessTokenCodec(ring), digest=KeyRingSecretHasher(ring))
        token = await operator.issue_owner_token(issuer)
    if token is None:
        raise StartupError("There is no account yet. Start the service once, or run `latchboard account create`.")
    return token
