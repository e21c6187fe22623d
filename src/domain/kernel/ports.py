"""Ports that several parts share and none owns: encryption of secrets, the log of denials, and waiting for a result."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import DomainError


class Vault(Protocol):
    """Reversible encryption of stored secrets: AES-GCM with a key ring. `bound_to` is associated data: a ciphertext copied to
    another row cannot be decrypted."""

    def seal(self, secret: str, bound_to: str) -> bytes: ...

    def open(self, sealed: bytes, bound_to: str) -> str:
        """Raises SecretUnreadable when no key of the ring decrypts it."""

    def needs_rekey(self, sealed: bytes) -> bool:
        """Whether it was encrypted with a key other than the newest."""


class DeniedRequestLog(Protocol):
    """Records the denied request of an authenticated caller, so that probing is visible in the account's log. Never raises."""

    async def log_denied(
        self, caller: SessionCaller | ApiKeyCaller, act: str, error: DomainError, subject: dict[str, str], *, always: bool = False
    ) -> None:
        """`always`: log each denial, however many there are. `act` describes the attempt in words; `subject` holds the ids it
        concerned, by their JSON names."""


Key_contra = TypeVar("Key_contra", contravariant=True)
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)


class ResultWaitHandle(Protocol[Value_co]):
    async def wait(self, timeout_s: float) -> Value_co | None:
        """The notified value, or None after `timeout_s` seconds."""


class ResultNotifier(Protocol[Key_contra, Value]):
    """Notifies callers that wait for something to be decided, such as a command's result or an approval. Best effort: they read
    the database as well."""

    def notify(self, value: Value, /) -> None: ...

    def has_waiters(self, key: Key_contra, /) -> bool:
        """Whether a caller of this instance waits for it."""

    def watch(self, key: Key_contra, /, by: str) -> AbstractContextManager[ResultWaitHandle[Value]]:
        """Receives every notification after entering. When too many callers wait, in total or for `by`, `wait` returns at
        once."""
