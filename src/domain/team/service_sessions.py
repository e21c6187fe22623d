"""Service sessions: credentials with which programs manage the account, so that no person's password is in a pipeline.

A service session belongs to the member who made it, as a fine-grained token of a code host does: it acts as that member, with a
role that is not above the member's and below Owner, for named operations, until it expires. It ends with the membership, with a
sign-out of all other sessions, with a change of the password, and when the member gets a role below its own. It ends for good.
While the installation requires a second factor that the member lacks, it may do nothing. What it made stays when it ends; what
it asked for and nobody approved ends with it. What it never may: sign-in, members, decisions on approvals, and service sessions
themselves. Its row in `user_sessions` gives it authority at commit: once it is revoked, no change commits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from domain.accounts.policy import check_name
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import check_capacity
from domain.kernel.clock import DAY_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import NotFound, PermissionDenied, Unauthenticated, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, SessionId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import ServiceSessionToken, UserSession
from domain.sign_in.ports import TokenHasher
from domain.sign_in.presence import require_fresh_proof
from domain.team.ports import TeamTx

SERVICE_TOKEN_PREFIX = "lbs_"  # noqa: S105 - a prefix, not a secret
RANDOM_LENGTH = 40
DISPLAY_LENGTH = len(SERVICE_TOKEN_PREFIX) + 4
MAX_TTL_MS = 366 * DAY_MS
RESOURCES = (
    *("api-keys", "approvals", "catalog", "commands", "device-types", "devices", "events", "grants", "groups", "network"),
    *("projects", "provisioning", "rules", "schedules", "telemetry", "webhooks"),
)
"""What operations are named after: the groups of operations of the API."""
READ_ONLY = frozenset({"approvals"})
"""Decisions on approvals are for people."""
STANDS_FOR_OTHERS = "fleet"
"""Its operations stand for those of other groups, and ask `check_operation` for each of them."""
_OPERATION = re.compile(r"([a-z-]{1,32}):(read|write)")


@service
class ServiceSessionTokenService:
    uow: UnitOfWork[TeamTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher

    async def list(self, caller: SessionCaller) -> Sequence[ServiceSessionToken]:
        """Those of the account. Raises PermissionDenied below Admin."""
        require_role(caller, Role.ADMIN)
        async with self.uow.read() as tx:
            return await tx.service_sessions.list_open(caller.account_id, self.clock.now_ms())

    async def get(self, caller: SessionCaller, session_id: SessionId) -> ServiceSessionToken:
        """One that can be used. Raises PermissionDenied below Admin, NotFound."""
        require_role(caller, Role.ADMIN)
        async with self.uow.read() as tx:
            await tx.user_sessions.get_for_update(session_id)
            return await _get_open(tx, caller, session_id, self.clock.now_ms())

    async def create(
        self, caller: SessionCaller, *, name: str, role: Role, operations: Sequence[str], expires_ms: int
    ) -> tuple[ServiceSessionToken, str]:
        """The session and its token, which is not stored.

        Raises PermissionDenied `ROLE_REQUIRED`, `STEP_UP_REQUIRED`; ValidationFailed; Conflict `SERVICE_SESSION_LIMIT`."""
        require_role(caller, Role.ADMIN)
        now_ms = self.clock.now_ms()
        _check_new(caller, role, operations, expires_ms, now_ms)
        token = SERVICE_TOKEN_PREFIX + self.ids.random_alphanumeric(RANDOM_LENGTH)
        made = ServiceSessionToken(
            session_id=SessionId(self.ids.new_id(IdPrefix.SESSION)),
            account_id=caller.account_id,
            membership_id=caller.membership_id,
            name=check_name(name),
            prefix=token[:DISPLAY_LENGTH],
            secret_hash=self.digest.sha256(token),
            role=role,
            operations=tuple(sorted(set(operations))),
            created_ms=now_ms,
            expires_ms=expires_ms,
        )
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            await require_fresh_proof(tx, caller, now_ms)
            existing = await tx.service_sessions.list_open(caller.account_id, now_ms)
            check_capacity(len(existing), "SERVICE_SESSION_LIMIT", "An account has at most {limit} service sessions")
            own = None if caller.session_id is None else await tx.user_sessions.get(caller.session_id)
            await tx.user_sessions.add(_user_session(caller, made, None if own is None else own.provider_factor_ms))
            await tx.service_sessions.add(made)
            text = f"Service session {made.name} ({made.prefix}…) was created as {made.role}: {', '.join(made.operations)}"
            tx.emit(event_of(caller, "service_session_created", text, now_ms))
        return made, token

    async def revoke(self, caller: SessionCaller, session_id: SessionId) -> None:
        """At once, for whoever made it. Raises PermissionDenied, NotFound."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            found = await _get_open(tx, caller, session_id, now_ms)
            await tx.user_sessions.revoke(session_id, now_ms)
            text = f"Service session {found.name} ({found.prefix}…) was revoked"
            tx.emit(event_of(caller, "session_revoked", text, now_ms))


