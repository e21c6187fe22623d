"""`latchboard account` and `latchboard user`: an operator's commands for accounts and their users."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from app.cli.command_support import load_settings_or_exit, run_async
from domain.kernel.caller import Role

accounts = typer.Typer(help="Manage the accounts of this installation.", no_args_is_help=True)
users = typer.Typer(help="Manage the users of an account.", no_args_is_help=True)

stdout_console = Console(highlight=False, soft_wrap=True)

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
    from app.cli.account_actions import create_account

    account_id = run_async(create_account(load_settings_or_exit(), name, email, password))
    stdout_console.print(f"{account_id}  {name}: {email} is its Owner.")


@accounts.command("list")
def account_list() -> None:
    """List all accounts."""
    from app.cli.account_actions import list_accounts

    for account_id, name in run_async(list_accounts(load_settings_or_exit())):
        stdout_console.print(f"{account_id}  {name}")


@accounts.command("reset-second-factor")
def account_reset_second_factor(email: Email) -> None:
    """Remove the second factor of a user who has lost it. All sessions of the user end."""
    from app.cli.account_actions import reset_second_factor

    run_async(reset_second_factor(load_settings_or_exit(), email))
    stdout_console.print(f"{email} has no second factor any more; all sessions have ended.")


@accounts.command("confirm-email")
def account_confirm_email(email: Email) -> None:
    """Confirm that a user's address is theirs, so that the identity provider may sign them in."""
    from app.cli.account_actions import confirm_email

    run_async(confirm_email(load_settings_or_exit(), email))
    stdout_console.print(f"The address {email} is confirmed.")


@users.command("add")
def user_add(
    email: Email,
    password: Password,
    role: Annotated[Role, typer.Option(help="Role of the user.")] = Role.MEMBER,
    account: Annotated[str | None, typer.Option(help="Account id; needed only with more than one account.")] = None,
) -> None:
    """Add a user to an account."""
    from app.cli.account_actions import add_user

    run_async(add_user(load_settings_or_exit(), account, email, password, role))
    stdout_console.print(f"Added {email} as {role}.")


@users.command("password")
def user_password(email: Email, password: Password) -> None:
    """Set a new password for a user. All sessions of the user end."""
    from app.cli.account_actions import set_password

    run_async(set_password(load_settings_or_exit(), email, password))
    stdout_console.print(f"{email} has a new password; all sessions have ended.")
