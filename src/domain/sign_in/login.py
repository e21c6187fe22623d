"""Sign-in with email and password. An unknown email gets the same answer as a wrong password and takes the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from domain.accounts.model import Account, Membership, MembershipWithUser, User
from domain.accounts.policy import EMAIL_MAX_LENGTH, PASSWORD_MAX_LENGTH, normalize_email
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import RateLimited, Unauthenticated
from domain.kernel.ids import IdAndSecretGenerator, UserId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import ClientInfo, LoginChallenge, LoginFailures
from domain.sign_in.policy import (
    CHALLENGE_TTL_MS,
    LOGIN_FAILURE_WINDOW_MS,
    WRONG_FACTOR,
    HmacKnownBrowserTokenCodec,
    LoginThrottleSubjects,
    challenge_expired_error,
    check_login_backoff,
    increment_failures,
)
from domain.sign_in.ports import PasswordHasher, SignInTx, TokenHasher
from domain.sign_in.second_factor import PresentedSecondFactor, SecondFactorChecker, purpose_of_second_factor
from domain.sign_in.sessions import OpenedSession, SessionOpener

FactorMethod = Literal["passkey", "totp", "recoveryCode"]
CHALLENGE_TOKEN_LENGTH = 40
MAX_THROTTLED_PAIRS = 1_000
"""Pairs of email and address counted between two flushes; further pairs are not counted."""


@dataclass(frozen=True, slots=True)
class SecondFactorNeeded:
    """The password was right. `token` and a second factor complete the sign-in, within `expires_in_s`."""

    token: str = field(repr=False)
    methods: Sequence[FactorMethod]
    expires_in_s: int = CHALLENGE_TTL_MS // SECOND_MS


@dataclass(frozen=True, slots=True)
class _LoginCandidate:
    user: User
    membership: Membership
    account: Account


@service
class LoginService:
    uow: UnitOfWork[SignInTx]
    clock: Clock
    hasher: PasswordHasher
    opener: SessionOpener
    devices: HmacKnownBrowserTokenCodec
    factors: SecondFactorChecker
    ids: IdAndSecretGenerator
    digest: TokenHasher
    _throttled_counts: dict[tuple[str, str], int] = field(default_factory=dict, init=False)

    async def login(self, email: str, password: str, *, client: ClientInfo) -> OpenedSession | SecondFactorNeeded:
        """Raises Unauthenticated `INVALID_CREDENTIALS` or RateLimited `LOGIN_THROTTLED`."""
        email = normalize_email(email)[:EMAIL_MAX_LENGTH]
        address = client.address
        try:
            async with self.uow.read() as tx:
                candidate = await _find_candidate(tx, email)
                known = None if candidate is None else self.devices.find_device(client.device_tokens, candidate.user.user_id)
                subjects = LoginThrottleSubjects.for_attempt(email, address, known)
                await _check_login_backoff(tx, subjects, self.clock.now_ms())
            is_correct, new_hash = await self._verify_password(candidate, password)
            now_ms = self.clock.now_ms()
            async with self.uow.write(caller=None) as tx:
                # Checked again in the transaction that counts, so that concurrent guesses gain nothing over sequential ones.
                await _check_login_backoff(tx, subjects, now_ms)
                if is_correct and candidate is not None:
                    return await self._complete_login(tx, candidate, new_hash, subjects, now_ms, client)
                await _count_failure(tx, candidate, subjects, now_ms, address)
        except RateLimited:
            self._count_throttled(email, address)
            raise
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
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            for (email, address), count in throttled_counts.items():
                candidate = await _find_candidate(tx, email)
                if candidate is not None:
                    text = f"{count} logins as {email} were throttled"
                    caller = candidate.membership.to_session(address)
                    tx.emit(event_of(caller, "login_throttled", text, now_ms))

    async def _verify_password(self, candidate: _LoginCandidate | None, password: str) -> tuple[bool, str | None]:
        """Whether the password is correct, and a new hash if the stored one uses outdated parameters."""
        password = password[: PASSWORD_MAX_LENGTH + 1]  # a longer one is never correct and must not take longer
        if candidate is None:
            await self.hasher.verify_dummy(password)
            return False, None
        if not await self.hasher.verify(candidate.user.password_hash, password):
            return False, None
        if not self.hasher.needs_rehash(candidate.user.password_hash):
            return True, None
        return True, await self.hasher.hash(password)

    async def _complete_login(
        self,
        tx: SignInTx,
        candidate: _LoginCandidate,
        new_hash: str | None,
        subjects: LoginThrottleSubjects,
        now_ms: int,
        client: ClientInfo,
    ) -> OpenedSession | SecondFactorNeeded:
        user = await tx.users.get_for_update(candidate.user.user_id)
        membership = await tx.memberships.get(candidate.membership.membership_id)
        if user is None or membership is None or user.password_hash != candidate.user.password_hash:
            raise Unauthenticated("The email address or the password is wrong.", code="INVALID_CREDENTIALS")
        if new_hash is not None:
            await tx.users.save(user.with_password(new_hash, user.password_changed_ms))
        await tx.login_failures.delete(subjects.device or subjects.pair)
        await tx.login_failures.upsert(LoginFailures(subjects.known_login, 0, now_ms, now_ms))
        return await self.admit(tx, MembershipWithUser(membership, user), candidate.account, client, now_ms)

    async def admit(
        self,
        tx: SignInTx,
        member: MembershipWithUser,
        account: Account,
        client: ClientInfo,
        now_ms: int,
        *,
        how: str = "",
        factor_at_provider: bool = False,
        ends_ms: int | None = None,
    ) -> OpenedSession | SecondFactorNeeded:
        """Open a session for a member whose password or identity provider was right, or ask for the second factor first.

        `factor_at_provider`: the provider's sign-in stands for it. `how` and `ends_ms`: as of `SessionOpener.open`."""
        if not factor_at_provider and await tx.second_factors.is_enabled(member.user.user_id):
            return await self._add_challenge(tx, member.membership, now_ms, ends_ms)
        factor_ms = now_ms if factor_at_provider else None
        return await self.opener.open(tx, member, account, client, now_ms, how=how, ends_ms=ends_ms, provider_factor_ms=factor_ms)

    async def _add_challenge(self, tx: SignInTx, membership: Membership, now_ms: int, ends_ms: int | None) -> SecondFactorNeeded:
        token = self.ids.random_alphanumeric(CHALLENGE_TOKEN_LENGTH)
        await tx.second_factors.add_challenge(
            LoginChallenge(
                self.digest.sha256(token), membership.user_id, membership.membership_id, now_ms + CHALLENGE_TTL_MS, ends_ms
            )
        )
        return SecondFactorNeeded(token, await _factor_methods(tx, membership.user_id))

    async def complete(self, token: str, factor: PresentedSecondFactor, *, client: ClientInfo) -> OpenedSession:
        """The second step of a sign-in. Raises ValidationFailed `CHALLENGE_EXPIRED` or `PASSKEY_REFUSED`, Unauthenticated,
        RateLimited after too many wrong factors."""
        token_hash = self.digest.sha256(token)
        prepared = await self.factors.prepare(factor, purpose_of_second_factor(token_hash))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            challenge = await tx.second_factors.get_challenge(token_hash)
            if challenge is None or now_ms >= challenge.expires_ms:
                raise challenge_expired_error()
            user = await tx.users.get_for_update(challenge.user_id)
            membership = await tx.memberships.get(challenge.membership_id)
            account = None if membership is None else await tx.accounts.get(membership.account_id)
            if user is None or membership is None or account is None:
                raise Unauthenticated("This user is no longer a member of the account.")
            if user.password_changed_ms > challenge.expires_ms - CHALLENGE_TTL_MS:
                raise challenge_expired_error()  # the password that began this sign-in no longer lets anybody in
            is_correct = await self.factors.check(tx, user.user_id, prepared, now_ms)
            if is_correct and await tx.second_factors.delete_challenge(token_hash):
                member = MembershipWithUser(membership, user)
                return await self.opener.open(tx, member, account, client, now_ms, ends_ms=challenge.session_ends_ms)
            caller, text = membership.to_session(client.address), f"Wrong second factor for {user.email}"
            tx.emit(event_of(caller, "second_factor_failed", text, now_ms))
        raise Unauthenticated(WRONG_FACTOR, code="SECOND_FACTOR_INVALID")


