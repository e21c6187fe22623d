"""The first account of an empty installation, made by the first person who opens a one-time link.

Accounts cannot be created through the API. This link is no way around that: only a reader of the service's terminal or data
directory has it, and it works once, for one day, and only while there is no account. It makes what `latchboard account create`
makes, by the same rules.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import field
from enum import StrEnum

from domain.kernel.clock import DAY_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Conflict, PermissionDenied
from domain.kernel.ids import IdAndSecretGenerator
from domain.sign_in.login import LoginService, SecondFactorNeeded
from domain.sign_in.model import ClientInfo
from domain.sign_in.ports import TokenHasher
from domain.sign_in.sessions import OpenedSession
from domain.team.operator import OperatorService

FIRST_RUN_TTL_MS = DAY_MS
FIRST_RUN_TOKEN_LENGTH = 32
ACCOUNT_NAME = "My account"


class FirstRunLinkStatus(StrEnum):
    """What the holder of a token, or of none, can do. `LINK_NEEDED` is also for a wrong token."""

    READY = "READY"
    LINK_NEEDED = "LINK_NEEDED"
    LINK_EXPIRED = "LINK_EXPIRED"
    DONE = "DONE"


@service
class FirstRunService:
    """The link lives in memory: each start of the service issues another, and the earlier one ends."""

    operator: OperatorService
    logins: LoginService
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    on_done: Callable[[], None] = lambda: None
    _link: tuple[bytes, int] | None = field(default=None, init=False)
    """The hash of its token, and when it expires (monotonic ms)."""
    _is_done: bool = field(default=False, init=False)

    def issue_token(self, token: str | None = None) -> str:
        """The token of a new link; with `token`, that one. Call it when the installation has no account."""
        token = token or self.ids.random_alphanumeric(FIRST_RUN_TOKEN_LENGTH)
        self._link = self.digest.sha256(token), self.clock.monotonic_ms() + FIRST_RUN_TTL_MS
        return token

    async def get_state(self, token: str) -> FirstRunLinkStatus:
        if await self._has_account():
            return FirstRunLinkStatus.DONE
        token_hash, expires_ms = self._link or (b"", 0)
        if not hmac.compare_digest(token_hash, self.digest.sha256(token)):
            return FirstRunLinkStatus.LINK_NEEDED
        return FirstRunLinkStatus.READY if self.clock.monotonic_ms() < expires_ms else FirstRunLinkStatus.LINK_EXPIRED

    async def create_owner(self, token: str, *, name: str, email: str, password: str, client: ClientInfo) -> OpenedSession:
        """Create the account and sign its Owner in. Of several visitors at once, one wins.

        Raises PermissionDenied `FIRST_RUN_LINK_INVALID` or `FIRST_RUN_LINK_EXPIRED`, Conflict `ACCOUNT_EXISTS`, or
        ValidationFailed."""
        state = await self.get_state(token)
        if state is not FirstRunLinkStatus.READY:
            raise _refusal(state)
        created = await self.operator.create_account(
            name=ACCOUNT_NAME, email=email, password=password, owner_name=name, only_first=True
        )
        self._link, self._is_done = None, True
        if created is None:
            raise _refusal(FirstRunLinkStatus.DONE)
        self.on_done()
        result = await self.logins.login(email, password, client=client)
        if isinstance(result, SecondFactorNeeded):
            raise RuntimeError("a new user has no second factor")
        return result

    async def _has_account(self) -> bool:
        """An account is never deleted, so the database is asked only until there is one."""
        self._is_done = self._is_done or not await self.operator.has_no_accounts()
        return self._is_done


def _refusal(state: FirstRunLinkStatus) -> Conflict | PermissionDenied:
    if state is FirstRunLinkStatus.DONE:
        return Conflict(
            "This installation has an account already. Sign in, or ask its Owner for a login of your own.", code="ACCOUNT_EXISTS"
        )
    if state is FirstRunLinkStatus.LINK_EXPIRED:
        return PermissionDenied("This link has expired. Restart the service: it prints a new one.", code="FIRST_RUN_LINK_EXPIRED")
    return PermissionDenied(
        "This link is not valid. Open the one that the service printed at its last start.", code="FIRST_RUN_LINK_INVALID"
    )
