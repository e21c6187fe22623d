"""Accounts, users, memberships and projects.

Invitations to an account.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, bindparam, func, select, text

from adapters.storage.errors import (
    email_taken_error,
    invitation_exists_error,
    member_exists_error,
    no_default_project_error,
    project_in_use_error,
)
from adapters.storage.sql.mapping import (
    AccountEntityStatements,
    EntityStatements,
    RowMapper,
    SqlAccountEntityRepository,
    SqlEntityRepository,
    enum_converter,
)
from adapters.storage.sql.session import POSTGRES, ForeignKeyViolationError
from adapters.storage.sql.statements import delete_batch
from adapters.storage.sql.tables import accounts, devices, invitations, memberships, notification_settings, projects, users
from domain.accounts.model import Account, Invitation, Membership, MembershipWithUser, Project, User
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, MembershipId, UserId

ACCOUNT = RowMapper(accounts, Account)
USER = RowMapper(users, User)
MEMBERSHIP = RowMapper(memberships, Membership, {"role": enum_converter(Role)})
PROJECT = RowMapper(projects, Project)

_ID: BindParameter[str] = bindparam("at_id")
_ACCOUNT: BindParameter[str] = bindparam("at_account")

ACCOUNTS = EntityStatements(ACCOUNT, "account_id")
HAS_ACCOUNT = select(accounts.c.account_id).limit(1)
LOCK_CREATION = text("SELECT pg_advisory_xact_lock(5492025321)")
LIST_ACCOUNT_IDS = select(accounts.c.account_id).order_by(accounts.c.created_ms, accounts.c.account_id)

USERS = EntityStatements(USER, "user_id", exists_error=lambda _: email_taken_error())
FIND_USER_BY_EMAIL = USER.select().where(users.c.email == bindparam("at_email"))
FIND_LANGUAGE = (
    select(notification_settings.c.language)
    .join(memberships, memberships.c.membership_id == notification_settings.c.membership_id)
    .where(memberships.c.user_id == _ID)
    .order_by(memberships.c.seq)
    .limit(1)
)

MEMBERSHIPS = EntityStatements(
    MEMBERSHIP, "membership_id", unchanged=("account_id", "user_id"), exists_error=lambda _: member_exists_error()
)
GET_MEMBERSHIP_FOR_SHARE = {False: MEMBERSHIPS.get[False], True: MEMBERSHIPS.get[False].with_for_update(read=True)}
LIST_MEMBERSHIPS_BY_USER = MEMBERSHIP.select().where(memberships.c.user_id == _ID).order_by(memberships.c.seq)
LIST_MEMBERS = (
    select(*MEMBERSHIP.columns, *USER.columns)
    .join(users, users.c.user_id == memberships.c.user_id)
    .where(memberships.c.account_id == _ACCOUNT)
    .order_by(memberships.c.seq)
)
LOCK_ACCOUNT = select(accounts.c.account_id).where(accounts.c.account_id == _ACCOUNT).with_for_update(key_share=True)
COUNT_OWNERS = (
    select(func.count())
    .select_from(memberships)
    .where(memberships.c.account_id == _ACCOUNT, memberships.c.role == Role.OWNER.value)
)

PROJECTS = AccountEntityStatements(PROJECT, "project_id", unchanged=("account_id",))
GET_DEFAULT_PROJECT = PROJECT.select().where(projects.c.account_id == _ACCOUNT, projects.c.is_default)
LIST_PROJECTS = (
    select(
        *PROJECT.columns,
        select(func.count()).select_from(devices).where(devices.c.project_id == projects.c.project_id).scalar_subquery(),
    )
    .where(projects.c.account_id == _ACCOUNT)
    .order_by(projects.c.seq)
)


class SqlAccountRepository(SqlEntityRepository[Account]):
    statements = ACCOUNTS

    async def has_any(self) -> bool:
        return bool(await self._session.read(HAS_ACCOUNT))

    async def lock_creation(self) -> None:
        if self._session.dialect == POSTGRES:  # SQLite has one writer
            await self._session.write(LOCK_CREATION)

    async def list_ids(self) -> Sequence[AccountId]:
        return [AccountId(row[0]) for row in await self._session.read(LIST_ACCOUNT_IDS)]


class SqlUserRepository(SqlEntityRepository[User]):
    statements = USERS

    async def find_by_email(self, email: str) -> User | None:
        return await self._first(USER, FIND_USER_BY_EMAIL, at_email=email)

    async def find_language(self, user_id: UserId) -> str | None:
        return next((row[0] for row in await self._session.read(FIND_LANGUAGE, at_id=user_id)), None)


class SqlMembershipRepository(SqlEntityRepository[Membership]):
    statements = MEMBERSHIPS

    async def get_for_share(self, membership_id: MembershipId) -> Membership | None:
        statement = GET_MEMBERSHIP_FOR_SHARE[self._session.writable]
        return await self._first(MEMBERSHIP, statement, at_id=membership_id)

    async def list_by_user(self, user_id: UserId) -> Sequence[Membership]:
        return await self._list(MEMBERSHIP, LIST_MEMBERSHIPS_BY_USER, at_id=user_id)

    async def list_members(self, account_id: AccountId) -> Sequence[MembershipWithUser]:
        width = len(MEMBERSHIP.columns)
        rows = await self._session.read(LIST_MEMBERS, at_account=account_id)
        return [MembershipWithUser(MEMBERSHIP.from_row(row[:width]), USER.from_row(row[width:])) for row in rows]

    async def lock_account(self, account_id: AccountId) -> None:
        """Members change, and bounded lists grow, only in transactions that hold this lock; SQLite has one writer."""
        if self._session.dialect == POSTGRES:
            await self._session.write(LOCK_ACCOUNT, at_account=account_id)

    async def count_owners(self, account_id: AccountId) -> int:
        return await self._number(COUNT_OWNERS, at_account=account_id)


class SqlProjectRepository(SqlAccountEntityRepository[Project]):
    statements = PROJECTS

    async def get_default(self, account_id: AccountId) -> Project:
        project = await self._first(PROJECT, GET_DEFAULT_PROJECT, at_account=account_id)
        if project is None:
            raise no_default_project_error(account_id)
        return project

    async def list_with_device_counts(self, account_id: AccountId) -> Sequence[tuple[Project, int]]:
        return [(PROJECT.from_row(row[:-1]), row[-1]) for row in await self._session.read(LIST_PROJECTS, at_account=account_id)]

    async def delete(self, entity_id: str) -> None:
        try:
            await super().delete(entity_id)
        except ForeignKeyViolationError:
            raise project_in_use_error() from None


INVITATION = RowMapper(invitations, Invitation, {"role": enum_converter(Role)})

INVITATIONS = AccountEntityStatements(
    INVITATION, "invitation_id", unchanged=("account_id", "email"), exists_error=lambda _: invitation_exists_error()
)
FIND_BY_TOKEN = INVITATION.select().where(invitations.c.token_hash == bindparam("at_hash"))
FIND_BY_EMAIL = INVITATION.select().where(INVITATIONS.in_account, invitations.c.email == bindparam("at_email"))
DELETE_EXPIRED = delete_batch(invitations, invitations.c.expires_ms < bindparam("at_before"), invitations.c.expires_ms)


class SqlInvitationRepository(SqlAccountEntityRepository[Invitation]):
    statements = INVITATIONS

    async def find_by_token(self, token_hash: bytes) -> Invitation | None:
        return await self._first(INVITATION, FIND_BY_TOKEN, at_hash=token_hash)

    async def find_by_email(self, account_id: AccountId, email: str) -> Invitation | None:
        return await self._first(INVITATION, FIND_BY_EMAIL, at_account=account_id, at_email=email)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_EXPIRED, at_before=expires_ms, at_limit=limit)
