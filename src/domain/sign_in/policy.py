"""Rules of signing in, without I/O: how often a login, a code or a request may be wrong, which browsers are known, and who needs
a second factor.

Login throttling must stop guessing without locking out the owner of an email. A device that has signed in as this user before
has an allowance of its own, which no stranger can use up. Everybody else is counted by three subjects. The pair of email and
address block is strict: it delays only the clients that guess. The address block alone stops clients that guess for many emails.
The email alone stops guesses from many addresses; it is lenient, its delay is short, and it is skipped for a block from which
this email has signed in before. A user who is delayed gets a link by mail that makes the browser one of the user's devices.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from domain.accounts.policy import check_password
from domain.kernel.backoff import Backoff
from domain.kernel.caller import Role
from domain.kernel.clock import DAY_MS, MINUTE_MS, SECOND_MS, is_of_earlier_clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Conflict, RateLimited, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, UserId
from domain.sign_in.model import KNOWN_LOGIN_PREFIX, LoginFailures
from domain.sign_in.ports import PasswordHasher, TokenHasher


async def check_new_password(hasher: PasswordHasher, password: str, field: str = "password", *, related: Sequence[str]) -> str:
    """`related`: what is known of the person, such as the address. Raises ValidationFailed; `PASSWORD_WEAK` for one that is easy
    to guess."""
    words = [word for text in related for word in (text, *re.split(r"[^\w]+", text)) if word]
    if await hasher.is_guessable(check_password(password, field), words):
        raise ValidationFailed.for_field(
            field,
            "is easy to guess: a usual password, a pattern, or your own address or name. Use four words that do not belong "
            "together, or let a password manager make one.",
            code="PASSWORD_WEAK",
        )
    return password


def is_over(failures: LoginFailures, window_ms: int, now_ms: int) -> bool:
    """Whether the window of these failures has ended."""
    return now_ms >= failures.since_ms + window_ms or is_of_earlier_clock(failures.last_ms, now_ms)


def increment_failures(failures: LoginFailures | None, subject: str, now_ms: int, window_ms: int) -> LoginFailures:
    """One more failure. After the window has ended, counting starts again at 1."""
    if failures is None or is_over(failures, window_ms, now_ms):
        return LoginFailures(subject, 1, now_ms, now_ms)
    return replace(failures, count=failures.count + 1, last_ms=now_ms)


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """At most `max_failures` wrong attempts in the window that begins with the first of them."""

    max_failures: int
    window_ms: int

    def check(self, failures: LoginFailures | None, now_ms: int, what: str) -> None:
        """Raises RateLimited `LOGIN_THROTTLED`; `what` names the attempts in its message."""
        if failures is None or failures.count < self.max_failures or is_over(failures, self.window_ms, now_ms):
            return
        wait_s = max(1, -(-(failures.since_ms + self.window_ms - now_ms) // SECOND_MS))
        raise RateLimited(f"Too many {what}. Try again in {wait_s} seconds.", code="LOGIN_THROTTLED", retry_after=wait_s)

    def count(self, failures: LoginFailures | None, subject: str, now_ms: int) -> LoginFailures:
        """One more wrong attempt."""
        return increment_failures(failures, subject, now_ms, self.window_ms)


LOGIN_FAILURE_WINDOW_MS = 15 * MINUTE_MS


def _login_backoff(first_delayed: int, max_s: float) -> Backoff:
    """No delay after the failures before `first_delayed`; after that one 1 s, and then twice as long each time."""
    return Backoff((0.0,) * (first_delayed - 1) + Backoff.doubling(1, max_s).pauses_s)


LOGIN_BACKOFFS = {
    "device": _login_backoff(5, 60),
    "pair": _login_backoff(5, 60),
    "address": _login_backoff(30, 60),
    "email": _login_backoff(20, 10),
}


def client_network(address: str) -> str:
    """The block in which client addresses are counted: an IPv4 /24 or an IPv6 /64, which one attacker easily has as a whole."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address[:64] or "unknown"
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))


@dataclass(frozen=True, slots=True)
class LoginThrottleSubjects:
    """The subjects under which a login attempt is counted, and the one that records its success. `device` is set for a device
    that has signed in as this user before: it alone counts then."""

    device: str | None
    pair: str
    address: str
    email: str
    known_login: str

    @classmethod
    def for_attempt(cls, email: str, address: str, device_id: str | None = None) -> LoginThrottleSubjects:
        network = client_network(address)
        device = None if device_id is None else f"device:{device_id}"
        return cls(
            device, f"pair:{email}|{network}", f"address:{network}", f"email:{email}", f"{KNOWN_LOGIN_PREFIX}{email}|{network}"
        )

    def counted_subjects(self) -> tuple[str, ...]:
        return (self.pair, self.address, self.email) if self.device is None else (self.device,)


