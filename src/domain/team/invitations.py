"""Invitations: an Admin names email, name and role; the invited person opens the link, chooses a password and becomes a member.

The link is mailed. Without a mail server, or when it does not accept the mail, the link is given to the Admin to pass on.
An invitation depends on the one who sent it last: once that member may not give the role, the link is void. The link is
checked before the password is hashed, so that strangers cause no work, and again in the transaction that adds the member, with
the role that the inviter has then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from domain.accounts.model import Invitation, Membership, MembershipWithUser, User
from domain.accounts.policy import (
    TranslatableMailTemplate,
    check_can_assign_role,
    check_email,
    check_name,
    choose_language,
    may_assign_role,
)
from domain.accounts.ports import Mailer, Translator
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import check_capacity
from domain.kernel.clock import DAY_MS, HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, NotFound, Unavailable, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, InvitationId, UserId, has_id_format
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import ClientInfo
from domain.sign_in.policy import AttemptLimit, check_new_password
from domain.sign_in.ports import PasswordHasher, TokenHasher
from domain.sign_in.presence import require_fresh_proof
from domain.team.members import check_email_is_free, store_member
from domain.team.ports import TeamTx

INVITATION_TTL_MS = 7 * DAY_MS
INVITATION_TOKEN_LENGTH = 40
"""Letters and digits: 238 bits."""
INVITATION_MAILS = AttemptLimit(60, HOUR_MS)
"""Invitations that one account has mailed: nobody uses the service to fill a stranger's mailbox."""

MAIL = TranslatableMailTemplate(
    "You are invited to Latchboard",
    """Hello {name},

{inviter} invites you to the account {account} as {role}.
Open this link and choose your password. Nobody else gets to know it:

{link}

The link is valid for {days} days and can be used once.
If you did not expect this, you can ignore this mail.
""",
)


class InvitationStatus(StrEnum):
    """VOID: the one who invited has lost the role that is needed to give this one, or is no longer a member. It stays so until
    somebody who may give the role sends it again."""

    PENDING = "PENDING"
    EXPIRED = "EXPIRED"
    VOID = "VOID"


def invitation_status(invitation: Invitation, inviter: Membership | None, now_ms: int) -> InvitationStatus:
    """`inviter`: the membership `invited_by`, as it is now."""
    if invitation.voided_ms is not None:
        return InvitationStatus.VOID
    if inviter is None or inviter.account_id != invitation.account_id or not may_assign_role(inviter.role, invitation.role):
        return InvitationStatus.VOID
    return InvitationStatus.PENDING if now_ms < invitation.expires_ms else InvitationStatus.EXPIRED


@dataclass(frozen=True, slots=True)
class InvitationResult:
    """`link`: to pass on; None when it was mailed."""

    invitation: Invitation
    link: str | None = field(repr=False)


