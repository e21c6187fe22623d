"""Accepting an invitation: whoever has the link chooses a password and becomes a member.

The link is checked before the password is hashed, so that strangers cause no work, and again in the transaction that adds the
member, with the role that the inviter has then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.accounts.model import Invitation, MembershipWithUser, User
from domain.accounts.policy import check_name, check_password
from domain.accounts.ports import HasAccounts, HasMemberships, HasUsers
from domain.kernel.checks import check_capacity
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent
from domain.kernel.errors import Conflict, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, UserId
from domain.kernel.unit_of_work import Transaction, UnitOfWork
from domain.sign_in.model import ClientInfo
from domain.sign_in.ports import PasswordHasher, TokenHasher
from domain.team.invitation_ports import HasInvitations
from domain.team.invitation_validity_and_mail_text import InvitationStatus, invitation_status
from domain.team.members import check_email_is_free, store_member


class InvitationAcceptanceTx(Transaction, HasAccounts, HasInvitations, HasMemberships, HasUsers, Protocol): ...


@dataclass(frozen=True, slots=True)
class InvitationPreview:
    invitation: Invitation
    account_name: str


@service
class InvitationAcceptanceService:
    uow: UnitOfWork[InvitationAcceptanceTx]
    clock: Clock
    ids: IdAndSecretGenerator
    hasher: PasswordHasher
    digest: TokenHasher

    async def preview(self, token: str) -> InvitationPreview:
        """What the link is for. Raises ValidationFailed `LINK_INVALID`, Conflict `INVITATION_VOID`."""
        async with self.uow.read() as tx:
            invitation = await self._get_valid(tx, token)
            account = await tx.accounts.get(invitation.account_id)
        return InvitationPreview(invitation, account.name if account is not None else "")

    async def accept(self, token: str, *, password: str, name: str | None, client: ClientInfo) -> MembershipWithUser:
        """The new member. Raises as `preview`, and Conflict `EMAIL_TAKEN` or `MEMBER_LIMIT`."""
        account_id = (await self.preview(token)).invitation.account_id
        password_hash = await self.hasher.hash(check_password(password))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            await tx.memberships.lock_account(account_id)
            invitation = await self._get_valid(tx, token)
            chosen_name = invitation.name if name is None else check_name(name)
            user_id = UserId(self.ids.new_id(IdPrefix.USER))
            user = User(user_id, invitation.email, chosen_name, password_hash, invitation.mailed, now_ms, now_ms)
            return await self.add_invited(tx, invitation, user, client)

    async def add_invited(
        self, tx: InvitationAcceptanceTx, invitation: Invitation, user: User, client: ClientInfo
    ) -> MembershipWithUser:
        """Uses the invitation up, in a transaction that holds the account's lock. Raises Conflict `EMAIL_TAKEN`,
        `MEMBER_LIMIT`."""
        await check_email_is_free(tx, invitation.email)
        members = await tx.memberships.list_members(invitation.account_id)
        check_capacity(len(members), "MEMBER_LIMIT", "An account has at most {limit} members")
        member = await store_member(tx, self.ids, invitation.account_id, user, invitation.role)
        await tx.invitations.delete(invitation.invitation_id)
        text = f"{user.name} accepted the invitation as {invitation.role}"
        await tx.emit(
            DomainEvent.from_caller(member.membership.to_session(client.address), "member_changed", text, user.created_ms)
        )
        return member

    async def _get_valid(self, tx: InvitationAcceptanceTx, token: str) -> Invitation:
        invitation = await tx.invitations.find_by_token(self.digest.sha256(token))
        if invitation is None:
            raise _link_invalid_error()
        inviter = await tx.memberships.get_for_share(invitation.invited_by)
        status = invitation_status(invitation, inviter, self.clock.now_ms())
        if status is InvitationStatus.VOID:
            raise Conflict(
                "Whoever invited you may no longer give this role. Ask an Owner or Admin of the account to invite you again.",
                code="INVITATION_VOID",
            )
        if status is InvitationStatus.EXPIRED:
            raise _link_invalid_error()
        return invitation


def _link_invalid_error() -> ValidationFailed:
    return ValidationFailed.for_field(
        "token", "is wrong, expired, revoked or used. Ask whoever invited you for a new link.", code="LINK_INVALID"
    )
