"""Routes requests by method and path only, without the `Host` header.

Quart also matches the host, for applications that serve several names. A client can write anything there: an invalid host name
would fail before any error handler runs, and parsing it costs more than the routing.
"""

from __future__ import annotations

from quart import Quart
from quart.routing import QuartMap
from quart.wrappers.base import BaseRequestWebsocket
from werkzeug.routing import MapAdapter

PLACEHOLDER_HOST = "latchboard"
"""The host of the URL adapter. It is never visible, because nothing is redirected."""


class HostlessUrlMap(QuartMap):
    def bind_to_request(self, request: BaseRequestWebsocket, subdomain: str | None, server_name: str | None) -> MapAdapter:
        query = request.query_string.decode("latin-1")
        return MapAdapter(self, PLACEHOLDER_HOST, "/", "", request.scheme, request.path, request.method, query)


class QuartApplication(Quart):
    url_map_class = HostlessUrlMap