async def _get_open(tx: TeamTx, caller: SessionCaller, session_id: SessionId, now_ms: int) -> ServiceSessionToken:
    for each in await tx.service_sessions.list_open(caller.account_id, now_ms):
        if each.session_id == session_id:
            return each
    raise NotFound.for_resource("service session", session_id)


def check_operation(caller: SessionCaller, tag: str, *, is_read: bool, affects: str | None = None) -> None:
    """`tag`: the group of the operation. `affects`: the group that it reads or changes in place of its own, which it then only
    reads: a command to a group of devices needs `groups:read` and `commands:write`.

    Raises PermissionDenied `OPERATION_NOT_ALLOWED`; never for a person's session."""
    if caller.operations is None:
        return
    for needed in needed_operations(tag, is_read=is_read, affects=affects):
        if needed not in caller.operations and needed.replace(":read", ":write") not in caller.operations:
            raise PermissionDenied(
                f"This service session is not allowed {needed}. It may: {', '.join(sorted(caller.operations))}.",
                code="OPERATION_NOT_ALLOWED",
            )


def needed_operations(tag: str, *, is_read: bool, affects: str | None = None) -> tuple[str, ...]:
    """What a service session must be allowed for an operation, such as `devices:read`; `:write` includes `:read`."""
    own = () if affects is None else needed_operations(tag, is_read=True)
    resource = (affects or tag).lower().replace(" ", "-")
    return own if resource == STANDS_FOR_OTHERS else (*own, f"{resource}:{'read' if is_read else 'write'}")


def is_open_to_service_sessions(needed: Sequence[str]) -> bool:
    """Whether a service session can be allowed all of this."""
    parts = [each.split(":") for each in needed]
    return all(resource in RESOURCES and (kind == "read" or resource not in READ_ONLY) for resource, kind in parts)


def check_usable(found: ServiceSessionToken | None, user_session: UserSession | None, now_ms: int) -> None:
    """Raises Unauthenticated, `TOKEN_EXPIRED` when only its time is over."""
    if found is None or user_session is None or user_session.revoked_ms is not None:
        raise Unauthenticated("This service session does not exist or was revoked. Create a new one.")
    if now_ms >= found.expires_ms:
        raise Unauthenticated("This service session has expired. Create a new one.", code="TOKEN_EXPIRED")


def _check_new(caller: SessionCaller, role: Role, operations: Sequence[str], expires_ms: int, now_ms: int) -> None:
    if role is Role.OWNER or not caller.role.is_at_least(role):
        raise ValidationFailed.for_field("role", "must be below Owner, and not above your own.")
    if not now_ms < expires_ms <= now_ms + MAX_TTL_MS:
        raise ValidationFailed.for_field("expiresAt", "must be in the future, and at most 366 days ahead.")
    if not operations:
        raise ValidationFailed.for_field("operations", "name at least one, such as devices:read.")
    for index, operation in enumerate(operations):
        match = _OPERATION.fullmatch(operation)
        if match is None or match[1] not in RESOURCES or (match[1] in READ_ONLY and match[2] == "write"):
            known = ", ".join(each for each in RESOURCES if each not in READ_ONLY)
            message = f"{operation!r} is none. Write RESOURCE:read or RESOURCE:write, with one of: {known}; or approvals:read."
            raise ValidationFailed.for_field(f"operations.{index}", message)


def _user_session(caller: SessionCaller, made: ServiceSessionToken, provider_factor_ms: int | None) -> UserSession:
    """`provider_factor_ms`: as of the session that makes it; whoever has no second factor here has shown it there."""
    return UserSession(
        session_id=made.session_id,
        user_id=caller.user_id,
        membership_id=caller.membership_id,
        created_ms=made.created_ms,
        last_used_ms=made.created_ms,
        expires_ms=made.expires_ms,
        address=caller.address,
        user_agent=f"Service session {made.name}",
        provider_factor_ms=provider_factor_ms,
    )