@service
class InvitationService:
    """`mailer`: None without a mail server. `link_url`: the page that a link opens; the token is appended."""

    uow: UnitOfWork[TeamTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    mailer: Mailer | None
    link_url: str
    translator: Translator

    async def list_invitations(self, caller: SessionCaller) -> Sequence[tuple[Invitation, InvitationStatus]]:
        """Oldest first. Raises PermissionDenied below Admin."""
        require_role(caller, Role.ADMIN)
        now_ms = self.clock.now_ms()
        async with self.uow.read() as tx:
            found = await tx.invitations.list_by_account(caller.account_id)
            members = await tx.memberships.list_members(caller.account_id)
        inviters = {member.membership.membership_id: member.membership for member in members}
        return [(one, invitation_status(one, inviters.get(one.invited_by), now_ms)) for one in found]

    async def get(self, caller: SessionCaller, invitation_id: str) -> tuple[Invitation, InvitationStatus]:
        """Raises PermissionDenied below Admin, NotFound."""
        require_role(caller, Role.ADMIN)
        async with self.uow.read() as tx:
            found = None
            if has_id_format(IdPrefix.INVITATION, invitation_id):
                found = await tx.invitations.get_for_update(caller.account_id, InvitationId(invitation_id))
            if found is None:
                raise NotFound.for_resource("invitation", invitation_id)
            inviter = await tx.memberships.get(found.invited_by)
        return found, invitation_status(found, inviter, self.clock.now_ms())

    async def invite(self, caller: SessionCaller, *, email: str, name: str, role: Role, language: str) -> InvitationResult:
        """`language`: of the mail, unless the inviter has stored one. Raises PermissionDenied, ValidationFailed,
        RateLimited, or Conflict `EMAIL_TAKEN`, `INVITATION_EXISTS`, `MEMBER_LIMIT`."""
        check_can_assign_role(caller, role)
        token, now_ms = self.ids.random_alphanumeric(INVITATION_TOKEN_LENGTH), self.clock.now_ms()
        invitation = Invitation(
            invitation_id=InvitationId(self.ids.new_id(IdPrefix.INVITATION)),
            account_id=caller.account_id,
            email=check_email(email),
            name=check_name(name),
            role=role,
            invited_by=caller.membership_id,
            token_hash=self.digest.sha256(token),
            created_ms=now_ms,
            expires_ms=now_ms + INVITATION_TTL_MS,
            mailed=self.mailer is not None,
        )
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            await check_email_is_free(tx, invitation.email)
            pending = await tx.invitations.list_by_account(caller.account_id)
            members = await tx.memberships.list_members(caller.account_id)
            check_capacity(len(pending) + len(members), "MEMBER_LIMIT", "An account has at most {limit} members and invitations")
            await tx.invitations.add(invitation)
            mail = await self._prepare_mail(tx, caller, invitation, token, language)
            tx.emit(event_of(caller, "member_invited", f"{invitation.email} was invited as {role}", self.clock.now_ms()))
        return await self._send(invitation, token, mail)

    async def resend(self, caller: SessionCaller, invitation_id: str, *, language: str) -> InvitationResult:
        """A new link; the one before no longer works. The caller is now the one who invites. Errors as of `invite`."""
        token, now_ms = self.ids.random_alphanumeric(INVITATION_TOKEN_LENGTH), self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            before = await _get_for_update(tx, caller, invitation_id)
            await require_fresh_proof(tx, caller, now_ms)
            await check_email_is_free(tx, before.email)
            invitation = replace(
                before,
                invited_by=caller.membership_id,
                token_hash=self.digest.sha256(token),
                expires_ms=now_ms + INVITATION_TTL_MS,
                mailed=self.mailer is not None,
                voided_ms=None,
            )
            await tx.invitations.save(invitation)
            mail = await self._prepare_mail(tx, caller, invitation, token, language)
            text = f"The invitation of {invitation.email} was sent again"
            tx.emit(event_of(caller, "member_invited", text, self.clock.now_ms()))
        return await self._send(invitation, token, mail)

    async def revoke(self, caller: SessionCaller, invitation_id: str) -> None:
        """Its link no longer works. Raises PermissionDenied, NotFound."""
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            invitation = await _get_for_update(tx, caller, invitation_id)
            await tx.invitations.delete(invitation.invitation_id)
            text = f"The invitation of {invitation.email} was revoked"
            tx.emit(event_of(caller, "member_invitation_revoked", text, self.clock.now_ms()))

    async def _prepare_mail(
        self, tx: TeamTx, caller: SessionCaller, invitation: Invitation, token: str, language: str
    ) -> tuple[str, str]:
        """Subject and text; empty without a mail server. The mail counts against the account's limit."""
        if self.mailer is None:
            return "", ""
        subject, now_ms = f"invitations:{caller.account_id}", self.clock.now_ms()
        sent = await tx.login_failures.get_for_update(subject)
        INVITATION_MAILS.check(sent, now_ms, "invitations")
        await tx.login_failures.upsert(INVITATION_MAILS.count(sent, subject, now_ms))
        account, inviter = await tx.accounts.get(caller.account_id), await tx.users.get(caller.user_id)
        language = await choose_language(tx, inviter, language)
        return MAIL.write(
            self.translator,
            language,
            name=invitation.name,
            inviter=inviter.name if inviter is not None else self.translator.translate("An Admin", language),
            account=account.name if account is not None else "",
            role=invitation.role,
            days=INVITATION_TTL_MS // DAY_MS,
            link=f"{self.link_url}{token}",
        )

    async def _send(self, invitation: Invitation, token: str, mail: tuple[str, str]) -> InvitationResult:
        link = f"{self.link_url}{token}"
        if self.mailer is None:
            return InvitationResult(invitation, link)
        try:
            await self.mailer.send(invitation.email, *mail)
        except Unavailable:
            return InvitationResult(await self._mark_not_mailed(invitation), link)
        return InvitationResult(invitation, None)

    async def _mark_not_mailed(self, invitation: Invitation) -> Invitation:
        """Whoever passes the link on could use it, so it proves no address."""
        async with self.uow.write(caller=None) as tx:
            stored = await tx.invitations.get_for_update(invitation.account_id, invitation.invitation_id)
            if stored is not None and stored.token_hash == invitation.token_hash:
                await tx.invitations.save(replace(stored, mailed=False))
        return replace(invitation, mailed=False)


async def _get_for_update(tx: TeamTx, caller: SessionCaller, invitation_id: str) -> Invitation:
    """Raises PermissionDenied for an invitation of a role that the caller may not give."""
    if has_id_format(IdPrefix.INVITATION, invitation_id):
        found = await tx.invitations.get_for_update(caller.account_id, InvitationId(invitation_id))
        if found is not None:
            check_can_assign_role(caller, found.role)
            return found
    raise NotFound.for_resource("invitation", invitation_id)


@service
class InvitationAcceptanceService:
    uow: UnitOfWork[TeamTx]
    clock: Clock
    ids: IdAndSecretGenerator
    hasher: PasswordHasher
    digest: TokenHasher

    async def preview(self, token: str) -> tuple[Invitation, str]:
        """What the link is for, and the account's name. Raises ValidationFailed `LINK_INVALID`, Conflict `INVITATION_VOID`."""
        async with self.uow.read() as tx:
            invitation = await self._get_valid(tx, token)
            account = await tx.accounts.get(invitation.account_id)
        return invitation, account.name if account is not None else ""

    async def accept(self, token: str, *, password: str, name: str | None, client: ClientInfo) -> MembershipWithUser:
        """The new member. Raises as `preview`, and Conflict `EMAIL_TAKEN` or `MEMBER_LIMIT`."""
        previewed, _ = await self.preview(token)
        account_id, related = previewed.account_id, (previewed.email, name or previewed.name)
        password_hash = await self.hasher.hash(await check_new_password(self.hasher, password, related=related))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            await tx.memberships.lock_account(account_id)
            invitation = await self._get_valid(tx, token)
            chosen_name = invitation.name if name is None else check_name(name)
            user_id = UserId(self.ids.new_id(IdPrefix.USER))
            user = User(user_id, invitation.email, chosen_name, password_hash, invitation.mailed, now_ms, now_ms)
            return await self.add_invited(tx, invitation, user, client)

    async def add_invited(self, tx: TeamTx, invitation: Invitation, user: User, client: ClientInfo) -> MembershipWithUser:
        """Uses the invitation up, in a transaction that holds the account's lock. Raises Conflict `EMAIL_TAKEN`,
        `MEMBER_LIMIT`."""
        await check_email_is_free(tx, invitation.email)
        members = await tx.memberships.list_members(invitation.account_id)
        check_capacity(len(members), "MEMBER_LIMIT", "An account has at most {limit} members")
        member = await store_member(tx, self.ids, invitation.account_id, user, invitation.role)
        await tx.invitations.delete(invitation.invitation_id)
        text = f"{user.name} accepted the invitation as {invitation.role}"
        tx.emit(event_of(member.membership.to_session(client.address), "member_changed", text, user.created_ms))
        return member

    async def _get_valid(self, tx: TeamTx, token: str) -> Invitation:
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
