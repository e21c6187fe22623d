"""No example is over: who sends it as it stands must not be refused because of its times."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from adapters.http.documents.examples import FIELD_EXAMPLES, REQUEST_EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
YEARS_AHEAD_S = 5 * 366 * 86_400
"""Nobody has to change them soon."""
FIXED_EXPIRY = re.compile(r'"expiresAt": ?\\?"20\d\d')


def test_no_example_of_a_request_is_over() -> None:
    found = {f"{name}: {field}": at for name, body in REQUEST_EXAMPLES.items() for field, at in times_ahead(body)}
    found |= dict(times_ahead(FIELD_EXAMPLES))  # of requests that are composed of fields
    assert len(found) >= 5
    now = time.time()
    assert {name: at for name, at in found.items() if at < now + YEARS_AHEAD_S} == {}


def times_ahead(example: Any) -> Iterator[tuple[str, float]]:
    """The times of what is still to come, in Unix seconds."""
    for one in example if isinstance(example, list) else ():
        yield from times_ahead(one)
    for field, value in example.items() if isinstance(example, dict) else ():
        if field in ("onTs", "offTs") and value is not None:
            yield field, value
        elif field in ("expiresAt", "nextFireAt") and value is not None:
            yield field, datetime.fromisoformat(value).timestamp()
        yield from times_ahead(value)


def test_no_document_tells_to_send_a_fixed_expiry() -> None:
    """It would be refused from that day on."""
    documents = [*(ROOT / "docs/how-to").glob("*.md"), *(ROOT / "docs/tutorials").glob("*.md"), ROOT / "README.md"]
    assert [path.name for path in documents if FIXED_EXPIRY.search(path.read_text())] == []
