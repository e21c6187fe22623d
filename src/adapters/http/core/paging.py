"""Pages: the one way in which every list is read.

`?limit=&cursor=`; the `Link` header (RFC 8288) names the next page, by a URL with a cursor. A cursor is the position of the last
entry of a page (`domain/kernel/cursors.py`), so entries that are deleted or added meanwhile end no walk, and none that was there
all the time is lost or repeated. `X-Total-Count` counts all entries, where that costs little.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from pydantic import Field
from quart import current_app, request

from adapters.http.core.operation import API_DEPENDENCIES, HttpHandlerResult, RequestHandlingDependencies
from adapters.http.core.schemas import InstantMs, QueryParametersModel
from domain.kernel.checks import MAX_LISTED
from domain.kernel.clock import TimeSpan
from domain.kernel.cursors import LIST, MAX_CURSOR_LENGTH, Cursor, Position, invalid_cursor, other_life, other_list
from domain.kernel.folding import matching

Entry = TypeVar("Entry")
Shown = TypeVar("Shown")
Value = TypeVar("Value")

CursorText = Annotated[
    str, Field(max_length=MAX_CURSOR_LENGTH, description="Where the page begins. The `Link` header of the page before has it.")
]
PageLimit = Annotated[int, Field(ge=1, le=MAX_LISTED, description="The most entries of a page.")]


class PageQueryParameters(QueryParametersModel):
    limit: PageLimit = MAX_LISTED
    cursor: CursorText | None = None

    def position(self, *types: type, kind: str = LIST) -> Position | None:
        """Behind which the page begins; its values are of these types. None for the first page. Raises ValidationFailed, and Gone
        `OTHER_LIFE`."""
        cursor = self.read_cursor(kind)
        if cursor is None:
            return None
        if not cursor.matches(*types):
            raise invalid_cursor()
        return cursor.position

    def number(self) -> int | None:
        """The position of a list that is ordered by one number."""
        position = self.position(int)
        return None if position is None else int(position[0])

    def read_cursor(self, kind: str) -> Cursor | None:
        if self.cursor is None:
            return None
        cursor = Cursor.decode(self.cursor)
        if (cursor.kind, cursor.filters) != (kind, _filters()):
            raise other_list()
        if cursor.life != _life():
            raise other_life()
        return cursor

    def rows_of(
        self, entries: Iterable[Entry], position_of: Callable[[Entry], Position], names: Sequence[str] = ()
    ) -> list[tuple[Position, Entry]]:
        """All entries that are asked for, in the order of their positions."""
        return sorted(((position_of(entry), entry) for entry in entries), key=lambda row: row[0])


class TimedPageQueryParameters(PageQueryParameters):
    """The same of a list that grows with time."""

    since: InstantMs | None = Field(
        default=None, description="Only entries at or after this time: Unix milliseconds or ISO 8601."
    )
    until: InstantMs | None = Field(default=None, description="Only entries before this time: Unix milliseconds or ISO 8601.")

    @property
    def span(self) -> TimeSpan:
        return TimeSpan(self.since, self.until)


CREATED = (int, int)
"""The position in a list of what has a time and a number: `by_creation`."""


def by_creation(entry: Any) -> tuple[int, int]:
    return entry.created_ms, entry.seq


class SearchPageQueryParameters(PageQueryParameters):
    """The same of a list whose entries are found by their names."""

    search: Annotated[str, Field(max_length=128)] = Field(
        default="",
        description="Words that must all be in the names of an entry, whatever their case; what stands in quotes is a phrase. At "
        "most eight count. Entries in which all of them begin words come first.",
    )

    def rows_of(
        self, entries: Iterable[Entry], position_of: Callable[[Entry], Position], names: Sequence[str] = ()
    ) -> list[tuple[Position, Entry]]:
        """`names`: the attributes that are searched, such as `user.email`."""
        getters = [attrgetter(name) for name in names]
        found = matching(entries, self.search, lambda entry: (get(entry) for get in getters))
        return sorted((((rank, *position_of(entry)), entry) for rank, entry in found), key=lambda row: row[0])


def list_response(
    entries: Iterable[Entry],
    query: PageQueryParameters,
    show: Callable[[Entry], Shown],
    position_of: Callable[[Entry], Position],
    names: Sequence[str] = (),
) -> HttpHandlerResult[list[Shown]]:
    """The page that `query` asks for, of a bounded list that is read as a whole. Raises as `PageQueryParameters.position`."""
    rows = query.rows_of(entries, position_of, names)
    total, cursor = len(rows), query.read_cursor(LIST)
    if cursor is not None:
        try:
            rows = [row for row in rows if row[0] > cursor.position]
        except TypeError:
            raise invalid_cursor() from None
    page = rows[: query.limit]
    after = page[-1][0] if len(rows) > len(page) else None
    return page_of([show(entry) for _, entry in page], after, total=total)


def page_response(
    found: Sequence[Entry],
    query: PageQueryParameters,
    show: Callable[[Entry], Shown],
    position_of: Callable[[Entry], Position],
    *,
    total: int | None = None,
) -> HttpHandlerResult[list[Shown]]:
    """The page of a list that the storage reads in pages. `found` has one entry more than the page if there is a next one."""
    page = found[: query.limit]
    after = position_of(page[-1]) if len(found) > len(page) else None
    return page_of([show(entry) for entry in page], after, total=total)


def page_of(value: Value, after: Position | None, *, total: int | None = None, kind: str = LIST) -> HttpHandlerResult[Value]:
    """The answer with this page. `after`: the position of its last entry; None if nothing follows it."""
    headers = {} if total is None else {"X-Total-Count": str(total)}
    if after is not None:
        given = [pair for pair in request.args.items(multi=True) if pair[0] != "cursor"]
        headers["Link"] = f'<{request.path}?{urlencode([*given, ("cursor", cursor_at(after, kind))])}>; rel="next"'
    return HttpHandlerResult(value, headers=headers)


def cursor_at(position: Position, kind: str = LIST) -> str:
    """The cursor of the page behind this position, of the list and filters of the present request."""
    return Cursor(kind, position, _life(), _filters()).encode()


def _life() -> str:
    dependencies: RequestHandlingDependencies = current_app.extensions[API_DEPENDENCIES]
    return dependencies.life.current


def _filters() -> str:
    """A digest of the path and of the query, but for what a walk may change."""
    given = sorted(pair for pair in request.args.items(multi=True) if pair[0] not in ("cursor", "limit"))
    digest = hashlib.sha256(urlencode([("", request.path), *given]).encode()).digest()
    return base64.urlsafe_b64encode(digest[:9]).decode()
