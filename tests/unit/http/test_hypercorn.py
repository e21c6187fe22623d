"""The service replaces private classes of Hypercorn; a version without them ends the start with a message."""

from __future__ import annotations

import pytest
from hypercorn.protocol.h11 import H11Protocol

from adapters.http.server.hypercorn import UnsupportedHypercornError, patch_hypercorn
from app.runtime.start import startup_error_message


def test_a_hypercorn_without_a_replaced_method_is_a_startup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(H11Protocol, "_check_protocol")
    with pytest.raises(UnsupportedHypercornError, match=r"H11Protocol\._check_protocol") as raised:
        patch_hypercorn()
    assert startup_error_message(raised.value) == str(raised.value)
