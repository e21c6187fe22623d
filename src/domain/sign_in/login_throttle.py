"""Rules of login throttling, without I/O.

Login throttling must stop guessing without locking out the owner of an email. A device that has signed in as this user before
has an allowance of its own, which no stranger can use up. Everybody else is counted by three subjects. The pair of email and
address block is strict: it delays only the clients that guess. The address block alone stops clients that guess for many emails.
The email alone stops guesses from many addresses; it is lenient, its delay is short, and it is skipped for a block from which
this email has signed in before. A user who is delayed gets a link by mail that makes the browser one of the user's devices.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from domain.accounts.session_and_sign_in_model import KNOWN_LOGIN_PREFIX, LoginFailures
from domain.kernel.backoff import Backoff
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from domain.kernel.errors import RateLimited
from domain.sign_in.attempt_window_limit import AttemptLimit, is_over

LOGIN_FAILURE_WINDOW_MS = 15 * MINUTE_MS


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
    "device": LoginBackoff(5, Backoff.doubling(1, 60)),
    "pair": LoginBackoff(5, Backoff.doubling(1, 60)),
    "address": LoginBackoff(30, Backoff.doubling(1, 60)),
    "email": LoginBackoff(20, Backoff.doubling(1, 10)),
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
    wait_ms = failures.last_ms + backoff.delay_ms(failures.count) - now_ms
    if wait_ms > 0:
        seconds = -(-wait_ms // SECOND_MS)
        raise RateLimited(
            f"Too many failed logins. Try again in {seconds} s, or have a link sent to your mail that lets this browser sign in: "
            "POST /api/v1/auth/unlock/request.",
            retry_after=seconds,
            code="LOGIN_THROTTLED",
        )


UNLOCK_REQUESTS = AttemptLimit(60, HOUR_MS)
"""Requests for an unlock link from one address block."""
UNLOCK_LINK_TTL_MS = HOUR_MS
UNLOCK_COOLDOWN_MS = 55 * MINUTE_MS
"""Less than a link lives: whoever asks for links in somebody's name, that user always has a mail with a valid one."""
CODE_ATTEMPTS = AttemptLimit(10, DAY_MS)
"""Wrong codes of one user, over all codes."""
PASSWORD_CONFIRMATIONS = AttemptLimit(10, 15 * MINUTE_MS)
"""For a signed-in user who enters the password again."""
