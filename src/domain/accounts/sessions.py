"""Login, token refresh and logout.

An access token is valid until it expires. A refresh token is used once and replaced by the next one of its family. A second use
means that two parties hold it, so the whole family is revoked. An unknown email gets the same answer as a wrong password and
takes the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.accounts.model import Account, LoginFailures, Member, Membership, RefreshToken, User
from domain.accounts.policy import (
    ACCESS_TOKEN_TTL_MS,
    EMAIL_MAX_LENGTH,
    PASSWORD_MAX_LENGTH,
    REFRESH_TOKEN_LENGTH,
    REFRESH_TOKEN_TTL_MS,
    LoginThrottleSubjects,
    check_login_backoff,
    increment_failures,
    normalize_email,
)
from domain.accounts.ports import (
    AccessTokenCodec,
    HasAccounts,
    HasLoginFailures,
    HasMemberships,
    HasProjects,
    HasRefreshTokens,
    HasUsers,
    PasswordHasher,
    SecretHasher,
)
from domain.kernel.caller import Session
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.domain_events import DomainEvent
from domain.kernel.errors import RateLimited, Unauthenticated
from domain.kernel.ids import IdGenerator
from domain.kernel.unit_of_work import Transaction, UnitOfWork

MAX_THROTTLED_PAIRS = 1_000
"""Pairs of email and address counted between two flushes; further pairs are not counted."""


class SessionTx(
    Transaction, HasAccounts, HasLoginFailures, HasMemberships, HasProjects, HasRefreshTokens, HasUsers, Protocol
): ...


@dataclass(frozen=True, slots=True)
class TokenPair:
    access_token: str
    refresh_token: str
    expires_in_s: int = ACCESS_TOKEN_TTL_MS // SECOND_MS


@dataclass(frozen=True, slots=True)
class LoginResult:
    tokens: TokenPair
    member: Member
    account: Account


@dataclass(frozen=True, slots=True)
class UserProfile:
    """The signed-in user with the account."""

    member: Member
    account: Account
    device_count: int


@dataclass(frozen=True, slots=True)
class _LoginCandidate:
    user: User
    membership: Membership
    account: Account


class SessionService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[SessionTx],
        clock: Clock,
        ids: IdGenerator,
        hasher: PasswordHasher,
        tokens: AccessTokenCodec,
        digest: SecretHasher,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._hasher = hasher
        self._tokens = tokens
        self._digest = digest
        self._throttled_counts: dict[tuple[str, str], int] = {}

    async def login(self, email: str, password: str, *, address: str) -> LoginResult:
        """Raises Unauthenticated `INVALID_CREDENTIALS` or RateLimited `LOGIN_THROTTLED`."""
        email = normalize_email(email)[:EMAIL_MAX_LENGTH]
        subjects = LoginThrottleSubjects.for_attempt(email, address)
        try:
            async with self._uow.read() as tx:
                await _check_login_backoff(tx, subjects, self._clock.now_ms())
                candidate = await _find_candidate(tx, email)
        except RateLimited:
            self._count_throttled(email, address)
            raise
        is_correct, new_hash = await self._verify_password(candidate, password)
        now_ms = self._clock.now_ms()
        # Checked again in the transaction that counts, so that concurrent guesses gain nothing over sequential ones.
        throttled: RateLimited | None = None
        async with self._uow.write(caller=None) as tx:
            try:
                await _check_login_backoff(tx, subjects, now_ms)
            except RateLimited as error:
                throttled = error
            if throttled is None and is_correct and candidate is not None:
                return await self._complete_login(tx, candidate, new_hash, subjects, now_ms, address)
            if throttled is None:
                await _count_failure(tx, candidate, subjects, now_ms, address)
        if throttled is not None:
            self._count_throttled(email, address)
            raise throttled
        raise Unauthenticated("The email address or the password is wrong.", code="INVALID_CREDENTIALS")

    def _count_throttled(self, email: str, address: str) -> None:
        """Counted in memory and for every email alike: a throttled login reveals nothing and costs no write."""
        pair = (email, address)
        if pair in self._throttled_counts or len(self._throttled_counts) < MAX_THROTTLED_PAIRS:
            self._throttled_counts[pair] = self._throttled_counts.get(pair, 0) + 1

    async def flush_throttled_logins(self) -> None:
        """Log the throttled logins since the last flush, for the emails that belong to a user."""
        throttled_counts, self._throttled_counts = self._throttled_counts, {}
        if not throttled_counts:
            return
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller=None) as tx:
            for (email, address), count in throttled_counts.items():
                candidate = await _find_candidate(tx, email)
                if candidate is not None:
                    text = f"{count} logins as {email} were throttled"
                    caller = candidate.membership.to_session(address)
                    await tx.emit(DomainEvent.from_caller(caller, "login_throttled", text, now_ms))

    async def _verify_password(self, candidate: _LoginCandidate | None, password: str) -> tuple[bool, str | None]:
        """Whether the password is correct, and a new hash if the stored one uses outdated parameters."""
        password = password[: PASSWORD_MAX_LENGTH + 1]  # a longer one is never correct and must not take longer
        if candidate is None:
            await self._hasher.verify_dummy(password)
            return False, None
        if not await self._hasher.verify(candidate.user.password_hash, password):
            return False, None
        if not self._hasher.needs_rehash(candidate.user.password_hash):
            return True, None
        return True, await self._hasher.hash(password)

    async def _complete_login(
        self,
        tx: SessionTx,
        candidate: _LoginCandidate,
        new_hash: str | None,
        subjects: LoginThrottleSubjects,
        now_ms: int,
        address: str,
    ) -> LoginResult:
        user = await tx.users.get_for_update(candidate.user.user_id)
        membership = await tx.memberships.get(candidate.membership.membership_id)
        if user is None or membership is None or user.password_hash != candidate.user.password_hash:
            raise Unauthenticated("The email address or the password is wrong.", code="INVALID_CREDENTIALS")
        if new_hash is not None:
            await tx.users.save(user.with_password(new_hash, user.password_changed_ms))
        await tx.login_failures.delete(subjects.pair)
        await tx.login_failures.upsert(LoginFailures(subjects.known_login, 0, now_ms, now_ms))
        tokens = await self._issue_tokens(tx, membership, self._ids.random_alphanumeric(20), now_ms)
        caller = membership.to_session(address)
        await tx.emit(DomainEvent.from_caller(caller, "login", f"{user.name} signed in", now_ms))
        return LoginResult(tokens, Member(membership, user), candidate.account)

    async def _issue_tokens(self, tx: SessionTx, membership: Membership, family: str, now_ms: int) -> TokenPair:
        refresh_token = self._ids.random_alphanumeric(REFRESH_TOKEN_LENGTH)
        await tx.refresh_tokens.add(
            RefreshToken(
                token_hash=self._digest.sha256(refresh_token),
                family=family,
                user_id=membership.user_id,
                membership_id=membership.membership_id,
                issued_ms=now_ms,
                expires_ms=now_ms + REFRESH_TOKEN_TTL_MS,
            )
        )
        return TokenPair(self._tokens.issue(membership, now_ms), refresh_token)

    async def refresh(self, refresh_token: str, *, address: str) -> TokenPair:
        """Raises Unauthenticated; `TOKEN_EXPIRED` when only its time is over."""
        now_ms = self._clock.now_ms()
        token_hash = self._digest.sha256(refresh_token)
        error = Unauthenticated("This refresh token is no longer valid. Sign in again.")
        async with self._uow.write(caller=None) as tx:
            token = await _get_token_for_update(tx, token_hash)
            if token is None or token.revoked_ms is not None:
                raise error
            membership = await tx.memberships.get(token.membership_id)
            if membership is None:
                raise error
            if token.spent_ms is None and now_ms >= token.expires_ms:
                raise Unauthenticated("This refresh token has expired. Sign in again.", code="TOKEN_EXPIRED")
            if await tx.refresh_tokens.mark_spent(token_hash, now_ms):
                return await self._issue_tokens(tx, membership, token.family, now_ms)
            await tx.refresh_tokens.revoke_family(token.family, now_ms)
            description = "A used refresh token was presented again; its session was ended"
            caller = membership.to_session(address)
            await tx.emit(DomainEvent.from_caller(caller, "session_revoked", description, now_ms))
        raise error

    async def logout(self, refresh_token: str, *, address: str) -> None:
        """Revoke the token's family. An unknown token is not an error."""
        now_ms = self._clock.now_ms()
        async with self._uow.write(caller=None) as tx:
            token = await _get_token_for_update(tx, self._digest.sha256(refresh_token))
            if token is None or token.revoked_ms is not None:
                return
            await tx.refresh_tokens.revoke_family(token.family, now_ms)
            membership = await tx.memberships.get(token.membership_id)
            if membership is not None:
                await tx.emit(DomainEvent.from_caller(membership.to_session(address), "logout", "Signed out", now_ms))

    async def get_profile(self, caller: Session) -> UserProfile:
        async with self._uow.read() as tx:
            user = await tx.users.get(caller.user_id)
            membership = await tx.memberships.get(caller.membership_id)
            account = await tx.accounts.get(caller.account_id)
            projects = await tx.projects.list_with_device_counts(caller.account_id)
        if user is None or membership is None or account is None:
            raise Unauthenticated("This user is no longer a member of the account.")
        return UserProfile(Member(membership, user), account, sum(count for _, count in projects))


