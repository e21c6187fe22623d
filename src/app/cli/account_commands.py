"""`latchboard account` and `latchboard user`: an operator's commands for accounts and their users."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.stdout_console import stdout_console
from domain.kernel.caller import Role

accounts = typer.Typer(help="Manage the accounts of this installation.", no_args_is_help=True)
users = typer.Typer(help="Manage the users of an account.", no_args_is_help=True)

Email = Annotated[str, typer.Option(help="Email address of the user.")]
Password = Annotated[
    str,
    typer.Option(
        prompt=True, hide_input=True, confirmation_prompt=True, envvar="LATCHBOARD_NEW_PASSWORD", help="8 to 256 characters."
    ),
]


@accounts.command("create")
def account_create(name: Annotated[str, typer.Option(help="Name of the account.")], email: Email, password: Password) -> None:
    """Create an account with an Owner."""
    from app.cli.account_command_handlers import create_account, run_as_operator

    account_id = run_as_operator(lambda operator: create_account(operator, name, email, password))
    stdout_console.print(f"{account_id}  {name}: {email} is its Owner.")


@accounts.command("list")
def account_list() -> None:
    """List all accounts."""
    from app.cli.account_command_handlers import run_as_operator

    for account in run_as_operator(lambda operator: operator.list_accounts()):
        stdout_console.print(f"{account.account_id}  {account.name}")


@accounts.command("reset-second-factor")
def account_reset_second_factor(email: Email) -> None:
    """Remove the second factor of a user who has lost it. All sessions of the user end."""
    from app.cli.account_command_handlers import run_as_operator

    run_as_operator(lambda operator: operator.reset_second_factor(email))
    stdout_console.print(f"{email} has no second factor any more; all sessions have ended.")


@accounts.command("confirm-email")
def account_confirm_email(email: Email) -> None:
    """Confirm that a user's address is theirs, so that the identity provider may sign them in."""
    from app.cli.account_command_handlers import run_as_operator

    run_as_operator(lambda operator: operator.confirm_email(email))
    stdout_console.print(f"The address {email} is confirmed.")


@users.command("add")
def user_add(
    email: Email,
    password: Password,
    role: Annotated[Role, typer.Option(help="Role of the user.")] = Role.MEMBER,
    account: Annotated[str | None, typer.Option(help="Account id; needed only with more than one account.")] = None,
) -> None:
    """Add a user to an account."""
    from app.cli.account_command_handlers import add_user, run_as_operator

    run_as_operator(lambda operator: add_user(operator, account, email, password, role))
    stdout_console.print(f"Added {email} as {role}.")


@users.command("password")
def user_password(email: Email, password: Password) -> None:
    """Set a new password for a user. All sessions of the user end."""
    from app.cli.account_command_handlers import run_as_operator

    run_as_operator(lambda operator: operator.set_password(email, password))
    stdout_console.print(f"{email} has a new password; all sessions have ended.")
