"""Accounts, users, memberships and projects."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.storage.errors import email_taken_error, member_exists_error, no_default_project_error, project_in_use_error
from domain.accounts.model import Account, Membership, MembershipWithUser, Project, User
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, MembershipId, ProjectId, UserId
from support.memory_storage.devices import DEVICES
from support.memory_storage.external_identities import IDENTITIES
from support.memory_storage.grants import delete_grants
from support.memory_storage.notifications import CHANNELS, NOTIFICATION_SETTINGS
from support.memory_storage.second_factors import CHALLENGES, RECOVERY_CODES, TOTP_SECRETS
from support.memory_storage.sessions import ONE_TIME_CODES, REFRESH_TOKENS, UNLOCK_LINKS, USER_SESSIONS
from support.memory_storage.tables import Database, Table

ACCOUNTS: Table[AccountId, Account] = Table("accounts")
USERS: Table[UserId, User] = Table("users")
MEMBERSHIPS: Table[MembershipId, Membership] = Table("memberships")
PROJECTS: Table[ProjectId, Project] = Table("projects")


class MemoryAccountRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, account: Account) -> None:
        self._database.writable_rows(ACCOUNTS)[account.account_id] = account

    async def get(self, account_id: AccountId) -> Account | None:
        return self._database.rows(ACCOUNTS).get(account_id)

    async def has_any(self) -> bool:
        return bool(self._database.rows(ACCOUNTS))

    async def lock_creation(self) -> None:
        """The memory storage has one writer."""

    async def list_ids(self) -> Sequence[AccountId]:
        return list(self._database.rows(ACCOUNTS))


class MemoryUserRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, user: User) -> None:
        self._require_unique_email(user)
        self._database.writable_rows(USERS)[user.user_id] = user

    async def get(self, user_id: UserId) -> User | None:
        return self._database.rows(USERS).get(user_id)

    async def get_for_update(self, user_id: UserId) -> User | None:
        return await self.get(user_id)

    async def find_by_email(self, email: str) -> User | None:
        return next((user for user in self._database.rows(USERS).values() if user.email == email), None)

    async def find_language(self, user_id: UserId) -> str | None:
        settings = self._database.rows(NOTIFICATION_SETTINGS)
        mine = [m.membership_id for m in self._database.rows(MEMBERSHIPS).values() if m.user_id == user_id]
        return next((settings[each].language for each in mine if each in settings), None)

    async def save(self, user: User) -> None:
        users = self._database.writable_rows(USERS)
        if user.user_id in users:
            self._require_unique_email(user)
            users[user.user_id] = user

    async def delete(self, user_id: UserId) -> None:
        mine = [m.membership_id for m in self._database.rows(MEMBERSHIPS).values() if m.user_id == user_id]
        for membership_id in mine:
            delete_membership(self._database, membership_id)
        self._database.delete(
            REFRESH_TOKENS, [key for key, t in self._database.rows(REFRESH_TOKENS).items() if t.user_id == user_id]
        )
        self._database.delete(ONE_TIME_CODES, [user_id])
        self._database.delete(UNLOCK_LINKS, [user_id])
        mine_too = [key for key, one in self._database.rows(IDENTITIES).items() if one.user_id == user_id]
        self._database.delete(IDENTITIES, mine_too)
        self._database.delete(TOTP_SECRETS, [user_id])
        self._database.delete(RECOVERY_CODES, [key for key in self._database.rows(RECOVERY_CODES) if key[0] == user_id])
        self._database.delete(USERS, [user_id])

    def _require_unique_email(self, user: User) -> None:
        for other in self._database.rows(USERS).values():
            if other.email == user.email and other.user_id != user.user_id:
                raise email_taken_error()


class MemoryMembershipRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, membership: Membership) -> None:
        pair = (membership.account_id, membership.user_id)
        if any((m.account_id, m.user_id) == pair for m in self._database.rows(MEMBERSHIPS).values()):
            raise member_exists_error()
        self._database.writable_rows(MEMBERSHIPS)[membership.membership_id] = membership

    async def get(self, membership_id: MembershipId) -> Membership | None:
        return self._database.rows(MEMBERSHIPS).get(membership_id)

    async def get_for_update(self, membership_id: MembershipId) -> Membership | None:
        return await self.get(membership_id)

    async def get_for_share(self, membership_id: MembershipId) -> Membership | None:
        return await self.get(membership_id)

    async def list_by_user(self, user_id: UserId) -> Sequence[Membership]:
        return [m for m in self._database.rows(MEMBERSHIPS).values() if m.user_id == user_id]

    async def list_members(self, account_id: AccountId) -> Sequence[MembershipWithUser]:
        users = self._database.rows(USERS)
        return [MembershipWithUser(m, users[m.user_id]) for m in self._list_by_account(account_id) if m.user_id in users]

    async def save(self, membership: Membership) -> None:
        rows = self._database.writable_rows(MEMBERSHIPS)
        if membership.membership_id in rows:
            rows[membership.membership_id] = membership

    async def delete(self, membership_id: MembershipId) -> None:
        delete_membership(self._database, membership_id)

    async def lock_account(self, account_id: AccountId) -> None: ...  # one writer

    async def count_owners(self, account_id: AccountId) -> int:
        return sum(m.role is Role.OWNER for m in self._list_by_account(account_id))

    def _list_by_account(self, account_id: AccountId) -> list[Membership]:
        return [m for m in self._database.rows(MEMBERSHIPS).values() if m.account_id == account_id]


def delete_membership(database: Database, membership_id: MembershipId) -> None:
    delete_grants(database, lambda grant: grant.subject.membership_id == membership_id)
    database.delete(REFRESH_TOKENS, [key for key, t in database.rows(REFRESH_TOKENS).items() if t.membership_id == membership_id])
    database.delete(USER_SESSIONS, [key for key, s in database.rows(USER_SESSIONS).items() if s.membership_id == membership_id])
    database.delete(CHALLENGES, [key for key, c in database.rows(CHALLENGES).items() if c.membership_id == membership_id])
    database.delete(CHANNELS, [key for key, c in database.rows(CHANNELS).items() if c.membership_id == membership_id])
    database.delete(NOTIFICATION_SETTINGS, [membership_id])
    database.delete(MEMBERSHIPS, [membership_id])


class MemoryProjectRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, project: Project) -> None:
        self._database.writable_rows(PROJECTS)[project.project_id] = project

    async def get(self, account_id: AccountId, project_id: ProjectId) -> Project | None:
        project = self._database.rows(PROJECTS).get(project_id)
        return project if project is not None and project.account_id == account_id else None

    async def get_default(self, account_id: AccountId) -> Project:
        for project in self._database.rows(PROJECTS).values():
            if project.account_id == account_id and project.is_default:
                return project
        raise no_default_project_error(account_id)

    async def list_with_device_counts(self, account_id: AccountId) -> Sequence[tuple[Project, int]]:
        mine = [p for p in self._database.rows(PROJECTS).values() if p.account_id == account_id]
        return [(project, self._count_devices(project.project_id)) for project in mine]

    async def save(self, project: Project) -> None:
        rows = self._database.writable_rows(PROJECTS)
        if project.project_id in rows:
            rows[project.project_id] = project

    async def delete(self, project_id: ProjectId) -> None:
        if self._count_devices(project_id):
            raise project_in_use_error()
        delete_grants(self._database, lambda grant: grant.project_id == project_id)
        self._database.delete(PROJECTS, [project_id])

    def _count_devices(self, project_id: ProjectId) -> int:
        return sum(device.project_id == project_id for device in self._database.rows(DEVICES).values())
