"""Rules of the accounts part, without I/O: emails, passwords, roles and login throttling.

Login throttling must stop guessing without locking out the owner of an email. It counts failures by three subjects. The pair of
email and client address is strict: it delays only the client that guesses. The address alone stops a client that guesses for
many emails. The email alone stops guesses from many addresses; it is lenient, its delay is short, and it is skipped for an
address from which this email has signed in before.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass, replace

from domain.accounts.model import KNOWN_LOGIN_PREFIX, LoginFailures, Membership
from domain.kernel.backoff import Backoff
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import DAY_MS, MINUTE_MS, SECOND_MS
from domain.kernel.errors import Conflict, PermissionDenied, RateLimited, ValidationFailed
from domain.kernel.text_validation import FORBIDDEN_IN_LINE, single_line_fault

ACCESS_TOKEN_TTL_MS = 15 * MINUTE_MS
REFRESH_TOKEN_TTL_MS = 30 * DAY_MS
REFRESH_TOKEN_LENGTH = 48

CODE_DIGITS = 6
CODE_TTL_MS = 10 * MINUTE_MS
CODE_COOLDOWN_MS = MINUTE_MS
CODE_MAX_ATTEMPTS = 5

PASSWORD_MIN_LENGTH = 8
PASSWORD_MAX_LENGTH = 256
EMAIL_MAX_LENGTH = 254
NAME_MAX_LENGTH = 64
USER_AGENT_MAX_LENGTH = 256

LOGIN_FAILURE_WINDOW_MS = 15 * MINUTE_MS

_QUOTED_ONLY_CHARACTERS = r"@\s()<>\[\]:;,\\\""
"""Characters that an address allows only in quotes (RFC 5322, 3.2.3). Not accepted: a comma would make two recipients of one."""
_EMAIL_PATTERN = re.compile(
    rf"[^{_QUOTED_ONLY_CHARACTERS}{FORBIDDEN_IN_LINE}]{{1,64}}@[^{_QUOTED_ONLY_CHARACTERS}{FORBIDDEN_IN_LINE}]{{1,189}}"
)


@dataclass(frozen=True, slots=True)
class LoginBackoff:
    """No delay for the first `free_failures`; then `backoff` gives the delay after each failure."""

    free_failures: int
    backoff: Backoff

    def delay_ms(self, count: int) -> int:
        if count < self.free_failures:
            return 0
        return int(self.backoff.pause_s(count - self.free_failures + 1) * SECOND_MS)


LOGIN_BACKOFFS = {
    "pair": LoginBackoff(5, Backoff.doubling(1, 60)),
    "address": LoginBackoff(30, Backoff.doubling(1, 60)),
    "email": LoginBackoff(20, Backoff.doubling(1, 10)),
}


def normalize_email(text: str) -> str:
    """Lower case, NFC (input methods differ), without surrounding spaces: the form that is stored and searched for."""
    return unicodedata.normalize("NFC", text.strip().lower())


def check_email(text: str) -> str:
    """The normalized email. Raises ValidationFailed for the field `email`."""
    email = normalize_email(text)
    if len(email) > EMAIL_MAX_LENGTH or _EMAIL_PATTERN.fullmatch(email) is None or single_line_fault(email) is not None:
        raise ValidationFailed.for_field("email", "must be an email address such as ada@example.com, at most 254 characters.")
    return email


def check_password(password: str, field: str = "password") -> str:
    """Raises ValidationFailed unless it is 8 to 256 characters."""
    if not PASSWORD_MIN_LENGTH <= len(password) <= PASSWORD_MAX_LENGTH:
        raise ValidationFailed.for_field(field, f"must have {PASSWORD_MIN_LENGTH} to {PASSWORD_MAX_LENGTH} characters.")
    return password


def check_name(name: str, field: str = "name") -> str:
    """The name without surrounding spaces. Raises ValidationFailed unless 1 to 64 characters remain."""
    name = name.strip()
    if not 1 <= len(name) <= NAME_MAX_LENGTH:
        raise ValidationFailed.for_field(field, f"must have 1 to {NAME_MAX_LENGTH} characters.")
    fault = single_line_fault(name)
    if fault is not None:
        raise ValidationFailed.for_field(field, fault)
    return name


def clean_user_agent(text: str) -> str:
    """The header as one printable line of at most 256 characters: it is shown in the list of sessions."""
    return re.sub(f"[{FORBIDDEN_IN_LINE}]", "", text)[:USER_AGENT_MAX_LENGTH].strip()


def check_can_assign_role(caller: Session, role: Role) -> None:
    """Admins manage members; only an Owner assigns the role Owner. Raises PermissionDenied."""
    require_role(caller, Role.ADMIN)
    if role is Role.OWNER and caller.role is not Role.OWNER:
        raise PermissionDenied("Only an Owner can assign the role Owner. Ask an Owner of the account.")


def check_can_change_member(caller: Session, target: Membership) -> None:
    """Only an Owner changes or removes Owners. Raises PermissionDenied."""
    require_role(caller, Role.ADMIN)
    if target.role is Role.OWNER and caller.role is not Role.OWNER:
        raise PermissionDenied("Only an Owner can change or remove an Owner. Ask an Owner of the account.")


def check_not_last_owner(target: Membership, new_role: Role | None, owners: int) -> None:
    """An account always has an Owner. `new_role` None means removal. Raises Conflict `LAST_OWNER`."""
    if target.role is Role.OWNER and new_role is not Role.OWNER and owners <= 1:
        raise Conflict("This is the account's last Owner. Make somebody else an Owner first.", code="LAST_OWNER")


def client_network(address: str) -> str:
    """The unit in which client addresses are counted: an IPv4 address, or an IPv6 /64, the usual allocation of one customer."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address[:64] or "unknown"
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


