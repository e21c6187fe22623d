"""Conditional requests (RFC 9110, 13): the `ETag` of one object, `If-None-Match` and `If-Match`.

An ETag is a hash of what a `GET` of the object shows to this caller, so it changes with everything that is shown. Nothing has to
count versions.

A change is made under the condition of `If-Match`. It is about the object of the longest path above the change that a `GET`
answers: `/devices/{deviceId}` for `PATCH /devices/{deviceId}/toggle`. The `GET` runs once before the handler, so that nothing
begins that is refused anyway, and once more in the handler's own transaction, before it changes anything and with the rows of the
object locked (`UnitOfWork.write`): of two changes with the same ETag, one is made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TypeVar

from domain.kernel.dataclasses import service
from domain.kernel.errors import VersionMismatch

Found = TypeVar("Found")

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_ENDS_WITH_OK = b',"ok":true}'


def etag_of(content: bytes) -> str:
    """Of the JSON of one object; `{"ok": true}` beside its fields makes no other object of it."""
    shown = content.removesuffix(_ENDS_WITH_OK) + b"}" if content.endswith(_ENDS_WITH_OK) else content
    return f'"{hashlib.blake2b(shown, digest_size=16).hexdigest()}"'


def lists_etag(header: str, etag: str, *, weakly: bool = False) -> bool:
    """Whether `header`, an `If-Match` or `If-None-Match`, lists `etag`. `weakly`: `W/"x"` is `"x"`, as for `If-None-Match`."""
    if header.strip() == "*":
        return True
    return any((tag.removeprefix("W/") if weakly else tag) == etag for tag in _TAG.findall(header))


def find_above(path: str, by_path: Mapping[str, Found]) -> Found | None:
    """What `by_path` has for this path, else for the nearest path above it."""
    while path:
        if path in by_path:
            return by_path[path]
        path = path.rpartition("/")[0]
    return None


@service
class Precondition:
    """The `If-Match` of one request. `show` makes the JSON that a `GET` of the object answers now; None where the request is
    about no single object."""

    if_match: str
    show: Callable[[], Awaitable[bytes]] | None
    _is_held: bool = field(default=False, init=False)

    async def check(self) -> None:
        """Raises VersionMismatch, and what the `GET` raises."""
        if self.if_match.strip() == "*":
            return
        if self.show is None:
            raise VersionMismatch("This request changes no single object that has an ETag. Send it without If-Match.")
        if not lists_etag(self.if_match, etag_of(await self.show())):
            raise VersionMismatch("If-Match is not the present ETag: the object has changed. Read it again, and then decide.")

    async def __call__(self) -> None:
        """The check in the first transaction of the request; what follows has changed the object itself."""
        if not self._is_held:
            await self.check()
            self._is_held = True
