"""Accounts, users and projects. Everything belongs to exactly one account; a user has access through a membership with a role."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.ids import AccountId, InvitationId, MembershipId, ProjectId, UserId


@dataclass(frozen=True, slots=True)
class Account:
    account_id: AccountId
    name: str
    plan: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class User:
    """`email` is stored in lower case and is unique in the installation.

    `email_verified`: the address is known to be the user's. `password_changed_ms` is 0 for a user of an identity provider who
    never set a password: the hash is of a random one that nobody knows."""

    user_id: UserId
    email: str
    name: str
    password_hash: str
    email_verified: bool
    created_ms: int
    password_changed_ms: int

    @property
    def has_password(self) -> bool:
        return self.password_changed_ms > 0

    def with_password(self, password_hash: str, at_ms: int) -> User:
        return replace(self, password_hash=password_hash, password_changed_ms=at_ms)


@dataclass(frozen=True, slots=True)
class Membership:
    membership_id: MembershipId
    account_id: AccountId
    user_id: UserId
    role: Role
    created_ms: int

    def to_session(self, address: str) -> SessionCaller:
        return SessionCaller(self.account_id, self.user_id, self.membership_id, self.role, address)


@dataclass(frozen=True, slots=True)
class MembershipWithUser:
    membership: Membership
    user: User


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link with which somebody becomes a member. Only the SHA-256 of its token is kept; using or revoking it deletes it.

    `invited_by`: whose role it depends on, who sent it last. `mailed`: only the owner of the address has the link, so using it
    proves the address."""

    invitation_id: InvitationId
    account_id: AccountId
    email: str
    name: str
    role: Role
    invited_by: MembershipId
    token_hash: bytes = field(repr=False)
    created_ms: int
    expires_ms: int
    mailed: bool
    voided_ms: int | None = None
    """When who sent it lost the role that it depends on."""


@dataclass(frozen=True, slots=True)
class Project:
    project_id: ProjectId
    account_id: AccountId
    name: str
    is_default: bool
    created_ms: int
