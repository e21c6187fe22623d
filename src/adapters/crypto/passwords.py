"""How people prove who they are: passwords with argon2id (RFC 9106), and codes of authenticator apps (RFC 6238).

A hash takes tens of milliseconds of CPU, so it has threads of its own. 19 MiB, two passes, one lane: the first parameters that
OWASP recommends. The queue is bounded, so a flood of logins is answered `UNAVAILABLE` at once instead of with growing delay.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import pyotp
from argon2 import PasswordHasher, Type
from argon2.exceptions import Argon2Error, InvalidHashError

from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import Unavailable

if TYPE_CHECKING:
    import segno

Result = TypeVar("Result")
MIN_GUESSES = 10**7
"""Of a password. Ten a day and address are let through, and a stolen hash costs tens of milliseconds a guess."""
MAX_RATED = 48
"""Characters: the time that rating takes grows with the square of the length, and so many are enough to be strong."""
OWN_WORDS = ("latchboard",)
MEMORY_KIB = 19 * 1024
TIME_COST = 2


class Argon2PasswordHasher:
    """`threads` hashes at once; `queue` more wait. Close it when the service stops."""

    def __init__(self, *, threads: int = 2, queue: int = 64, memory_kib: int = MEMORY_KIB, passes: int = TIME_COST) -> None:
        self._argon2 = PasswordHasher(time_cost=passes, memory_cost=memory_kib, parallelism=1, type=Type.ID)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._free_slots = threads + queue
        self._dummy_hash = f"$argon2id$v=19$m={memory_kib},t={passes},p=1${_unpadded(bytes(16))}${_unpadded(os.urandom(32))}"

    async def hash(self, password: str) -> str:
        return await self._run_in_pool(lambda: self._argon2.hash(_encode(password)))

    async def verify(self, password_hash: str, password: str) -> bool:
        return await self._run_in_pool(lambda: self._verify(password_hash, password))

    async def verify_dummy(self, password: str) -> None:
        await self.verify(self._dummy_hash, password)

    async def is_guessable(self, password: str, related: Sequence[str]) -> bool:
        return await self._run_in_pool(lambda: _guesses(password, related) < MIN_GUESSES)

    def needs_rehash(self, password_hash: str) -> bool:
        try:
            return self._argon2.check_needs_rehash(password_hash)
        except InvalidHashError:
            return True

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._argon2.verify(password_hash, _encode(password))
        except (Argon2Error, InvalidHashError):
            return False

    async def _run_in_pool(self, work: Callable[[], Result]) -> Result:
        if self._free_slots <= 0:
            raise Unavailable("Too many logins at the moment. Try again in a few seconds.")
        self._free_slots -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._free_slots += 1


def _guesses(password: str, related: Sequence[str]) -> float:
    from zxcvbn import zxcvbn  # its word lists take 13 MiB, and most processes never need them

    return float(zxcvbn(password[:MAX_RATED], user_inputs=[*related, *OWN_WORDS])["guesses"])


def _unpadded(octets: bytes) -> str:
    return base64.b64encode(octets).decode().rstrip("=")


def _encode(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")


ISSUER = "Latchboard"
STEP_S = 30
MAX_STEP_DRIFT = 1
"""Accepted lead or lag of the app's clock, in steps."""


class PyotpTotpCodec:
    def new_secret(self) -> str:
        return pyotp.random_base32()

    def matching_step(self, secret: str, code: str, now_ms: int) -> int | None:
        present = now_ms // SECOND_MS // STEP_S
        app = pyotp.TOTP(secret, interval=STEP_S)
        steps = range(present - MAX_STEP_DRIFT, present + MAX_STEP_DRIFT + 1)
        matching = [step for step in steps if hmac.compare_digest(app.generate_otp(step).encode(), code.encode())]
        return matching[-1] if matching else None

    def setup_uri(self, secret: str, email: str) -> str:
        return pyotp.TOTP(secret, interval=STEP_S).provisioning_uri(name=email, issuer_name=ISSUER)

    def qr_rows(self, uri: str) -> Sequence[str]:
        return ["".join("1" if module else "0" for module in row) for row in _qr_code(uri).matrix]

    def qr_svg(self, uri: str) -> str:
        out = io.BytesIO()
        _qr_code(uri).save(out, kind="svg", scale=4, border=4, xmldecl=False, light="#fff")
        return out.getvalue().decode()


def _qr_code(uri: str) -> segno.QRCode:
    import segno

    return segno.make(uri, error="m", micro=False)