def check_login_backoff(failures: LoginFailures | None, now_ms: int) -> None:
    """Raises RateLimited `LOGIN_THROTTLED` while the delay after the last failure lasts."""
    if failures is None or is_over(failures, LOGIN_FAILURE_WINDOW_MS, now_ms):
        return
    backoff = LOGIN_BACKOFFS[failures.subject.partition(":")[0]]
    wait_ms = failures.last_ms + int(backoff.pause_s(failures.count) * SECOND_MS) - now_ms
    if wait_ms > 0:
        seconds = -(-wait_ms // SECOND_MS)
        raise RateLimited(
            f"Too many failed logins. Try again in {seconds} s, or have a link sent to your mail that lets this browser sign in: "
            "POST /api/v1/auth/unlock/request.",
            retry_after=seconds,
            code="LOGIN_THROTTLED",
        )


CODE_ATTEMPTS = AttemptLimit(10, DAY_MS)
"""Wrong codes of one user, over all codes."""
PASSWORD_CONFIRMATIONS = AttemptLimit(10, 15 * MINUTE_MS)
"""For a signed-in user who enters the password again."""
CODE_TRIES = AttemptLimit(5, 15 * MINUTE_MS)
"""Wrong second factors of one user. Only who knows the password, or holds a session, can use them up."""

CHALLENGE_TTL_MS = 5 * MINUTE_MS
STEP_UP_TTL_MS = 5 * MINUTE_MS
"""How long a proof of presence counts for a change of the factors and for the reveal of credentials."""
APPROVAL_STEP_UP_TTL_MS = 15 * MINUTE_MS
WRONG_FACTOR = "The code is wrong, or was used before. Enter the next code of your app, or a recovery code."


class RolesRequiringSecondFactor(StrEnum):
    """Who must have a second factor."""

    NOBODY = "nobody"
    ADMINS = "admins"
    ALL = "all"

    def applies_to(self, role: Role) -> bool:
        return self is RolesRequiringSecondFactor.ALL or (
            self is RolesRequiringSecondFactor.ADMINS and role.is_at_least(Role.ADMIN)
        )


def second_factor_required_error() -> Conflict:
    return Conflict("This installation requires a second factor for your role.", code="SECOND_FACTOR_REQUIRED")


def challenge_expired_error() -> ValidationFailed:
    return ValidationFailed.for_field(
        "challengeToken", "is wrong, used or older than five minutes. Begin again with your password.", code="CHALLENGE_EXPIRED"
    )


def normalize_code(code: str) -> str:
    """Without the spaces and hyphens that people and apps write into codes."""
    return "".join(code.split()).replace("-", "")


MAX_TOKENS = 4
DEVICE_ID_LENGTH = 20
_TOKEN_PATTERN = re.compile(rf"[A-Za-z0-9]{{{DEVICE_ID_LENGTH}}}\.[0-9a-f]{{64}}")


@service
class HmacKnownBrowserTokenCodec:
    """The tokens of devices (browsers, programs) that have signed in as a user before, usually in a cookie.

    A token is `<device id>.<signature>`, bound to one user. It is no credential: it only gives its device an allowance of its own
    for wrong passwords, so that strangers who guess cannot keep the user out. A device keeps the tokens of the last few users."""

    ids: IdAndSecretGenerator
    digest: TokenHasher

    def find_device(self, tokens: str, user_id: UserId) -> str | None:
        """The id of the device, if one of its tokens is of this user."""
        for token in _split(tokens):
            device_id, _, signature = token.partition(".")
            if hmac.compare_digest(signature, self._sign(device_id, user_id)):
                return device_id
        return None

    def add_token(self, tokens: str, user_id: UserId) -> str:
        """The device's tokens with one of this user in front; the same ones if it has one."""
        if self.find_device(tokens, user_id) is not None:
            return "~".join(_split(tokens))
        device_id = self.ids.random_alphanumeric(DEVICE_ID_LENGTH)
        added = f"{device_id}.{self._sign(device_id, user_id)}"
        return "~".join([added, *_split(tokens)][:MAX_TOKENS])

    def _sign(self, device_id: str, user_id: UserId) -> str:
        return self.digest.hmac_sha256("device", f"{user_id}:{device_id}").hex()


def _split(tokens: str) -> list[str]:
    return [token for token in tokens[:1_000].split("~") if _TOKEN_PATTERN.fullmatch(token)][:MAX_TOKENS]
