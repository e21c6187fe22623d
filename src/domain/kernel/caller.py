"""Callers: a user's session, an API key, or the service itself (a schedule, a rule, the command line).

Whether a caller may still act is decided in the transaction that acts. A request is authenticated before its body is read, and
may wait after that: for a password hash, a lock, a slow client. Meanwhile its caller may be removed, demoted or signed out, or
its key disabled. So `UnitOfWork.write` reads the session and membership, or the key, of its caller again, in its own transaction
and under a lock, and calls the checks below. The change takes effect before the caller loses its authority, or not at all.

A role that is lower than the one that the request was authenticated with ends the request, even where the lower role would be
enough: every decision that the service has based on `caller.role` is then still true when it commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum

from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.kernel.idempotency import StoredResponse
from domain.kernel.ids import AccountId, KeyId, MembershipId, SessionId, UserId


class Role(StrEnum):
    OWNER = "Owner"
    ADMIN = "Admin"
    MEMBER = "Member"
    VIEWER = "Viewer"

    @property
    def rank(self) -> int:
        """0 for Owner to 3 for Viewer: a role may do everything that a role with a higher number may do."""
        return _RANK[self]

    def is_at_least(self, role: Role) -> bool:
        return self.rank <= role.rank


_RANK = {Role.OWNER: 0, Role.ADMIN: 1, Role.MEMBER: 2, Role.VIEWER: 3}


@dataclass(frozen=True, slots=True)
class SessionCaller:
    account_id: AccountId
    user_id: UserId
    membership_id: MembershipId
    role: Role
    address: str = ""
    claim: StoredResponse | None = field(default=None, compare=False, repr=False)
    """The claim of the present request's `Idempotency-Key`; `UnitOfWork.write` marks it in the caller's transaction."""
    session_id: SessionId | None = None
    """The sign-in that the access token belongs to. None for a caller that the service itself puts together."""
    precondition: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)
    """The request's `If-Match`: `UnitOfWork.write` calls it in the caller's transaction. Raises VersionMismatch."""
    is_replay: bool = field(default=False, compare=False, repr=False)
    """The request asks for a stored response again: `UnitOfWork.write` authorises it like a new one, and then rolls back."""
    replayed_devices: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """For a replay: the ids of the devices whose results the stored response has. Each of them is authorised again."""
    lacks_second_factor: bool = False
    """One is required for this role and the user has none: the session may set it up, and nothing else."""
    has_shown_factor: bool | None = None
    """For whoever decides by an approval link: whether they have shown their second factor with it."""
    operations: frozenset[str] | None = None
    """What a service session is limited to, such as `devices:write`; None for a person's session."""

    @property
    def label(self) -> str:
        return f"user:{self.user_id}"


@dataclass(frozen=True, slots=True)
class ApiKeyCaller:
    account_id: AccountId
    key_id: KeyId
    name: str = ""
    address: str = ""
    claim: StoredResponse | None = field(default=None, compare=False, repr=False)
    precondition: Callable[[], Awaitable[None]] | None = field(default=None, compare=False, repr=False)
    is_replay: bool = field(default=False, compare=False, repr=False)
    replayed_devices: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """All four as in `SessionCaller`."""
    secret_hash: bytes = field(default=b"", compare=False, repr=False)
    """Of the secret that was shown. Empty for a caller that the service itself puts together."""
    allowed_networks: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Of the key, as they were when the caller was authenticated."""
    expires_ms: int | None = field(default=None, compare=False, repr=False)
    """Of the key, as it was then."""

    @property
    def label(self) -> str:
        return f"apikey:{self.key_id}"


@dataclass(frozen=True, slots=True)
class SystemCaller:
    """The service itself. `reason` is `schedule`, `rule`, `service` or `operator`; `name` identifies the one that acts.

    `on_behalf_of` is the membership that created the schedule or rule: an automation has the permissions of its creator.
    """

    account_id: AccountId
    reason: str
    name: str = ""
    on_behalf_of: MembershipId | None = None
    address: str = ""

    @property
    def label(self) -> str:
        return f"{self.reason}:{self.name}" if self.name else self.reason


Caller = SessionCaller | ApiKeyCaller | SystemCaller


def require_role(caller: SessionCaller, role: Role) -> None:
    """Raises PermissionDenied `ROLE_REQUIRED` when the session's role is below `role`."""
    if not caller.role.is_at_least(role):
        raise PermissionDenied(
            f"This needs the role {role} or higher; yours is {caller.role}. Ask an Owner or Admin of the account."
        )


def check_stated_role(caller: SessionCaller | ApiKeyCaller, needs: Role) -> None:
    """Before the transaction begins. Raises PermissionDenied `ROLE_REQUIRED`. An API key has grants instead of a role."""
    if isinstance(caller, SessionCaller):
        require_role(caller, needs)


def check_current_role(caller: SessionCaller, current: Role | None) -> None:
    """`current`: the role as of this transaction, None without a membership. Raises Unauthenticated; PermissionDenied."""
    if current is None:
        raise Unauthenticated("This user is no longer a member of the account. Sign in again.")
    if not current.is_at_least(caller.role):
        raise PermissionDenied(
            f"Your role has changed from {caller.role} to {current} during this request, so it was not carried out. "
            "Send it again if your role allows it."
        )


def check_session_is_open(revoked_ms: int | None) -> None:
    """`revoked_ms`: when the caller's session was ended, as of this transaction. Raises Unauthenticated."""
    if revoked_ms is not None:
        raise Unauthenticated("This session has ended. Sign in again.")


def unknown_api_key() -> Unauthenticated:
    return Unauthenticated(
        "This API key does not exist: it was deleted, or its secret was replaced. Use the new secret, or create a new key."
    )


def check_key_state(
    caller: ApiKeyCaller, enabled: bool | None, hashes: Collection[bytes | None], networks: tuple[str, ...]
) -> None:
    """The key's state as of this transaction; `enabled` is None without a key. `hashes`: of its secrets. Time is judged when the
    caller is authenticated. Raises Unauthenticated."""
    if enabled is None:
        raise unknown_api_key()
    if not enabled:
        raise Unauthenticated("This API key is disabled. Enable it or use another one.")
    if caller.secret_hash and caller.secret_hash not in hashes:
        raise Unauthenticated("This secret was replaced by a new one. Use the new secret of the key.", code="SECRET_REPLACED")
    if caller.secret_hash and caller.allowed_networks != networks:
        raise Unauthenticated(
            "The allowed networks of this API key have changed during this request, so it was not carried out. Send it again."
        )
