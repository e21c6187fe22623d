"""Authentication of access tokens and API keys. Session and role are read on each call, so a session that was ended and a
membership that changed apply at once, on every instance.

The time of the last use of a key or a service session is buffered and written in batches every few seconds instead of once per
call. A crash loses a few seconds of it, which is acceptable for a value that is only displayed.
"""

from __future__ import annotations

from dataclasses import field, replace

from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller, unknown_api_key
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, PermissionDenied, RateLimited, Unauthenticated
from domain.kernel.ids import KeyId, SessionId
from domain.kernel.ports import DeniedRequestLog
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import SECRET_REPLACED, KeyUse, check_key_format
from domain.keys.ports import KeysTx
from domain.sign_in.model import AccessTokenClaims
from domain.sign_in.policy import RolesRequiringSecondFactor
from domain.sign_in.ports import AccessTokenCodec, TokenHasher
from domain.team.service_sessions import SERVICE_TOKEN_PREFIX, check_usable

SERVICE_REQUESTS_PER_MINUTE = 1_200
_REFUSED_USES = {
    "KEY_EXPIRED": "a call with an expired key",
    SECRET_REPLACED: "a call with a replaced secret of a key",
    "ADDRESS_NOT_ALLOWED": "a call from a network that the key does not allow",
}


@service
class CallerAuthenticator:
    """The `AuthenticatorPort` of the HTTP and feed adapters."""

    uow: UnitOfWork[KeysTx]
    clock: Clock
    tokens: AccessTokenCodec
    token_hasher: TokenHasher
    denied_requests: DeniedRequestLog | None = None
    requirement: RolesRequiringSecondFactor = RolesRequiringSecondFactor.NOBODY
    _keys_last_used: dict[KeyId, KeyUse] = field(default_factory=dict, init=False)
    _services_last_used_ms: dict[SessionId, int] = field(default_factory=dict, init=False)
    _service_requests: dict[SessionId, tuple[int, int]] = field(default_factory=dict, init=False)
    """The minute, and the requests in it, of each service session."""

    async def authenticate_token(self, token: str, address: str) -> tuple[SessionCaller, int]:
        """The session and its expiry in Unix ms. Raises Unauthenticated, `TOKEN_EXPIRED` for a valid token that has expired."""
        if token.startswith(SERVICE_TOKEN_PREFIX):
            return await self._authenticate_service(token, address)
        claims = self.tokens.verify(token, self.clock.now_ms())
        async with self.uow.read(one_statement=True) as tx:
            found = await tx.user_sessions.find_with_membership(claims.session_id)
        if found is not None:
            session, membership = found
            is_same = (membership.user_id, membership.account_id) == (claims.user_id, claims.account_id)
            if is_same and membership.membership_id == claims.membership_id and session.revoked_ms is None:
                caller = replace(membership.to_session(address), session_id=claims.session_id)
                if session.provider_factor_ms is None:
                    caller = await self._with_requirement(caller)
                return caller, claims.expires_ms
        raise await self._refuse(claims, address)

    async def _authenticate_service(self, token: str, address: str) -> tuple[SessionCaller, int]:
        """A service session. Raises Unauthenticated; RateLimited."""
        now_ms = self.clock.now_ms()
        async with self.uow.read() as tx:
            service = await tx.service_sessions.find_by_hash(self.token_hasher.sha256(token))
            found = None if service is None else await tx.user_sessions.find_with_membership(service.session_id)
        check_usable(service, None if found is None else found[0], now_ms)
        if service is None or found is None:
            raise AssertionError("a session that is absent is not usable")
        self._count_service_request(service.session_id, now_ms)
        session, membership = found
        member = membership.to_session(address)
        if session.provider_factor_ms is None:
            member = await self._with_requirement(member)
        caller = service.act_for(member)
        if caller is None:
            raise Unauthenticated("The member who made this service session has a lower role now. Create a new one.")
        self._services_last_used_ms[service.session_id] = now_ms
        return caller, service.expires_ms

    def _count_service_request(self, session_id: SessionId, now_ms: int) -> None:
        minute = now_ms // MINUTE_MS
        self._service_requests = {key: value for key, value in self._service_requests.items() if value[0] == minute}
        count = self._service_requests.get(session_id, (minute, 0))[1] + 1
        self._service_requests[session_id] = (minute, count)
        if count > SERVICE_REQUESTS_PER_MINUTE:
            retry_after = max(1, ((minute + 1) * MINUTE_MS - now_ms) // 1000)
            raise RateLimited(
                f"A service session may send {SERVICE_REQUESTS_PER_MINUTE} requests a minute.",
                retry_after=retry_after,
                limit=SERVICE_REQUESTS_PER_MINUTE,
                window_s=60,
            )

    async def _with_requirement(self, caller: SessionCaller) -> SessionCaller:
        if not self.requirement.applies_to(caller.role):
            return caller
        async with self.uow.read() as tx:
            return replace(caller, lacks_second_factor=not await tx.second_factors.is_enabled(caller.user_id))

    async def _refuse(self, claims: AccessTokenClaims, address: str) -> Unauthenticated:
        """The error for a valid token whose session or membership is over; it is logged."""
        async with self.uow.read() as tx:
            membership = await tx.memberships.get(claims.membership_id)
        caller = SessionCaller(claims.account_id, claims.user_id, claims.membership_id, Role.VIEWER, address)
        act, message = "a call of an ended session", "This session has ended. Sign in again."
        if membership is None:
            act, message = "a call by a former member", "This user is no longer a member of the account. Sign in again."
        error = Unauthenticated(message)
        await self._log_denied(caller, act, error)
        return error

    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller:
        """Raises Unauthenticated for a key that is malformed, unknown, disabled or has ended; PermissionDenied
        `ADDRESS_NOT_ALLOWED`."""
        check_key_format(secret)
        secret_hash = self.token_hasher.sha256(secret)
        async with self.uow.read(one_statement=True) as tx:
            key = await tx.api_keys.find_by_hash(secret_hash)
        if key is None:  # a second statement, so that a present secret costs one look-up in one index
            async with self.uow.read(one_statement=True) as tx:
                key = await tx.api_keys.find_by_previous_hash(secret_hash)
        if key is None:
            raise unknown_api_key()
        caller = ApiKeyCaller(
            key.account_id,
            key.key_id,
            key.name,
            address,
            secret_hash=secret_hash,
            allowed_networks=key.allowed_networks,
            expires_ms=key.expires_ms,
        )
        now_ms = self.clock.now_ms()
        try:
            key.check_use(caller, now_ms)
        except (Unauthenticated, PermissionDenied) as error:
            await self._log_denied(caller, _REFUSED_USES.get(error.code, "a call with a disabled key"), error)
            raise
        self._keys_last_used[key.key_id] = KeyUse(now_ms, key.prefix_of(secret_hash))
        return caller

    async def _log_denied(self, caller: SessionCaller | ApiKeyCaller, act: str, error: DomainError) -> None:
        if self.denied_requests is not None:
            await self.denied_requests.log_denied(caller, act, error, {})

    async def flush_last_used(self) -> None:
        """Write the buffered last-use times. Called every few seconds and at shutdown."""
        keys, self._keys_last_used = self._keys_last_used, {}
        services, self._services_last_used_ms = self._services_last_used_ms, {}
        if not keys and not services:
            return
        try:
            async with self.uow.write(caller=None) as tx:
                await tx.api_keys.update_last_used(keys)
                await tx.service_sessions.update_last_used(services)
        except BaseException:
            self._keys_last_used = {**keys, **self._keys_last_used}
            self._services_last_used_ms = {**services, **self._services_last_used_ms}
            raise
