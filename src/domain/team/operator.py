"""Account administration by the operator, from the command line or at the first start: accounts and their first users."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.accounts.model import Account, Membership, MembershipWithUser, Project, User
from domain.accounts.policy import check_email, check_name
from domain.kernel.caller import Role, SystemCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, IdAndSecretGenerator, IdPrefix, ProjectId, UserId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import ClientInfo
from domain.sign_in.policy import check_new_password
from domain.sign_in.ports import PasswordHasher
from domain.sign_in.sessions import SessionTokenIssuer, cut_off_user, revoke_user_sessions
from domain.team.members import check_email_is_free, store_member
from domain.team.ports import TeamTx

DEFAULT_PLAN = "self-hosted"
DEFAULT_PROJECT_NAME = "Default"


@dataclass(frozen=True, slots=True)
class CreatedAccountWithOwner:
    account: Account
    owner: MembershipWithUser
    project: Project


@service
class OperatorService:
    uow: UnitOfWork[TeamTx]
    clock: Clock
    ids: IdAndSecretGenerator
    hasher: PasswordHasher

    async def has_no_accounts(self) -> bool:
        async with self.uow.read() as tx:
            return not await tx.accounts.has_any()

    async def issue_owner_token(self, issuer: SessionTokenIssuer) -> str | None:
        """An access token for the Owner of the oldest account that has one. Its session cannot be refreshed."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            owner = await _find_first_owner(tx)
            if owner is None:
                return None
            return await issuer.issue_access_token(tx, owner, ClientInfo("", "latchboard command line"), now_ms)

    async def create_account(
        self, *, name: str, email: str, password: str, owner_name: str | None = None, only_first: bool = False
    ) -> CreatedAccountWithOwner | None:
        """Create an account with its Owner and default project. With `only_first`, None when an account already exists.

        Raises ValidationFailed or Conflict `EMAIL_TAKEN`."""
        now_ms = self.clock.now_ms()
        account = Account(AccountId(self.ids.new_id(IdPrefix.ACCOUNT)), check_name(name), DEFAULT_PLAN, now_ms)
        user = await self._build_user(email, password, owner_name)
        project_id = ProjectId(self.ids.new_id(IdPrefix.PROJECT))
        project = Project(project_id, account.account_id, DEFAULT_PROJECT_NAME, True, now_ms)
        async with self.uow.write(caller=None) as tx:
            if only_first:
                await tx.accounts.lock_creation()
                if await tx.accounts.has_any():
                    return None
            await check_email_is_free(tx, user.email)
            await tx.accounts.add(account)
            await tx.projects.add(project)
            owner = await self._add_member(tx, account.account_id, user, Role.OWNER)
        return CreatedAccountWithOwner(account, owner, project)

    async def add_user(self, account_id: str, *, email: str, password: str, role: Role) -> MembershipWithUser:
        """Raises NotFound for an unknown account, ValidationFailed, or Conflict `EMAIL_TAKEN`."""
        user = await self._build_user(email, password)
        async with self.uow.write(caller=None) as tx:
            account = await tx.accounts.get(AccountId(account_id))
            if account is None:
                raise NotFound(f"There is no account {account_id!r} here. `latchboard account list` lists them.")
            await check_email_is_free(tx, user.email)
            return await self._add_member(tx, account.account_id, user, role)

    async def set_password(self, email: str, password: str) -> None:
        """Set the password of a user who cannot sign in; all sessions of the user end. Raises NotFound."""
        password_hash = await self.hasher.hash(await check_new_password(self.hasher, password, related=(email,)))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            user = await _get_user_for_update(tx, email)
            await tx.users.save(user.with_password(password_hash, now_ms))
            await cut_off_user(tx, user.user_id, now_ms)
            await self._emit_to_accounts(tx, user, "password_changed", "password was set")

    async def confirm_email(self, email: str) -> None:
        """The operator knows that the address is the user's: an identity provider may then sign that user in. Raises NotFound."""
        async with self.uow.write(caller=None) as tx:
            user = await _get_user_for_update(tx, email)
            await tx.users.save(replace(user, email_verified=True))
            await self._emit_to_accounts(tx, user, "member_changed", "email address was confirmed")

    async def reset_second_factor(self, email: str) -> None:
        """Remove the second factor of a user who has lost it; all sessions of the user end. Raises NotFound."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            user = await _get_user_for_update(tx, email)
            if not await tx.second_factors.delete_all(user.user_id):
                raise NotFound(f"{email} has no second factor.")
            await revoke_user_sessions(tx, user.user_id, now_ms)
            await self._emit_to_accounts(tx, user, "second_factor_removed", "second factor was reset")

    async def end_all_sessions(self) -> int:
        """Of every person and every service session; channels are suspended. Returns how many people had one that was open."""
        now_ms, count = self.clock.now_ms(), 0
        async with self.uow.write(caller=None) as tx:
            for account_id in await tx.accounts.list_ids():
                for member in await tx.memberships.list_members(account_id):
                    count += bool(await tx.user_sessions.list_open(member.user.user_id, now_ms))
                    await cut_off_user(tx, member.user.user_id, now_ms)
                self._emit(tx, account_id, "session_revoked", "All sessions were ended by the operator")
        return count

    async def list_accounts(self) -> list[Account]:
        async with self.uow.read() as tx:
            found = [await tx.accounts.get(account_id) for account_id in await tx.accounts.list_ids()]
        return [account for account in found if account is not None]

    async def _build_user(self, email: str, password: str, name: str | None = None) -> User:
        email = check_email(email)
        password_hash = await self.hasher.hash(await check_new_password(self.hasher, password, related=(email, name or "")))
        now_ms = self.clock.now_ms()
        shown = check_name(name or email.partition("@")[0])
        return User(UserId(self.ids.new_id(IdPrefix.USER)), email, shown, password_hash, True, now_ms, now_ms)

    async def _add_member(self, tx: TeamTx, account_id: AccountId, user: User, role: Role) -> MembershipWithUser:
        member = await store_member(tx, self.ids, account_id, user, role)
        self._emit(tx, account_id, "member_changed", f"{user.name} was added as {role}")
        return member

    async def _emit_to_accounts(self, tx: TeamTx, user: User, kind: EventKind, what: str) -> None:
        """One event in every account that the user is a member of."""
        for membership in await tx.memberships.list_by_user(user.user_id):
            self._emit(tx, membership.account_id, kind, f"{user.name}: {what} by the operator")

    def _emit(self, tx: TeamTx, account_id: AccountId, kind: EventKind, text: str) -> None:
        tx.emit(event_of(SystemCaller(account_id, "operator"), kind, text, self.clock.now_ms()))


async def _find_first_owner(tx: TeamTx) -> Membership | None:
    for account_id in await tx.accounts.list_ids():
        for member in await tx.memberships.list_members(account_id):
            if member.membership.role is Role.OWNER:
                return member.membership
    return None


async def _get_user_for_update(tx: TeamTx, email: str) -> User:
    """Raises NotFound."""
    found = await tx.users.find_by_email(check_email(email))
    user = None if found is None else await tx.users.get_for_update(found.user_id)
    if user is None:
        raise NotFound(f"There is no user {email!r} here. Check the address.")
    return user
