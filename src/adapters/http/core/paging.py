"""Pages of plain arrays: a full page names the next one in a `Link` header (RFC 8288), so nothing is cut off silently.

A handler asks its service for one entry more than the page holds: that entry shows that there is a next page. All lists share
this file, so it stands alone although it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, TypeVar
from urllib.parse import urlencode

from pydantic import Field
from quart import request

from adapters.http.core.operation import HttpHandlerResult
from adapters.http.core.schemas import IdText, QueryParametersModel
from domain.kernel.checks import MAX_LISTED
from domain.kernel.errors import ValidationFailed
from domain.kernel.folding import matching

Entry = TypeVar("Entry")
Shown = TypeVar("Shown")


class PageQueryParameters(QueryParametersModel):
    """Of a list that is bounded: without a limit, the whole of it."""

    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = MAX_LISTED
    after: IdText[str] | None = Field(
        default=None, description="The id of an entry: only those after it. The `Link` header carries it."
    )


class SearchPageQueryParameters(PageQueryParameters):
    """The same of a list whose entries are found by their names."""

    search: Annotated[str, Field(max_length=128)] = Field(
        default="",
        description="Words that must all be in the names of an entry, whatever their case; what stands in quotes is a phrase. At "
        "most eight count. Entries in which all of them begin words come first.",
    )

    def found(self, entries: Sequence[Entry], *names: str) -> list[Entry]:
        """The entries that are asked for, by these attributes, such as `user.email`."""
        getters = [attrgetter(name) for name in names]
        return matching(entries, self.search, lambda entry: (get(entry) for get in getters))


def list_response(
    entries: Sequence[Entry], query: PageQueryParameters, show: Callable[[Entry], Shown], id_of: Callable[[Entry], str]
) -> HttpHandlerResult[list[Shown]]:
    """The page of a whole list that `query` asks for. Raises ValidationFailed for an `after` that is not in it."""
    start = 0
    if query.after is not None:
        start = next((index for index, entry in enumerate(entries, 1) if id_of(entry) == query.after), 0)
        if not start:
            raise ValidationFailed.for_field("after", "is not the id of an entry of this list. Begin again without it.")
    page = entries[start : start + query.limit]
    is_last = start + query.limit >= len(entries)
    headers = {} if is_last else {"Link": next_link("after", id_of(page[-1]))}
    return HttpHandlerResult([show(entry) for entry in page], headers=headers)


def page_response(
    found: Sequence[Entry], limit: int, show: Callable[[Entry], Shown], cursor_of: Callable[[Entry], str]
) -> HttpHandlerResult[list[Shown]]:
    """The first `limit` entries; if there are more, with a link to the page that begins after the last one."""
    page = found[:limit]
    headers = {} if len(found) <= limit else {"Link": next_link("before", cursor_of(page[-1]))}
    return HttpHandlerResult([show(entry) for entry in page], headers=headers)


def next_link(name: str, text: str, *replaced: str) -> str:
    """The `Link` header of the page that this request reaches with the query parameter `name`, without those it replaces."""
    given = [(each, value) for each, value in request.args.items(multi=True) if each not in (name, *replaced)]
    return f'<{request.path}?{urlencode([*given, (name, text)])}>; rel="next"'
