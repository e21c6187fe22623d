"""A transaction is used otherwise than it was opened.

Errors about stored rows, with the same message for every storage.

Callbacks that run after the commit. The transaction has succeeded by then, so a failing callback must not undo that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from domain.kernel.errors import Conflict, NotFound


class ReadOnlyTransactionError(RuntimeError):
    """A write inside `read()`: a programming error, never the fault of a request."""

    def __init__(self) -> None:
        super().__init__("This transaction only reads. Open it with write() to change something.")


class SecondReadStatementError(RuntimeError):
    """A second statement in `read(one_statement=True)`, where it might see another state than the first."""

    def __init__(self) -> None:
        super().__init__("This read was opened for one statement. Open it with read() to run several.")


class NestedWriteError(RuntimeError):
    """A task inside `write()` opened another one and would wait for itself."""

    def __init__(self) -> None:
        super().__init__("This task is already inside write(). Pass its transaction on instead of opening another one.")


class TransactionClosedError(RuntimeError):
    """A transaction was used after its block ended."""

    def __init__(self) -> None:
        super().__init__("This transaction has ended. Use a transaction only inside its `async with` block.")


def email_taken_error() -> Conflict:
    return Conflict("A user with this email already exists. Use another address.", code="EMAIL_TAKEN")


def member_exists_error() -> Conflict:
    return Conflict("This person is already a member of the account. Change their role instead.", code="MEMBER_EXISTS")


def invitation_exists_error() -> Conflict:
    return Conflict("This address is invited already. Send that invitation again, or revoke it first.", code="INVITATION_EXISTS")


def project_in_use_error() -> Conflict:
    return Conflict("The project still has devices. Move or delete them first.", code="PROJECT_NOT_EMPTY")


def no_default_project_error(account_id: str) -> NotFound:
    return NotFound(
        f"The account {account_id} has no default project. Create the account again, or mark a project as the default."
    )


def command_exists_error() -> Conflict:
    return Conflict(
        "A command with this name already exists here. Choose another name, or edit that command.", code="COMMAND_EXISTS"
    )


def slot_taken_error() -> Conflict:
    return Conflict("The slot holds a pending or active schedule. Cancel that one first.", code="SLOT_TAKEN")


def edge_recorded_error() -> Conflict:
    return Conflict("This edge has already run; it does not run again.", code="EDGE_RECORDED")


def identity_taken_error() -> Conflict:
    return Conflict("This user has another identity of the same provider. Ask an Owner or Admin.", code="IDENTITY_TAKEN")


_log = logging.getLogger(__name__)


def run_callbacks(calls: Iterable[Callable[[], None]]) -> None:
    """Run every callback. One that raises is logged, and the others still run."""
    for call in calls:
        try:
            call()
        except Exception:
            _log.exception("a callback failed after the commit; the commit itself succeeded")
