"""How the commands of an operator open the database, and what makes accounts, users and an Owner's access token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from adapters.clock import SystemClock
from adapters.crypto.passwords import Argon2PasswordHasher
from adapters.crypto.tokens import JwtAccessTokenCodec, KeyRingTokenHasher
from adapters.randomness import RandomIdAndSecretGenerator
from app.cli.command_support import Result, load_settings_or_exit, run_async
from app.cli.open_database import open_database
from app.config.settings import Settings
from app.runtime.start import StartupError
from app.wiring.adapters import load_key_ring
from domain.kernel.caller import Role
from domain.sign_in.sessions import SessionTokenIssuer
from domain.team.operator import OperatorAccountAndUserService


@asynccontextmanager
async def open_operator_service(settings: Settings) -> AsyncIterator[OperatorAccountAndUserService]:
    hasher = Argon2PasswordHasher(threads=1)
    try:
        async with open_database(settings) as uow:
            yield OperatorAccountAndUserService(uow=uow, clock=SystemClock(), ids=RandomIdAndSecretGenerator(), hasher=hasher)
    finally:
        hasher.close()


def run_as_operator(action: Callable[[OperatorAccountAndUserService], Awaitable[Result]]) -> Result:
    """Run one method of the service. An error of ours exits the program with its message."""

    async def run() -> Result:
        async with open_operator_service(load_settings_or_exit()) as operator:
            return await action(operator)

    return run_async(run())


async def create_account(operator: OperatorAccountAndUserService, name: str, email: str, password: str) -> str:
    created = await operator.create_account(name=name, email=email, password=password)
    if created is None:
        raise StartupError("The account was not created.")
    return created.account.account_id


async def add_user(
    operator: OperatorAccountAndUserService, account_id: str | None, email: str, password: str, role: Role
) -> None:
    known = [account.account_id for account in await operator.list_accounts()]
    if account_id is None and len(known) != 1:
        raise StartupError(f"There are {len(known)} accounts; name one with --account (see `latchboard account list`).")
    await operator.add_user(account_id or known[0], email=email, password=password, role=role)


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
        issuer = SessionTokenIssuer(
            ids=RandomIdAndSecretGenerator(), tokens=JwtAccessTokenCodec(ring), digest=KeyRingTokenHasher(ring)
        )
        token = await operator.issue_owner_token(issuer)
    if token is None:
        raise StartupError("There is no account yet. Start the service once, or run `latchboard account create`.")
    return token
