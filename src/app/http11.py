"""HTTP/1.1 and WebSocket at the door, and nothing else.

Hypercorn also speaks HTTP/2 without TLS, to whoever begins with its preface or asks for an upgrade, and has no setting against
it. A connection that has changed over leaves the idle timeout behind and could be held open for nothing. Proxies speak HTTP/1.1
to what stands behind them, so here an upgrade is passed over, as RFC 9110 (7.8) allows, and another version is refused.
"""

from __future__ import annotations

from typing import Any

import h11
import hypercorn.protocol
from hypercorn.events import Closed
from hypercorn.protocol.h11 import H11Protocol

SPOKEN = (b"1.0", b"1.1")


class OnlyHttp11(H11Protocol):
    async def _check_protocol(self, event: h11.Request) -> None:
        """Nothing is changed over to."""

    async def _create_stream(self, request: h11.Request) -> None:
        if request.http_version in SPOKEN:
            await super()._create_stream(request)
            return
        await self._send_error_response(505)
        await self.send(Closed())


def install() -> None:
    """For every connection that Hypercorn takes from now on in this process."""
    protocol: Any = hypercorn.protocol
    protocol.H11Protocol = OnlyHttp11