async def _factor_methods(tx: SignInTx, user_id: UserId) -> Sequence[FactorMethod]:
    passkeys: Sequence[FactorMethod] = ("passkey",) if await tx.passkeys.list_by_user(user_id) else ()
    totp: Sequence[FactorMethod] = ("totp",) if await tx.second_factors.has_totp(user_id) else ()
    return (*passkeys, *totp, "recoveryCode")


async def _find_candidate(tx: SignInTx, email: str) -> _LoginCandidate | None:
    user = await tx.users.find_by_email(email)
    memberships = await tx.memberships.list_by_user(user.user_id) if user is not None else ()
    if user is None or not memberships:
        return None
    account = await tx.accounts.get(memberships[0].account_id)
    return _LoginCandidate(user, memberships[0], account) if account is not None else None


async def _check_login_backoff(tx: SignInTx, subjects: LoginThrottleSubjects, now_ms: int) -> None:
    if subjects.device is not None:
        check_login_backoff(await tx.login_failures.get_for_update(subjects.device), now_ms)
        return
    check_login_backoff(await tx.login_failures.get_for_update(subjects.pair), now_ms)
    check_login_backoff(await tx.login_failures.get_for_update(subjects.address), now_ms)
    if await tx.login_failures.get_for_update(subjects.known_login) is None:
        check_login_backoff(await tx.login_failures.get_for_update(subjects.email), now_ms)


async def _count_failure(
    tx: SignInTx, candidate: _LoginCandidate | None, subjects: LoginThrottleSubjects, now_ms: int, address: str
) -> None:
    for subject in subjects.counted_subjects():
        before = await tx.login_failures.get_for_update(subject)
        await tx.login_failures.upsert(increment_failures(before, subject, now_ms, LOGIN_FAILURE_WINDOW_MS))
    if candidate is not None:
        description = f"Failed login as {candidate.user.email}"
        tx.emit(event_of(candidate.membership.to_session(address), "login_failed", description, now_ms))
