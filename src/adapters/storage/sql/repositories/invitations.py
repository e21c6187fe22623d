"""Invitations to an account."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BindParameter, bindparam, delete, insert, update

from adapters.storage import errors
from adapters.storage.sql.db_session import DbSession, UniqueViolationError
from adapters.storage.sql.row_mapper import RowMapper, delete_batch, enum_converter, for_update
from adapters.storage.sql.tables import invitations
from domain.accounts.model import Invitation
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, InvitationId

INVITATION = RowMapper(invitations, Invitation, {"role": enum_converter(Role)})

_ID: BindParameter[str] = bindparam("at_id")
_ACCOUNT: BindParameter[str] = bindparam("at_account")

ADD = insert(invitations)
GET_FOR_UPDATE = for_update(INVITATION.select().where(invitations.c.invitation_id == _ID, invitations.c.account_id == _ACCOUNT))
FIND_BY_TOKEN = INVITATION.select().where(invitations.c.token_hash == bindparam("at_hash"))
FIND_BY_EMAIL = INVITATION.select().where(invitations.c.account_id == _ACCOUNT, invitations.c.email == bindparam("at_email"))
LIST_BY_ACCOUNT = INVITATION.select().where(invitations.c.account_id == _ACCOUNT).order_by(invitations.c.seq)
SAVE = update(invitations).where(invitations.c.invitation_id == _ID)
DELETE = delete(invitations).where(invitations.c.invitation_id == _ID).returning(invitations.c.invitation_id)
DELETE_EXPIRED = delete_batch(invitations, invitations.c.expires_ms < bindparam("at_before"), invitations.c.expires_ms)


class SqlInvitationRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, invitation: Invitation) -> None:
        try:
            await self._session.write(ADD, **INVITATION.values(invitation))
        except UniqueViolationError:
            raise errors.invitation_exists_error() from None

    async def get_for_update(self, account_id: AccountId, invitation_id: InvitationId) -> Invitation | None:
        statement = GET_FOR_UPDATE[self._session.writable]
        return INVITATION.first_or_none(await self._session.read(statement, at_account=account_id, at_id=invitation_id))

    async def find_by_token(self, token_hash: bytes) -> Invitation | None:
        return INVITATION.first_or_none(await self._session.read(FIND_BY_TOKEN, at_hash=token_hash))

    async def find_by_email(self, account_id: AccountId, email: str) -> Invitation | None:
        return INVITATION.first_or_none(await self._session.read(FIND_BY_EMAIL, at_account=account_id, at_email=email))

    async def list_by_account(self, account_id: AccountId) -> Sequence[Invitation]:
        return [INVITATION.from_row(row) for row in await self._session.read(LIST_BY_ACCOUNT, at_account=account_id)]

    async def save(self, invitation: Invitation) -> None:
        values = INVITATION.values(invitation, "invitation_id", "account_id", "email")
        await self._session.write(SAVE, at_id=invitation.invitation_id, **values)

    async def delete(self, invitation_id: InvitationId) -> bool:
        return bool(await self._session.write(DELETE, at_id=invitation_id))

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        return len(await self._session.write(DELETE_EXPIRED, at_before=expires_ms, at_limit=limit))
