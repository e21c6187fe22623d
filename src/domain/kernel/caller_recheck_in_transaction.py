"""Caller recheck: whether a caller may still act is decided in the transaction that acts.

A request is authenticated before its body is read, and may wait after that: for a password hash, a lock, a slow client.
Meanwhile its caller may be removed, demoted or signed out, or its key disabled. So `UnitOfWork.write` reads the session and
membership, or the key, of its caller again, in its own transaction and under a lock, and calls these checks. The change takes
effect before the caller loses its authority, or not at all.

A role that is lower than the one that the request was authenticated with ends the request, even where the lower role would be
enough: every decision that the service has based on `caller.role` is then still true when it commits.
"""

from __future__ import annotations

from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller, require_role
from domain.kernel.errors import PermissionDenied, Unauthenticated


def check_stated_role(caller: SessionCaller | ApiKeyCaller, needs: Role) -> None:
    """Before the transaction begins. Raises PermissionDenied `ROLE_REQUIRED`. An API key has grants instead of a role."""
    if isinstance(caller, SessionCaller):
        require_role(caller, needs)


def check_current_role(caller: SessionCaller, current: Role | None) -> None:
    """`current`: the role as of this transaction, None without a membership. Raises Unauthenticated; PermissionDenied."""
    if current is None:
        raise Unauthenticated("This user is no longer a member of the account. Sign in again.")
    if not current.is_at_least(caller.role):
        raise PermissionDenied(
            f"Your role has changed from {caller.role} to {current} during this request, so it was not carried out. "
            "Send it again if your role allows it."
        )


def check_session_is_open(revoked_ms: int | None) -> None:
    """`revoked_ms`: when the caller's session was ended, as of this transaction. Raises Unauthenticated."""
    if revoked_ms is not None:
        raise Unauthenticated("This session has ended. Sign in again.")


def check_key_is_enabled(enabled: bool | None) -> None:
    """`enabled`: the key's state as of this transaction, None without a key. Raises Unauthenticated."""
    if enabled is None:
        raise Unauthenticated("This API key does not exist or was deleted. Create a new one.")
    if not enabled:
        raise Unauthenticated("This API key is disabled. Enable it or use another one.")
