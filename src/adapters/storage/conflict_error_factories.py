"""Errors about stored rows, with the same message for every storage."""

from __future__ import annotations

from domain.kernel.errors import Conflict, NotFound


def email_taken_error() -> Conflict:
    return Conflict("A user with this email already exists. Use another address.", code="EMAIL_TAKEN")


def member_exists_error() -> Conflict:
    return Conflict("This person is already a member of the account. Change their role instead.", code="MEMBER_EXISTS")


def invitation_exists_error() -> Conflict:
    return Conflict("This address is invited already. Send that invitation again, or revoke it first.", code="INVITATION_EXISTS")


def project_in_use_error() -> Conflict:
    return Conflict("The project still has devices. Move or delete them first.", code="PROJECT_IN_USE")


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