async def _get_token_for_update(tx: SessionTx, token_hash: bytes) -> RefreshToken | None:
    """Read under a lock on the user: a token issued concurrently would survive the revocation of its family."""
    token = await tx.refresh_tokens.get(token_hash)
    if token is None or await tx.users.get_for_update(token.user_id) is None:
        return None
    return await tx.refresh_tokens.get(token_hash)


async def _find_candidate(tx: SessionTx, email: str) -> _LoginCandidate | None:
    user = await tx.users.find_by_email(email)
    memberships = await tx.memberships.list_by_user(user.user_id) if user is not None else ()
    if user is None or not memberships:
        return None
    account = await tx.accounts.get(memberships[0].account_id)
    return _LoginCandidate(user, memberships[0], account) if account is not None else None


async def _check_login_backoff(tx: SessionTx, subjects: LoginThrottleSubjects, now_ms: int) -> None:
    check_login_backoff(await tx.login_failures.get_for_update(subjects.pair), now_ms)
    check_login_backoff(await tx.login_failures.get_for_update(subjects.address), now_ms)
    if await tx.login_failures.get_for_update(subjects.known_login) is None:
        check_login_backoff(await tx.login_failures.get_for_update(subjects.email), now_ms)


async def _count_failure(
    tx: SessionTx, candidate: _LoginCandidate | None, subjects: LoginThrottleSubjects, now_ms: int, address: str
) -> None:
    for subject in subjects.counted_subjects():
        before = await tx.login_failures.get_for_update(subject)
        await tx.login_failures.upsert(increment_failures(before, subject, now_ms))
    if candidate is not None:
        description = f"Failed login as {candidate.user.email}"
        await tx.emit(DomainEvent.from_caller(candidate.membership.to_session(address), "login_failed", description, now_ms))
