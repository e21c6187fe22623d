"""The members of an account. Admins manage members, only Owners manage Owners, and one Owner always remains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from domain.accounts.model import Membership, MembershipWithUser, User
from domain.accounts.policy import (
    check_can_assign_role,
    check_can_change_member,
    check_email,
    check_name,
    check_not_last_owner,
    may_assign_role,
)
from domain.accounts.ports import PendingApprovalCloserPort
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.checks import check_capacity
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.ids import AccountId, IdAndSecretGenerator, IdPrefix, MembershipId, UserId, has_id_format
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.policy import check_new_password
from domain.sign_in.ports import PasswordHasher
from domain.sign_in.presence import require_fresh_proof
from domain.team.ports import TeamTx

TxT = TypeVar("TxT", bound=TeamTx)


@service
class MemberService(Generic[TxT]):
    uow: UnitOfWork[TxT]
    clock: Clock
    ids: IdAndSecretGenerator
    hasher: PasswordHasher
    requests: PendingApprovalCloserPort[TxT]

    async def list_members(self, caller: SessionCaller) -> Sequence[MembershipWithUser]:
        async with self.uow.read() as tx:
            return await tx.memberships.list_members(caller.account_id)

    async def get_member(self, caller: SessionCaller, membership_id: str) -> MembershipWithUser:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_member_for_update(tx, caller, membership_id)

    async def add_member(self, caller: SessionCaller, *, email: str, name: str, role: Role, password: str) -> MembershipWithUser:
        """Raises PermissionDenied, ValidationFailed, or Conflict `EMAIL_TAKEN` when the address is in use."""
        check_can_assign_role(caller, role)
        email, name = check_email(email), check_name(name)
        password_hash = await self.hasher.hash(await check_new_password(self.hasher, password, related=(email, name)))
        now_ms = self.clock.now_ms()
        user = User(UserId(self.ids.new_id(IdPrefix.USER)), email, name, password_hash, False, now_ms, now_ms)
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            await check_email_is_free(tx, email)
            existing = await tx.memberships.list_members(caller.account_id)
            check_capacity(len(existing), "MEMBER_LIMIT", "An account has at most {limit} members")
            member = await store_member(tx, self.ids, caller.account_id, user, role)
            self._emit(tx, caller, f"{name} was added as {role}")
        return member

    async def update_member(
        self, caller: SessionCaller, membership_id: str, *, role: Role | None = None, name: str | None = None
    ) -> MembershipWithUser:
        """Raises PermissionDenied (`STEP_UP_REQUIRED` for another role), NotFound, or Conflict `LAST_OWNER`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            owners = await tx.memberships.count_owners(caller.account_id)
            target = await _get_member_for_update(tx, caller, membership_id)
            check_can_change_member(caller, target.membership)
            membership, user = target.membership, target.user
            if role is not None and role is not membership.role:
                check_can_assign_role(caller, role)
                await require_fresh_proof(tx, caller, now_ms)
                check_not_last_owner(membership, role, owners)
                membership = await store_role(tx, membership, role, caller, now_ms)
                self._emit(tx, caller, f"{user.name} is now {role}")
            if name is not None and check_name(name) != user.name:
                user = replace(user, name=check_name(name))
                await tx.users.save(user)
                self._emit(tx, caller, f"{target.user.name} is now called {user.name}")
        return MembershipWithUser(membership, user)

    async def remove_member(self, caller: SessionCaller, member_id: str) -> None:
        """Also ends the membership's grants, sessions and requests that wait for approval, and deletes a user
        without another membership."""
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            owners = await tx.memberships.count_owners(caller.account_id)
            target = await _get_member_for_update(tx, caller, member_id)
            check_can_change_member(caller, target.membership)
            check_not_last_owner(target.membership, None, owners)
            membership_id = target.membership.membership_id
            await self.requests.close_requests(tx, caller, self.clock.now_ms(), membership_id=membership_id)
            await tx.memberships.delete(membership_id)
            if not await tx.memberships.list_by_user(target.user.user_id):
                await tx.users.delete(target.user.user_id)
            self._emit(tx, caller, f"{target.user.name} was removed")

    def _emit(self, tx: TeamTx, caller: SessionCaller, description: str) -> None:
        tx.emit(event_of(caller, "member_changed", description, self.clock.now_ms()))


async def store_member(
    tx: TeamTx, ids: IdAndSecretGenerator, account_id: AccountId, user: User, role: Role
) -> MembershipWithUser:
    """A new user, who is a member of the account from the same moment on."""
    membership = Membership(MembershipId(ids.new_id(IdPrefix.MEMBERSHIP)), account_id, user.user_id, role, user.created_ms)
    await tx.users.add(user)
    await tx.memberships.add(membership)
    return MembershipWithUser(membership, user)


async def store_role(tx: TeamTx, before: Membership, role: Role, caller: SessionCaller, now_ms: int) -> Membership:
    """The membership with this role. What needs the role that it had before ends for good, in a transaction that holds the
    account's lock: service sessions above the new role, and invitations to roles that it may not give any more."""
    changed = replace(before, role=role)
    await tx.memberships.save(changed)
    for made in await tx.service_sessions.list_open(before.account_id, now_ms):
        if made.membership_id == before.membership_id and not role.is_at_least(made.role):
            await tx.user_sessions.revoke(made.session_id, now_ms)
            text = f"Service session {made.name} ({made.prefix}…) ended: its maker is now {role}"
            tx.emit(event_of(caller, "session_revoked", text, now_ms))
    for invitation in await tx.invitations.list_by_account(before.account_id):
        if invitation.invited_by == before.membership_id and not may_assign_role(role, invitation.role):
            await tx.invitations.save(replace(invitation, voided_ms=now_ms))
    return changed


async def check_email_is_free(tx: TeamTx, email: str) -> None:
    """Raises Conflict `EMAIL_TAKEN`: an email has one user in the installation."""
    if await tx.users.find_by_email(email) is not None:
        raise Conflict("This email address is already in use. Choose another one.", code="EMAIL_TAKEN")


async def _get_member_for_update(tx: TeamTx, caller: SessionCaller, membership_id: str) -> MembershipWithUser:
    if has_id_format(IdPrefix.MEMBERSHIP, membership_id):
        membership = await tx.memberships.get_for_update(MembershipId(membership_id))
        if membership is not None and membership.account_id == caller.account_id:
            user = await tx.users.get_for_update(membership.user_id)
            if user is not None:
                return MembershipWithUser(membership, user)
    raise NotFound.for_resource("member", membership_id)
