"""Ports of accounts, users, memberships and projects, of mail and translation, and of what ends with a deleted requester."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from domain.accounts.model import Account, Membership, MembershipWithUser, Project, User
from domain.kernel.caller import SessionCaller
from domain.kernel.ids import AccountId, KeyId, MembershipId, ProjectId, UserId
from domain.partitions.ports import PartitionsTx


class AccountRepository(Protocol):
    async def add(self, account: Account) -> None: ...

    async def get(self, account_id: AccountId) -> Account | None: ...

    async def has_any(self) -> bool: ...

    async def lock_creation(self) -> None:
        """Let only one transaction at a time decide by `has_any` whether to add the first account."""

    async def list_ids(self) -> Sequence[AccountId]: ...


class UserRepository(Protocol):
    async def add(self, user: User) -> None:
        """Raises Conflict when the email is taken."""

    async def get(self, user_id: UserId) -> User | None: ...

    async def get_for_update(self, user_id: UserId) -> User | None:
        """Like `get`, and locks the row until the write transaction ends. Required before `save`."""

    async def find_by_email(self, email: str) -> User | None: ...

    async def find_language(self, user_id: UserId) -> str | None:
        """That of the user's notifications (ISO 639), in the oldest membership with one; None if none is stored."""

    async def save(self, user: User) -> None: ...

    async def delete(self, user_id: UserId) -> None: ...


class MembershipRepository(Protocol):
    async def add(self, membership: Membership) -> None: ...

    async def get(self, membership_id: MembershipId) -> Membership | None: ...

    async def get_for_update(self, membership_id: MembershipId) -> Membership | None:
        """Like `get`, and locks the row until the write transaction ends: what its member has begun is over. Required before
        `save` and `delete`, and before the user is locked."""

    async def get_for_share(self, membership_id: MembershipId) -> Membership | None:
        """Like `get`, and keeps the membership as it is until the write transaction ends."""

    async def list_by_user(self, user_id: UserId) -> Sequence[Membership]:
        """Oldest first."""

    async def list_members(self, account_id: AccountId) -> Sequence[MembershipWithUser]:
        """Oldest first."""

    async def save(self, membership: Membership) -> None: ...

    async def delete(self, membership_id: MembershipId) -> None:
        """Also deletes the membership's grants and refresh tokens."""

    async def count_owners(self, account_id: AccountId) -> int: ...

    async def lock_account(self, account_id: AccountId) -> None:
        """As `locks_account` of `UnitOfWork.write`, where no caller opens the transaction. Call it first."""


class ProjectRepository(Protocol):
    async def add(self, project: Project) -> None: ...

    async def get(self, account_id: AccountId, project_id: ProjectId) -> Project | None: ...

    async def get_default(self, account_id: AccountId) -> Project: ...

    async def list_with_device_counts(self, account_id: AccountId) -> Sequence[tuple[Project, int]]:
        """Each with its device count, oldest first."""

    async def save(self, project: Project) -> None: ...

    async def delete(self, project_id: ProjectId) -> None: ...


class Mailer(Protocol):
    async def send(self, to: str, subject: str, text: str) -> None:
        """Raises Unavailable when the mail server does not accept the mail."""


class Translator(Protocol):
    def translate(self, text: str, language: str) -> str:
        """A sentence of the service in the language (ISO 639); unchanged if there is no text for it."""


class BackgroundMailer(Protocol):
    """Port: mail that is sent in the background, for answers that must not tell by their time whether one was sent."""

    def enqueue(self, to: str, subject: str, text: str) -> None:
        """Never raises; a mail that is not accepted is logged and lost."""


TxT_contra = TypeVar("TxT_contra", contravariant=True)


class PendingApprovalCloserPort(Protocol[TxT_contra]):
    """Ends the requests that wait for approval when their requester is deleted. The approvals part, a higher layer, implements
    it."""

    async def close_requests(
        self,
        tx: TxT_contra,
        caller: SessionCaller,
        now_ms: int,
        *,
        key_id: KeyId | None = None,
        membership_id: MembershipId | None = None,
    ) -> None:
        """Exactly one of `key_id` and `membership_id` is given; the changes are part of `tx`."""


class AccountsTx(PartitionsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def accounts(self) -> AccountRepository: ...

    @property
    def users(self) -> UserRepository: ...

    @property
    def memberships(self) -> MembershipRepository: ...

    @property
    def projects(self) -> ProjectRepository: ...
