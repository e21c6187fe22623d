"""The service replaces private classes of Hypercorn; a version without them ends the start with a message. A request that the
server cuts off when it stops is answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypercorn.protocol.h11 import H11Protocol

from adapters.http.core.errors import answering_always
from adapters.http.server.hypercorn import UnsupportedHypercornError, patch_hypercorn
from app.runtime.start import startup_error_message


def test_a_hypercorn_without_a_replaced_method_is_a_startup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(H11Protocol, "_check_protocol")
    with pytest.raises(UnsupportedHypercornError, match=r"H11Protocol\._check_protocol") as raised:
        patch_hypercorn()
    assert startup_error_message(raised.value) == str(raised.value)


async def test_a_request_that_the_end_of_the_service_cuts_off_is_told_so() -> None:
    sent: list[dict[str, Any]] = []

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    request = asyncio.create_task(answering_always(hang)({"type": "http", "method": "POST", "path": "/keys"}, None, send))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    start, body = sent
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"1")
    assert json.loads(body["body"])["error"] == "UNAVAILABLE"
