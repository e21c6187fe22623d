"""How PostgreSQL knows which instance a session belongs to: by its `application_name`."""

from __future__ import annotations

from collections.abc import Mapping

MAX_LENGTH = 63
"""PostgreSQL cuts longer names off at their end. Here their beginning is cut: an instance's name ends with what is unique."""
MEMBERSHIP_IDLE_MS = 1_500
"""Of an open transaction: less than others take to judge that the member is dead."""


def session_name(instance: str | None) -> str:
    """`instance`: its name in the cluster, if it is part of one."""
    if instance is None:
        return "latchboard"
    return f"latchboard {instance}".encode("ascii", "ignore").decode()[-MAX_LENGTH:]


def session_settings(instance: str | None, *, for_membership: bool) -> Mapping[str, str]:
    """Of PostgreSQL. `for_membership`: no other member ends these sessions, for a member that is taken for dead wrongly goes on
    beating. So the server ends their transactions soon itself. A commit does not wait for the disk."""
    if not for_membership:
        return {"application_name": session_name(instance)}
    timeout_ms = str(MEMBERSHIP_IDLE_MS)
    name = "latchboard-membership"
    return {"application_name": name, "synchronous_commit": "off", "idle_in_transaction_session_timeout": timeout_ms}
