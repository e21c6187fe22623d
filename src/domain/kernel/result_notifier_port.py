"""Requests that wait for something to be decided, such as a command's result or an approval."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

Key_contra = TypeVar("Key_contra", contravariant=True)
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)


class ResultWaitHandle(Protocol[Value_co]):
    async def wait(self, timeout_s: float) -> Value_co | None:
        """The notified value, or None after `timeout_s` seconds."""


class ResultNotifier(Protocol[Key_contra, Value]):
    """Notifies waiting callers. Best effort: callers read the database as well."""

    def notify(self, value: Value, /) -> None: ...

    def has_waiters(self, key: Key_contra, /) -> bool:
        """Whether a caller of this instance waits for it."""

    def watch(self, key: Key_contra, /, by: str) -> AbstractContextManager[ResultWaitHandle[Value]]:
        """Receives every notification after entering. When too many callers wait, in total or for `by`, `wait` returns at
        once."""
