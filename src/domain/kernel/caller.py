"""Callers: a user's session, an API key, or the service itself (a schedule, a rule, the command line)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from domain.kernel.errors import PermissionDenied
from domain.kernel.idempotency_ports import StoredResponse
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
    is_replay: bool = field(default=False, compare=False, repr=False)
    replayed_devices: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """All three as in `SessionCaller`."""

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
