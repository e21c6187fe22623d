"""Pages of plain arrays: a full page names the next one in a `Link` header (RFC 8288), so nothing is cut off silently.

A handler asks its service for one entry more than the page holds: that entry shows that there is a next page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from quart import request

from adapters.http.core.request_handling import ApiResponse

Entry = TypeVar("Entry")
Shown = TypeVar("Shown")


def page_response(
    found: Sequence[Entry], limit: int, show: Callable[[Entry], Shown], cursor_of: Callable[[Entry], str]
) -> ApiResponse[list[Shown]]:
    """The first `limit` entries; if there are more, with a link to the page that begins after the last one."""
    page = found[:limit]
    headers = {} if len(found) <= limit else {"Link": f'<{_next_url(cursor_of(page[-1]))}>; rel="next"'}
    return ApiResponse([show(entry) for entry in page], headers=headers)


def next_offset_link(offset: int) -> str:
    """The `Link` header of a page that is reached by its offset."""
    return f'<{_url_with("offset", str(offset))}>; rel="next"'


def _next_url(before: str) -> str:
    return _url_with("before", before)


def _url_with(name: str, text: str) -> str:
    given = [(each, value) for each, value in request.args.items(multi=True) if each != name]
    return f"{request.path}?{urlencode([*given, (name, text)])}"
