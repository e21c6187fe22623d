"""Where a request goes is decided by method and path alone.

Quart also puts the `Host` header into it, for applications that serve several names. It is whatever a client likes to write:
one that is no host name failed before any handler of ours could answer, and reading it costs more than finding the route.
"""

from __future__ import annotations

from quart import Quart
from quart.routing import QuartMap
from quart.wrappers.base import BaseRequestWebsocket
from werkzeug.routing import MapAdapter

PLACEHOLDER_HOST = "latchboard"
"""What stands for the host in an adapter; seen by nobody, as nothing is redirected."""


class HostlessUrlMap(QuartMap):
    def bind_to_request(self, request: BaseRequestWebsocket, subdomain: str | None, server_name: str | None) -> MapAdapter:
        query = request.query_string.decode("latin-1")
        return MapAdapter(self, PLACEHOLDER_HOST, "/", "", request.scheme, request.path, request.method, query)


class QuartApplication(Quart):
    url_map_class = HostlessUrlMap
