"""What the command line does to the database by itself, also while the service runs: SQLite lets two processes take turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.clock import SystemClock
from adapters.crypto.passwords import Argon2Hasher
from adapters.crypto.tokens import JwtAccessTokens
from adapters.feed import InProcessFeed
from adapters.ids import SystemIds
from adapters.storage.sql import SqlDatabase
from app.outside import key_ring, prepare_data_dir
from app.refused import StartRefused
from app.settings import Settings
from domain.accounts.operator import OperatorService
from domain.events.service import EventRecorder
from domain.kernel.caller import Role


@asynccontextmanager
async def operating(settings: Settings) -> AsyncIterator[OperatorService]:
    prepare_data_dir(settings.data_dir)
    database = SqlDatabase(settings.database, pool_size=1)
    ids, hasher = SystemIds(), Argon2Hasher(threads=1)
    uow = database.unit_of_work(EventRecorder(ids=ids, observers=[], feed=InProcessFeed()))
    try:
        await database.start()
        yield OperatorService(uow=uow, clock=SystemClock(), ids=ids, hasher=hasher)
    finally:
        await database.stop()
        hasher.close()


async def create_account(settings: Settings, name: str, email: str, password: str) -> str:
    async with operating(settings) as operator:
        created = await operator.create_account(name=name, email=email, password=password)
    if created is None:
        raise StartRefused("The account was not made.")
    return created.account.account_id


async def list_accounts(settings: Settings) -> list[tuple[str, str]]:
    async with operating(settings) as operator:
        return [(account.account_id, account.name) for account in await operator.accounts()]


async def add_user(settings: Settings, account_id: str | None, email: str, password: str, role: Role) -> None:
    async with operating(settings) as operator:
        known = [account.account_id for account in await operator.accounts()]
        if account_id is None and len(known) != 1:
            raise StartRefused(f"There are {len(known)} accounts; name one with --account (see `latchboard account list`).")
        await operator.add_user(account_id or known[0], email=email, password=password, role=role)


async def set_password(settings: Settings, email: str, password: str) -> None:
    async with operating(settings) as operator:
        await operator.set_password(email, password)


async def owner_token(settings: Settings) -> str:
    """An access token of the first account's Owner. Who can read this data directory holds its keys, so this gives nobody more
    than they have; it ends in 15 minutes like any other, and membership is checked at each call."""
    if not settings.data_dir.is_dir():
        raise StartRefused(
            f"There is no data directory {settings.data_dir}. "
            "Give --token, or --email and --password, or set LATCHBOARD_DATA_DIR."
        )
    async with operating(settings) as operator:
        owner = await operator.first_owner()
    if owner is None:
        raise StartRefused("There is no account yet; start the service once, or use `latchboard account create`.")
    return JwtAccessTokens(key_ring(settings)).issue(owner, SystemClock().now_ms())
