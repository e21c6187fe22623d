"""Ports of the accounts part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.accounts.model import Account, Member, Membership, Project, User
from domain.accounts.sign_in_model import AccessTokenClaims, LoginFailures, OneTimeCode, RefreshToken, UnlockLink, UserSession
from domain.kernel.ids import AccountId, MembershipId, ProjectId, SessionId, UserId


class AccountRepository(Protocol):
    async def add(self, account: Account) -> None: ...

    async def get(self, account_id: AccountId) -> Account | None: ...

    async def has_any(self) -> bool:
        """Whether the installation has at least one account."""

    async def lock_creation(self) -> None:
        """Let only one transaction at a time decide by `has_any` whether to add the first account."""

    async def list_ids(self) -> Sequence[AccountId]: ...


class UserRepository(Protocol):
    async def add(self, user: User) -> None:
        """Raises Conflict when the email is taken."""

    async def get(self, user_id: UserId) -> User | None: ...

    async def get_for_update(self, user_id: UserId) -> User | None:
        """Like `get`, and locks the row until the write transaction ends. Required before `save`."""

    async def find_by_email(self, email: str) -> User | None: ...

    async def find_language(self, user_id: UserId) -> str | None:
        """That of the user's notifications (ISO 639), in the oldest membership with one; None if none is stored."""

    async def save(self, user: User) -> None: ...

    async def delete(self, user_id: UserId) -> None: ...


class MembershipRepository(Protocol):
    async def add(self, membership: Membership) -> None: ...

    async def get(self, membership_id: MembershipId) -> Membership | None: ...

    async def get_for_update(self, membership_id: MembershipId) -> Membership | None:
        """Like `get`, and locks the row until the write transaction ends: what its member has begun is over. Required before
        `save` and `delete`, and before the user is locked."""

    async def get_for_share(self, membership_id: MembershipId) -> Membership | None:
        """Like `get`, and keeps the membership as it is until the write transaction ends."""

    async def list_by_user(self, user_id: UserId) -> Sequence[Membership]:
        """Oldest first."""

    async def list_members(self, account_id: AccountId) -> Sequence[Member]:
        """Oldest first."""

    async def save(self, membership: Membership) -> None: ...

    async def delete(self, membership_id: MembershipId) -> None:
        """Also deletes the membership's grants and refresh tokens."""

    async def count_owners(self, account_id: AccountId) -> int: ...

    async def lock_account(self, account_id: AccountId) -> None:
        """As `locks_account` of `UnitOfWork.write`, where no caller opens the transaction. Call it first."""


class ProjectRepository(Protocol):
    async def add(self, project: Project) -> None: ...

    async def get(self, account_id: AccountId, project_id: ProjectId) -> Project | None: ...

    async def get_default(self, account_id: AccountId) -> Project: ...

    async def list_with_device_counts(self, account_id: AccountId) -> Sequence[tuple[Project, int]]:
        """Each with its device count, oldest first."""

    async def save(self, project: Project) -> None: ...

    async def delete(self, project_id: ProjectId) -> None: ...


class RefreshTokenRepository(Protocol):
    async def add(self, token: RefreshToken) -> None: ...

    async def get(self, token_hash: bytes) -> RefreshToken | None: ...

    async def mark_spent(self, token_hash: bytes, at_ms: int) -> bool:
        """Atomic compare-and-set: True for the one caller that found the token neither spent nor revoked."""

    async def revoke_family(self, family: SessionId, at_ms: int) -> None: ...

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None: ...

    async def delete_older_than(self, expires_ms: int, limit: int) -> int: ...


class UserSessionRepository(Protocol):
    async def add(self, session: UserSession) -> None: ...

    async def get(self, session_id: SessionId) -> UserSession | None: ...

    async def get_for_update(self, session_id: SessionId) -> UserSession | None:
        """Locks the row until the write transaction ends."""

    async def find_with_membership(self, session_id: SessionId) -> tuple[UserSession, Membership] | None:
        """One look-up for each call of a session."""

    async def list_open(self, user_id: UserId, now_ms: int) -> Sequence[UserSession]:
        """Neither ended nor expired; the last used first. The last use of a service session is that of its token."""

    async def record_use(self, session_id: SessionId, at_ms: int, expires_ms: int, address: str, user_agent: str) -> None: ...

    async def record_verification(self, session_id: SessionId, at_ms: int) -> None: ...

    async def sign_out(self, session_id: SessionId, at_ms: int) -> None: ...

    async def revoke(self, session_id: SessionId, at_ms: int) -> None:
        """What a service session asked for and nobody approved is overdue from then on."""

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        """As `revoke` for each but `keep`."""

    async def last_revoked_ms(self, user_id: UserId) -> int | None:
        """When a session of the person, not of a program, was revoked last. Signing out revokes none."""

    async def delete_older_than(self, expires_ms: int, limit: int) -> int: ...


