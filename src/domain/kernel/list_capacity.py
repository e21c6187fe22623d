"""How many objects of a kind there may be."""

from __future__ import annotations

from domain.kernel.errors import Conflict

MAX_LISTED = 1_000
"""The bound of every kind whose whole list one page shows."""


def check_capacity(count: int, code: str, what: str) -> None:
    """Call it in a transaction that locks the account, so that nothing is added after the count. `what`: who has at most `limit`
    of what, such as "An account has at most {limit} API keys". Raises Conflict with `code`."""
    if count >= MAX_LISTED:
        raise Conflict(f"{what.format(limit=MAX_LISTED)}. Delete one that is not needed any more.", code=code)
