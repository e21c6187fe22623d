"""What only the operator does, at the command line or the first start: accounts and their first users."""

from __future__ import annotations

from dataclasses import dataclass

from domain.accounts.model import Account, Member, Membership, Project, User
from domain.accounts.policy import check_name, check_password, normal_email
from domain.accounts.ports import AccountsTx, PasswordHasher
from domain.accounts.team import refuse_taken_email
from domain.kernel.caller import Role, System
from domain.kernel.clock import Clock
from domain.kernel.errors import NotFound
from domain.kernel.facts import EventKind, Fact
from domain.kernel.ids import AccountId, IdSource, MembershipId, Prefix, ProjectId, UserId
from domain.kernel.unit_of_work import UnitOfWork

PLAN = "self-hosted"
DEFAULT_PROJECT = "Default"


@dataclass(frozen=True, slots=True)
class Created:
    account: Account
    owner: Member
    project: Project


class OperatorService:
    def __init__(self, *, uow: UnitOfWork[AccountsTx], clock: Clock, ids: IdSource, hasher: PasswordHasher) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._hasher = hasher

    async def is_empty(self) -> bool:
        """Whether the installation has no account yet."""
        async with self._uow.read() as tx:
            return not await tx.accounts.any()

    async def first_owner(self) -> Membership | None:
        """The Owner of the oldest account that has one."""
        async with self._uow.read() as tx:
            for account_id in await tx.accounts.all_ids():
                for member in await tx.memberships.members(account_id):
                    if member.membership.role is Role.OWNER:
                        return member.membership
        return None

    async def create_account(
        self, *, name: str, email: str, password: str, owner_name: str | None = None, only_first: bool = False
    ) -> Created | None:
        """An account with its Owner and its default project. With `only_first`, None when there is an account already.

        Raises Invalid or Conflict `EMAIL_TAKEN`."""
        now_ms = self._clock.now_ms()
        account = Account(AccountId(self._ids.new(Prefix.ACCOUNT)), check_name(name), PLAN, now_ms)
        user = await self._user(email, password, owner_name)
        project_id = ProjectId(self._ids.new(Prefix.PROJECT))
        project = Project(project_id, account.account_id, DEFAULT_PROJECT, True, now_ms)
        async with self._uow.write() as tx:
            if only_first and await tx.accounts.any():
                return None
            await refuse_taken_email(tx, user.email)
            await tx.accounts.add(account)
            await tx.projects.add(project)
            owner = await self._join(tx, account.account_id, user, Role.OWNER)
        return Created(account, owner, project)

    async def add_user(self, account_id: str, *, email: str, password: str, role: Role, name: str | None = None) -> Member:
        """Raises NotFound for an unknown account, Invalid, or Conflict `EMAIL_TAKEN`."""
        user = await self._user(email, password, name)
        async with self._uow.write() as tx:
            account = await tx.accounts.get(AccountId(account_id))
            if account is None:
                raise NotFound(f"There is no account {account_id!r} here. `latchboard account list` shows them.")
            await refuse_taken_email(tx, user.email)
            return await self._join(tx, account.account_id, user, role)

    async def set_password(self, email: str, password: str) -> None:
        """For somebody who cannot sign in any more; all of the user's sessions end. Raises NotFound."""
        password_hash = await self._hasher.hash(check_password(password))
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            found = await tx.users.by_email(normal_email(email))
            user = None if found is None else await tx.users.held(found.user_id)
            if user is None:
                raise NotFound(f"There is no user {email!r} here. Check the address.")
            await tx.users.save(user.with_password(password_hash, now_ms))
            await tx.refresh_tokens.revoke_user(user.user_id, now_ms)
            for membership in await tx.memberships.of_user(user.user_id):
                await self._record(tx, membership.account_id, "password_changed", f"{user.name}: password was set anew")

    async def accounts(self) -> list[Account]:
        async with self._uow.read() as tx:
            found = [await tx.accounts.get(account_id) for account_id in await tx.accounts.all_ids()]
        return [account for account in found if account is not None]

    async def _user(self, email: str, password: str, name: str | None) -> User:
        email = normal_email(email)
        password_hash = await self._hasher.hash(check_password(password))
        now_ms = self._clock.now_ms()
        shown = check_name(name or email.partition("@")[0])
        return User(UserId(self._ids.new(Prefix.USER)), email, shown, password_hash, True, now_ms, now_ms)

    async def _join(self, tx: AccountsTx, account_id: AccountId, user: User, role: Role) -> Member:
        membership_id = MembershipId(self._ids.new(Prefix.MEMBERSHIP))
        membership = Membership(membership_id, account_id, user.user_id, role, self._clock.now_ms())
        await tx.users.add(user)
        await tx.memberships.add(membership)
        await self._record(tx, account_id, "member_changed", f"{user.name} was added as {role}")
        return Member(membership, user)

    async def _record(self, tx: AccountsTx, account_id: AccountId, kind: EventKind, description: str) -> None:
        source = System(account_id, "operator").label
        await tx.record(Fact(account_id, kind, description, self._clock.now_ms(), source))