class OneTimeCodeRepository(Protocol):
    async def get_for_update(self, user_id: UserId) -> OneTimeCode | None:
        """Locks the user's code until the write transaction ends."""

    async def upsert(self, code: OneTimeCode) -> None: ...


class UnlockLinkRepository(Protocol):
    async def get_for_update(self, user_id: UserId) -> UnlockLink | None:
        """Locks the user's link until the write transaction ends."""

    async def find_by_token(self, token_hash: bytes) -> UnlockLink | None: ...

    async def upsert(self, link: UnlockLink) -> None: ...


class LoginFailureRepository(Protocol):
    async def get_for_update(self, subject: str) -> LoginFailures | None:
        """Locks the subject's row until the write transaction ends."""

    async def upsert(self, failures: LoginFailures) -> None: ...

    async def delete(self, subject: str) -> None: ...

    async def delete_older_than(self, last_ms: int, limit: int) -> int:
        """Delete counters, but not known logins (subjects that start with `KNOWN_LOGIN_PREFIX`)."""

    async def delete_known_logins_older_than(self, last_ms: int, limit: int) -> int: ...


class HasAccounts(Protocol):
    @property
    def accounts(self) -> AccountRepository: ...


class HasUsers(Protocol):
    @property
    def users(self) -> UserRepository: ...


class HasMemberships(Protocol):
    @property
    def memberships(self) -> MembershipRepository: ...


class HasProjects(Protocol):
    @property
    def projects(self) -> ProjectRepository: ...


class HasRefreshTokens(Protocol):
    @property
    def refresh_tokens(self) -> RefreshTokenRepository: ...


class HasUserSessions(Protocol):
    @property
    def user_sessions(self) -> UserSessionRepository: ...


class HasOneTimeCodes(Protocol):
    @property
    def one_time_codes(self) -> OneTimeCodeRepository: ...


class HasUnlockLinks(Protocol):
    @property
    def unlock_links(self) -> UnlockLinkRepository: ...


class HasLoginFailures(Protocol):
    @property
    def login_failures(self) -> LoginFailureRepository: ...


class PasswordHasher(Protocol):
    """Port: argon2id (RFC 9106), run outside the event loop."""

    async def hash(self, password: str) -> str: ...

    async def verify(self, password_hash: str, password: str) -> bool: ...

    async def verify_dummy(self, password: str) -> None:
        """Takes as long as `verify`; for an unknown email."""

    def needs_rehash(self, password_hash: str) -> bool: ...


class AccessTokenCodec(Protocol):
    def issue(self, membership: Membership, session_id: SessionId, now_ms: int) -> str: ...

    def verify(self, token: str, now_ms: int) -> AccessTokenClaims:
        """Raises Unauthenticated `TOKEN_EXPIRED` or `UNAUTHENTICATED`."""


class SecretHasher(Protocol):
    def sha256(self, text: str) -> bytes:
        """SHA-256, for random secrets with full entropy."""

    def hmac_sha256(self, purpose: str, text: str) -> bytes:
        """HMAC-SHA-256 under the installation's key, for secrets with little entropy (one-time codes)."""


class Mailer(Protocol):
    async def send(self, to: str, subject: str, text: str) -> None:
        """Raises Unavailable when the mail server does not accept the mail."""


class Translator(Protocol):
    def translate(self, text: str, language: str) -> str:
        """A sentence of the service in the language (ISO 639); unchanged if there is no text for it."""


class BackgroundMailer(Protocol):
    """Port: mail that is sent in the background, for answers that must not tell by their time whether one was sent."""

    def enqueue(self, to: str, subject: str, text: str) -> None:
        """Never raises; a mail that is not accepted is logged and lost."""
