"""Finds the member that an identity of the provider is, or makes it one.

1. The user to whom this identity (issuer and subject) belongs.
2. Else the user with the same address, if the provider and the service both know the address to be confirmed. The user gets the
   identity for good. A user gets one identity of a provider: a second one with the same address is somebody else.
3. Else the person whom an invitation to this address waits for.
4. Else, if new users are allowed, a new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.accounts.model import Account, MembershipWithUser, User
from domain.accounts.policy import NAME_MAX_LENGTH, check_email, check_name
from domain.kernel.caller import Role
from domain.kernel.checks import check_capacity
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import PermissionDenied, Unavailable, ValidationFailed
from domain.kernel.ids import AccountId, IdAndSecretGenerator, IdPrefix, UserId
from domain.kernel.unit_of_work import UnitOfWork
from domain.oidc.policy import OidcPolicy, email_not_verified_error, no_role_error, no_user_error, user_not_verified_error
from domain.oidc.ports import ExternalIdentity, OidcProviderIdentity, OidcTx
from domain.sign_in.model import ClientInfo
from domain.sign_in.ports import PasswordHasher
from domain.team.invitations import InvitationAcceptanceService, InvitationStatus, invitation_status
from domain.team.members import store_member, store_role

PASSWORD_OF_NOBODY_LENGTH = 40


@dataclass(frozen=True, slots=True)
class OidcMemberCandidate:
    """An identity with what is read before its transaction. `account_id`: where the provider decides the roles. `password_hash`:
    of a random password, for a user that the transaction may add."""

    identity: OidcProviderIdentity
    account_id: AccountId | None
    password_hash: str


@service
class OidcMemberProvisioner:
    uow: UnitOfWork[OidcTx]
    ids: IdAndSecretGenerator
    hasher: PasswordHasher
    policy: OidcPolicy
    invited: InvitationAcceptanceService

    async def prepare(self, identity: OidcProviderIdentity) -> OidcMemberCandidate:
        """Before the transaction: hashing takes long."""
        async with self.uow.read() as tx:
            account_id = await self._find_account_id(tx)
            known = await tx.external_identities.get(identity.issuer, identity.subject)
        password_hash = ""
        if known is None:
            password_hash = await self.hasher.hash(self.ids.random_alphanumeric(PASSWORD_OF_NOBODY_LENGTH))
        return OidcMemberCandidate(identity, account_id, password_hash)

    async def resolve(
        self, tx: OidcTx, candidate: OidcMemberCandidate, client: ClientInfo, now_ms: int
    ) -> tuple[MembershipWithUser, Account]:
        """The member, with the role that the provider gives. Raises PermissionDenied."""
        identity = candidate.identity
        if candidate.account_id is not None:
            await tx.memberships.lock_account(candidate.account_id)
        known = await tx.external_identities.get(identity.issuer, identity.subject)
        user = None if known is None else await tx.users.get(known.user_id)
        if user is None:
            user = await self._find_by_email(tx, identity)
        if user is None:
            member = await self._add(tx, candidate, client, now_ms)
        else:
            member = await self._get_member(tx, user, candidate, is_known=known is not None)
            member = await self._with_role(tx, member, candidate, client, now_ms)
        created_ms = now_ms if known is None else known.created_ms
        await tx.external_identities.upsert(
            ExternalIdentity(identity.issuer, identity.subject, member.user.user_id, created_ms, now_ms)
        )
        if known is None:
            text = f"{member.user.name} signed in with the provider for the first time"
            caller = member.membership.to_session(client.address)
            tx.emit(event_of(caller, "identity_linked", text, now_ms))
        account = await tx.accounts.get(member.membership.account_id)
        if account is None:
            raise no_user_error()
        return member, account

    async def _find_account_id(self, tx: OidcTx) -> AccountId | None:
        found = [AccountId(self.policy.account_id)] if self.policy.account_id else list(await tx.accounts.list_ids())
        return found[0] if len(found) == 1 and await tx.accounts.get(found[0]) is not None else None

    async def _find_by_email(self, tx: OidcTx, identity: OidcProviderIdentity) -> User | None:
        """The user with this address. Raises PermissionDenied when it is not known to be the same person."""
        try:
            email = check_email(identity.email)
        except ValidationFailed:
            raise email_not_verified_error() from None
        user = await tx.users.find_by_email(email)
        if not self.policy.is_email_verified(identity):
            raise email_not_verified_error()
        if user is None:
            return None
        if not user.email_verified:
            raise user_not_verified_error()
        if await tx.external_identities.find_by_user(user.user_id, identity.issuer) is not None:
            raise PermissionDenied(
                "The user with your email address belongs to another identity of the provider. Ask an Owner or Admin.",
                code="PROVIDER_USER_UNKNOWN",
            )
        return user

    async def _get_member(self, tx: OidcTx, user: User, candidate: OidcMemberCandidate, *, is_known: bool) -> MembershipWithUser:
        """In the account that the provider is for: it says nothing about the users of another one. `is_known`: the identity was
        linked before. It goes on to work where a second account was made since and none is named as the provider's. Locks the
        membership, then the user. Raises PermissionDenied."""
        memberships = await tx.memberships.list_by_user(user.user_id)
        if self.policy.account_id or not is_known:
            memberships = [each for each in memberships if each.account_id == candidate.account_id]
        membership = None if not memberships else await tx.memberships.get_for_update(memberships[0].membership_id)
        current = await tx.users.get_for_update(user.user_id)
        if membership is None or current is None:
            raise no_user_error()
        return MembershipWithUser(membership, current)

    async def _with_role(
        self, tx: OidcTx, member: MembershipWithUser, candidate: OidcMemberCandidate, client: ClientInfo, now_ms: int
    ) -> MembershipWithUser:
        """The last Owner keeps the role whatever the provider says."""
        membership = member.membership
        if not self.policy.governs_roles or membership.account_id != candidate.account_id:
            return member
        role = self.policy.role_for(candidate.identity)
        is_last_owner = membership.role is Role.OWNER and await tx.memberships.count_owners(membership.account_id) <= 1
        if role is membership.role or is_last_owner:
            return member
        if role is None:
            raise no_role_error()
        changed = await store_role(tx, membership, role, membership.to_session(client.address), now_ms)
        text = f"{member.user.name} is now {role}, as the provider says"
        tx.emit(event_of(changed.to_session(client.address), "member_changed", text, now_ms))
        return MembershipWithUser(changed, member.user)

    async def _add(self, tx: OidcTx, candidate: OidcMemberCandidate, client: ClientInfo, now_ms: int) -> MembershipWithUser:
        identity, account_id = candidate.identity, candidate.account_id
        if account_id is None:
            raise no_user_error()
        # A password that nobody knows, never set: `password_changed_ms` 0 says so.
        user = User(
            user_id=UserId(self.ids.new_id(IdPrefix.USER)),
            email=check_email(identity.email),
            name=shown_name(identity),
            password_hash=candidate.password_hash,
            email_verified=True,
            created_ms=now_ms,
            password_changed_ms=0,
        )
        if not user.password_hash:  # the identity was known a moment ago, and its user is gone since
            raise Unavailable("The user was removed during this sign-in. Try again.")
        invitation = await tx.invitations.find_by_email(account_id, user.email)
        if invitation is not None:
            inviter = await tx.memberships.get_for_share(invitation.invited_by)
            if invitation_status(invitation, inviter, now_ms) is InvitationStatus.PENDING:
                member = await self.invited.add_invited(tx, invitation, user, client)
                return await self._with_role(tx, member, candidate, client, now_ms)
        if not self.policy.auto_create:
            raise no_user_error()
        role = self.policy.role_for(identity)
        if role is None:
            raise no_role_error()
        members = await tx.memberships.list_members(account_id)
        check_capacity(len(members), "MEMBER_LIMIT", "An account has at most {limit} members")
        member = await store_member(tx, self.ids, account_id, user, role)
        text = f"{user.name} was added as {role}, as the provider says"
        tx.emit(event_of(member.membership.to_session(client.address), "member_changed", text, now_ms))
        return member


def shown_name(identity: OidcProviderIdentity) -> str:
    """The provider's name for the user if it can be one here, else the part of the address before the `@`."""
    try:
        return check_name(identity.name[:NAME_MAX_LENGTH])
    except ValidationFailed:
        return check_name(identity.email.partition("@")[0][:NAME_MAX_LENGTH])