@dataclass(frozen=True, slots=True)
class LoginThrottleSubjects:
    """The subjects under which a login attempt is counted, and the one that records its success."""

    pair: str
    address: str
    email: str
    known_login: str

    @classmethod
    def for_attempt(cls, email: str, address: str) -> LoginThrottleSubjects:
        network = client_network(address)
        return cls(f"pair:{email}|{network}", f"address:{network}", f"email:{email}", f"{KNOWN_LOGIN_PREFIX}{email}|{network}")

    def counted_subjects(self) -> tuple[str, ...]:
        return (self.pair, self.address, self.email)


def check_login_backoff(failures: LoginFailures | None, now_ms: int) -> None:
    """Raises RateLimited `LOGIN_THROTTLED` while the delay after the last failure lasts."""
    if failures is None or now_ms - failures.since_ms >= LOGIN_FAILURE_WINDOW_MS:
        return
    backoff = LOGIN_BACKOFFS[failures.subject.partition(":")[0]]
    wait_ms = failures.last_ms + backoff.delay_ms(failures.count) - now_ms
    if wait_ms > 0:
        seconds = -(-wait_ms // SECOND_MS)
        raise RateLimited(f"Too many failed logins. Try again in {seconds} s.", retry_after=seconds, code="LOGIN_THROTTLED")


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """At most `max_failures` wrong attempts in the window that begins with the first of them."""

    max_failures: int
    window_ms: int

    def check(self, failures: LoginFailures | None, now_ms: int, what: str) -> None:
        """Raises RateLimited `LOGIN_THROTTLED`; `what` names the attempts in its message."""
        if failures is None or failures.count < self.max_failures or now_ms >= failures.since_ms + self.window_ms:
            return
        wait_s = max(1, -(-(failures.since_ms + self.window_ms - now_ms) // SECOND_MS))
        raise RateLimited(f"Too many {what}. Try again in {wait_s} seconds.", code="LOGIN_THROTTLED", retry_after=wait_s)

    def count(self, failures: LoginFailures | None, subject: str, now_ms: int) -> LoginFailures:
        """One more wrong attempt."""
        if failures is None or now_ms >= failures.since_ms + self.window_ms:
            return LoginFailures(subject, 1, now_ms, now_ms)
        return replace(failures, count=failures.count + 1, last_ms=now_ms)


PASSWORD_CONFIRMATIONS = AttemptLimit(10, 15 * MINUTE_MS)
"""For a signed-in user who enters the password again."""


def increment_failures(failures: LoginFailures | None, subject: str, now_ms: int) -> LoginFailures:
    """One more failure. After the window has ended, counting starts again at 1."""
    if failures is None or now_ms - failures.since_ms >= LOGIN_FAILURE_WINDOW_MS:
        return LoginFailures(subject, 1, now_ms, now_ms)
    return replace(failures, count=failures.count + 1, last_ms=now_ms)
