"""Accounts, users, memberships and projects."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, bindparam, delete, func, insert, select, text, update

from adapters.storage import errors
from adapters.storage.sql.db_session import POSTGRES, DbSession, ForeignKeyViolationError, UniqueViolationError
from adapters.storage.sql.row_mapper import RowMapper, enum_converter, for_update
from adapters.storage.sql.tables import accounts, devices, memberships, notification_settings, projects, users
from domain.accounts.model import Account, Member, Membership, Project, User
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, MembershipId, ProjectId, UserId

ACCOUNT = RowMapper(accounts, Account)
USER = RowMapper(users, User)
MEMBERSHIP = RowMapper(memberships, Membership, {"role": enum_converter(Role)})
PROJECT = RowMapper(projects, Project)

_ID: BindParameter[str] = bindparam("at_id")
_ACCOUNT: BindParameter[str] = bindparam("at_account")

ADD_ACCOUNT = insert(accounts)
GET_ACCOUNT = ACCOUNT.select().where(accounts.c.account_id == _ID)
HAS_ACCOUNT = select(accounts.c.account_id).limit(1)
LOCK_CREATION = text("SELECT pg_advisory_xact_lock(5492025321)")
LIST_ACCOUNT_IDS = select(accounts.c.account_id).order_by(accounts.c.created_ms, accounts.c.account_id)

ADD_USER = insert(users)
GET_USER = USER.select().where(users.c.user_id == _ID)
GET_USER_FOR_UPDATE = for_update(GET_USER)
FIND_USER_BY_EMAIL = USER.select().where(users.c.email == bindparam("at_email"))
FIND_LANGUAGE = (
    select(notification_settings.c.language)
    .join(memberships, memberships.c.membership_id == notification_settings.c.membership_id)
    .where(memberships.c.user_id == _ID)
    .order_by(memberships.c.seq)
    .limit(1)
)
SAVE_USER = update(users).where(users.c.user_id == _ID)
DELETE_USER = delete(users).where(users.c.user_id == _ID)

ADD_MEMBERSHIP = insert(memberships)
GET_MEMBERSHIP = MEMBERSHIP.select().where(memberships.c.membership_id == _ID)
GET_MEMBERSHIP_FOR_UPDATE = for_update(GET_MEMBERSHIP)
GET_MEMBERSHIP_FOR_SHARE = {False: GET_MEMBERSHIP, True: GET_MEMBERSHIP.with_for_update(read=True)}
LIST_MEMBERSHIPS_BY_USER = MEMBERSHIP.select().where(memberships.c.user_id == _ID).order_by(memberships.c.seq)
LIST_MEMBERS = (
    select(*MEMBERSHIP.columns, *USER.columns)
    .join(users, users.c.user_id == memberships.c.user_id)
    .where(memberships.c.account_id == _ACCOUNT)
    .order_by(memberships.c.seq)
)
SAVE_MEMBERSHIP = update(memberships).where(memberships.c.membership_id == _ID)
DELETE_MEMBERSHIP = delete(memberships).where(memberships.c.membership_id == _ID)
LOCK_ACCOUNT = select(accounts.c.account_id).where(accounts.c.account_id == _ACCOUNT).with_for_update(key_share=True)
COUNT_OWNERS = (
    select(func.count())
    .select_from(memberships)
    .where(memberships.c.account_id == _ACCOUNT, memberships.c.role == Role.OWNER.value)
)

ADD_PROJECT = insert(projects)
GET_PROJECT = PROJECT.select().where(projects.c.project_id == _ID, projects.c.account_id == _ACCOUNT)
GET_DEFAULT_PROJECT = PROJECT.select().where(projects.c.account_id == _ACCOUNT, projects.c.is_default)
LIST_PROJECTS = (
    select(
        *PROJECT.columns,
        select(func.count()).select_from(devices).where(devices.c.project_id == projects.c.project_id).scalar_subquery(),
    )
    .where(projects.c.account_id == _ACCOUNT)
    .order_by(projects.c.seq)
)
SAVE_PROJECT = update(projects).where(projects.c.project_id == _ID)
DELETE_PROJECT = delete(projects).where(projects.c.project_id == _ID)


class SqlAccountRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, account: Account) -> None:
        await self._session.write(ADD_ACCOUNT, **ACCOUNT.values(account))

    async def get(self, account_id: AccountId) -> Account | None:
        return ACCOUNT.first_or_none(await self._session.read(GET_ACCOUNT, at_id=account_id))

    async def has_any(self) -> bool:
        return bool(await self._session.read(HAS_ACCOUNT))

    async def lock_creation(self) -> None:
        if self._session.dialect == POSTGRES:  # SQLite has one writer
            await self._session.write(LOCK_CREATION)

    async def list_ids(self) -> Sequence[AccountId]:
        return [AccountId(row[0]) for row in await self._session.read(LIST_ACCOUNT_IDS)]


class SqlUserRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, user: User) -> None:
        try:
            await self._session.write(ADD_USER, **USER.values(user))
        except UniqueViolationError:
            raise errors.email_taken_error() from None

    async def get(self, user_id: UserId) -> User | None:
        return USER.first_or_none(await self._session.read(GET_USER, at_id=user_id))

    async def get_for_update(self, user_id: UserId) -> User | None:
        return USER.first_or_none(await self._session.read(GET_USER_FOR_UPDATE[self._session.writable], at_id=user_id))

    async def find_by_email(self, email: str) -> User | None:
        return USER.first_or_none(await self._session.read(FIND_USER_BY_EMAIL, at_email=email))

    async def find_language(self, user_id: UserId) -> str | None:
        return next((row[0] for row in await self._session.read(FIND_LANGUAGE, at_id=user_id)), None)

    async def save(self, user: User) -> None:
        try:
            await self._session.write(SAVE_USER, at_id=user.user_id, **USER.values(user, "user_id"))
        except UniqueViolationError:
            raise errors.email_taken_error() from None

    async def delete(self, user_id: UserId) -> None:
        await self._session.write(DELETE_USER, at_id=user_id)


class SqlMembershipRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, membership: Membership) -> None:
        try:
            await self._session.write(ADD_MEMBERSHIP, **MEMBERSHIP.values(membership))
        except UniqueViolationError:
            raise errors.member_exists_error() from None

    async def get(self, membership_id: MembershipId) -> Membership | None:
        return MEMBERSHIP.first_or_none(await self._session.read(GET_MEMBERSHIP, at_id=membership_id))

    async def get_for_update(self, membership_id: MembershipId) -> Membership | None:
        statement = GET_MEMBERSHIP_FOR_UPDATE[self._session.writable]
        return MEMBERSHIP.first_or_none(await self._session.read(statement, at_id=membership_id))

    async def get_for_share(self, membership_id: MembershipId) -> Membership | None:
        statement = GET_MEMBERSHIP_FOR_SHARE[self._session.writable]
        return MEMBERSHIP.first_or_none(await self._session.read(statement, at_id=membership_id))

    async def list_by_user(self, user_id: UserId) -> Sequence[Membership]:
        return [MEMBERSHIP.from_row(row) for row in await self._session.read(LIST_MEMBERSHIPS_BY_USER, at_id=user_id)]

    async def list_members(self, account_id: AccountId) -> Sequence[Member]:
        width = len(MEMBERSHIP.columns)
        rows = await self._session.read(LIST_MEMBERS, at_account=account_id)
        return [Member(MEMBERSHIP.from_row(row[:width]), USER.from_row(row[width:])) for row in rows]

    async def save(self, membership: Membership) -> None:
        values = MEMBERSHIP.values(membership, "membership_id", "account_id", "user_id")
        await self._session.write(SAVE_MEMBERSHIP, at_id=membership.membership_id, **values)

    async def delete(self, membership_id: MembershipId) -> None:
        await self._session.write(DELETE_MEMBERSHIP, at_id=membership_id)

    async def lock_account(self, account_id: AccountId) -> None:
        """Members change, and bounded lists grow, only in transactions that hold this lock; SQLite has one writer."""
        if self._session.dialect == POSTGRES:
            await self._session.write(LOCK_ACCOUNT, at_account=account_id)

    async def count_owners(self, account_id: AccountId) -> int:
        return int((await self._session.read(COUNT_OWNERS, at_account=account_id))[0][0])


class SqlProjectRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, project: Project) -> None:
        await self._session.write(ADD_PROJECT, **PROJECT.values(project))

    async def get(self, account_id: AccountId, project_id: ProjectId) -> Project | None:
        rows = await self._session.read(GET_PROJECT, at_id=project_id, at_account=account_id)
        return PROJECT.first_or_none(rows)

    async def get_default(self, account_id: AccountId) -> Project:
        project = PROJECT.first_or_none(await self._session.read(GET_DEFAULT_PROJECT, at_account=account_id))
        if project is None:
            raise errors.no_default_project_error(account_id)
        return project

    async def list_with_device_counts(self, account_id: AccountId) -> Sequence[tuple[Project, int]]:
        return [(PROJECT.from_row(row[:-1]), row[-1]) for row in await self._session.read(LIST_PROJECTS, at_account=account_id)]

    async def save(self, project: Project) -> None:
        values = PROJECT.values(project, "project_id", "account_id")
        await self._session.write(SAVE_PROJECT, at_id=project.project_id, **values)

    async def delete(self, project_id: ProjectId) -> None:
        try:
            await self._session.write(DELETE_PROJECT, at_id=project_id)
        except ForeignKeyViolationError:
            raise errors.project_in_use_error() from None
