"""Accounts and passwords by the operator."""

from __future__ import annotations

from domain.kernel.caller import SessionCaller
from domain.kernel.errors import DomainError
from domain.sign_in.model import ClientInfo
from support.http import PASSWORD, HttpWorld


async def outcome(action: object) -> str:
    try:
        await action  # type: ignore[misc]
    except DomainError as error:
        return error.code
    return "ok"


async def test_the_first_account_is_created_once(world: HttpWorld) -> None:
    assert await world.operator.has_no_accounts()
    made = [
        await world.operator.create_account(name="A", email=f"a{n}@example.com", password=PASSWORD, only_first=True)
        for n in range(2)
    ]
    assert made[0] is not None
    assert made[1] is None
    assert [account.name for account in await world.operator.list_accounts()] == ["A"]


async def test_the_operator_resets_a_password(world: HttpWorld, owner: SessionCaller) -> None:
    signed_in = await world.logins.login("ada@example.com", PASSWORD, client=ClientInfo(""))
    await world.operator.set_password("ada@example.com", "another password")
    assert await outcome(world.sessions.refresh(signed_in.tokens.refresh_token, client=ClientInfo(""))) == "UNAUTHENTICATED"
    assert await outcome(world.logins.login("ada@example.com", "another password", client=ClientInfo(""))) == "ok"
