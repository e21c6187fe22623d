"""What every storage refuses, in the same words whichever one it is."""

from __future__ import annotations

from domain.kernel.errors import Conflict, NotFound


class ReadOnlyTransactionError(RuntimeError):
    """Somebody wrote through `read()`: a mistake in the program, never in a request."""

    def __init__(self) -> None:
        super().__init__("This unit of work only reads. Open it with write() to change something.")


class NestedWriteError(RuntimeError):
    """A task that is inside `write()` opened another one; it would wait for itself."""

    def __init__(self) -> None:
        super().__init__("This task is inside write() already. Pass its transaction on instead of opening another.")


class TransactionClosedError(RuntimeError):
    """A transaction was used after its block had ended."""

    def __init__(self) -> None:
        super().__init__("This unit of work has ended. Use a transaction only inside its `async with` block.")


def email_taken_error() -> Conflict:
    return Conflict("Somebody with this email is here already. Use another address.", code="EMAIL_TAKEN")


def member_exists_error() -> Conflict:
    return Conflict("This person is a member of the account already. Change their role instead.", code="MEMBER_EXISTS")


def project_in_use_error() -> Conflict:
    return Conflict("The project still has devices. Move or delete them first.", code="PROJECT_IN_USE")


def no_default_project_error(account_id: str) -> NotFound:
    return NotFound(f"The account {account_id} has no default project. Create the account anew, or mark a project as default.")


def command_exists_error() -> Conflict:
    return Conflict("A command of this name exists here already. Choose another name, or edit that one.", code="COMMAND_EXISTS")


def slot_taken_error() -> Conflict:
    return Conflict("The slot holds a pending or active schedule. Cancel that one first.", code="SLOT_TAKEN")


def edge_recorded_error() -> Conflict:
    return Conflict("This edge has run before and does not run again.", code="EDGE_RECORDED")


def duplicate_error() -> Conflict:
    return Conflict("This exists already. Fetch the present one and change that.")
