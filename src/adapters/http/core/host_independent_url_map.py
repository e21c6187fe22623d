"""Routes requests by method and path only, without the `Host` header.

Quart also matches the host, for applications that serve several names. A client can write anything there: an invalid host name
would fail before any error handler runs, and parsing it costs more than the routing. No code asks for the URL of a route, so none
of the functions that build URLs is compiled: they take a tenth of a start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from quart import Quart
from quart.routing import QuartMap, QuartRule
from quart.wrappers.base import BaseRequestWebsocket
from werkzeug.routing import MapAdapter

PLACEHOLDER_HOST = "latchboard"
"""The host of the URL adapter. It is never visible, because nothing is redirected."""


class HostIndependentUrlMap(QuartMap):
    def bind_to_request(self, request: BaseRequestWebsocket, subdomain: str | None, server_name: str | None) -> MapAdapter:
        query = request.query_string.decode("latin-1")
        return MapAdapter(self, PLACEHOLDER_HOST, "/", "", request.scheme, request.path, request.method, query)


def _build_no_url(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("This application has no url_for.")


class MatchOnlyUrlRule(QuartRule):
    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        return _build_no_url


class QuartApplication(Quart):
    url_map_class = HostIndependentUrlMap
    url_rule_class = MatchOnlyUrlRule
