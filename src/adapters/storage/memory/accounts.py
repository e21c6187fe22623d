"""Accounts, people, memberships and projects."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.storage import refusals
from adapters.storage.memory.devices import DEVICES
from adapters.storage.memory.grants import drop_grants
from adapters.storage.memory.sessions import CODES, TOKENS
from adapters.storage.memory.shelves import Book, Shelf
from domain.accounts.model import Account, Member, Membership, Project, User
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, MembershipId, ProjectId, UserId

ACCOUNTS: Shelf[AccountId, Account] = Shelf("accounts")
USERS: Shelf[UserId, User] = Shelf("users")
MEMBERSHIPS: Shelf[MembershipId, Membership] = Shelf("memberships")
PROJECTS: Shelf[ProjectId, Project] = Shelf("projects")


class MemoryAccounts:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, account: Account) -> None:
        self._book.edit(ACCOUNTS)[account.account_id] = account

    async def get(self, account_id: AccountId) -> Account | None:
        return self._book.rows(ACCOUNTS).get(account_id)

    async def any(self) -> bool:
        return bool(self._book.rows(ACCOUNTS))

    async def all_ids(self) -> Sequence[AccountId]:
        return list(self._book.rows(ACCOUNTS))


class MemoryUsers:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, user: User) -> None:
        self._refuse_taken(user)
        self._book.edit(USERS)[user.user_id] = user

    async def get(self, user_id: UserId) -> User | None:
        return self._book.rows(USERS).get(user_id)

    async def held(self, user_id: UserId) -> User | None:
        return await self.get(user_id)

    async def by_email(self, email: str) -> User | None:
        return next((user for user in self._book.rows(USERS).values() if user.email == email), None)

    async def save(self, user: User) -> None:
        users = self._book.edit(USERS)
        if user.user_id in users:
            self._refuse_taken(user)
            users[user.user_id] = user

    async def delete(self, user_id: UserId) -> None:
        mine = [m.membership_id for m in self._book.rows(MEMBERSHIPS).values() if m.user_id == user_id]
        for membership_id in mine:
            drop_membership(self._book, membership_id)
        self._book.drop(TOKENS, [key for key, t in self._book.rows(TOKENS).items() if t.user_id == user_id])
        self._book.drop(CODES, [user_id])
        self._book.drop(USERS, [user_id])

    def _refuse_taken(self, user: User) -> None:
        for other in self._book.rows(USERS).values():
            if other.email == user.email and other.user_id != user.user_id:
                raise refusals.email_taken()


class MemoryMemberships:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, membership: Membership) -> None:
        pair = (membership.account_id, membership.user_id)
        if any((m.account_id, m.user_id) == pair for m in self._book.rows(MEMBERSHIPS).values()):
            raise refusals.member_exists()
        self._book.edit(MEMBERSHIPS)[membership.membership_id] = membership

    async def get(self, membership_id: MembershipId) -> Membership | None:
        return self._book.rows(MEMBERSHIPS).get(membership_id)

    async def of_user(self, user_id: UserId) -> Sequence[Membership]:
        return [m for m in self._book.rows(MEMBERSHIPS).values() if m.user_id == user_id]

    async def members(self, account_id: AccountId) -> Sequence[Member]:
        users = self._book.rows(USERS)
        return [Member(m, users[m.user_id]) for m in self._of(account_id) if m.user_id in users]

    async def save(self, membership: Membership) -> None:
        rows = self._book.edit(MEMBERSHIPS)
        if membership.membership_id in rows:
            rows[membership.membership_id] = membership

    async def delete(self, membership_id: MembershipId) -> None:
        drop_membership(self._book, membership_id)

    async def owners(self, account_id: AccountId) -> int:
        return sum(m.role is Role.OWNER for m in self._of(account_id))

    def _of(self, account_id: AccountId) -> list[Membership]:
        return [m for m in self._book.rows(MEMBERSHIPS).values() if m.account_id == account_id]


def drop_membership(book: Book, membership_id: MembershipId) -> None:
    drop_grants(book, lambda grant: grant.subject.membership_id == membership_id)
    book.drop(TOKENS, [key for key, t in book.rows(TOKENS).items() if t.membership_id == membership_id])
    book.drop(MEMBERSHIPS, [membership_id])


class MemoryProjects:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, project: Project) -> None:
        self._book.edit(PROJECTS)[project.project_id] = project

    async def get(self, account_id: AccountId, project_id: ProjectId) -> Project | None:
        project = self._book.rows(PROJECTS).get(project_id)
        return project if project is not None and project.account_id == account_id else None

    async def default(self, account_id: AccountId) -> Project:
        for project in self._book.rows(PROJECTS).values():
            if project.account_id == account_id and project.is_default:
                return project
        raise refusals.no_default_project(account_id)

    async def list(self, account_id: AccountId) -> Sequence[tuple[Project, int]]:
        mine = [p for p in self._book.rows(PROJECTS).values() if p.account_id == account_id]
        return [(project, self._devices_in(project.project_id)) for project in mine]

    async def save(self, project: Project) -> None:
        rows = self._book.edit(PROJECTS)
        if project.project_id in rows:
            rows[project.project_id] = project

    async def delete(self, project_id: ProjectId) -> None:
        if self._devices_in(project_id):
            raise refusals.project_in_use()
        drop_grants(self._book, lambda grant: grant.project_id == project_id)
        self._book.drop(PROJECTS, [project_id])

    def _devices_in(self, project_id: ProjectId) -> int:
        return sum(device.project_id == project_id for device in self._book.rows(DEVICES).values())
