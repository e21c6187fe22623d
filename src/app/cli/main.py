"""The command line: `latchboard serve` and what an operator needs around it.

Exit codes: 0 it was done or stopped as asked, 2 wrong settings or usage, 1 anything else.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console
from rich.table import Table

from app.cli.keys import keys
from app.cli.run import EXIT_FAILURE, exit_with, load_settings_or_exit, run_async
from app.config.settings import Settings, setting_sources, unknown_variable_warnings
from app.runtime import garbage_collector, logging
from app.runtime.errors import StartupError
from app.simulator.cli import simulate
from app.version import VERSION
from domain.kernel.caller import Role

app = typer.Typer(
    name="latchboard",
    help="Control plane for relay devices: who may switch what, when, and with whose approval.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
accounts = typer.Typer(help="Accounts of this installation.", no_args_is_help=True)
users = typer.Typer(help="People of an account.", no_args_is_help=True)
app.add_typer(accounts, name="account")
app.add_typer(users, name="user")
app.add_typer(keys, name="keys")

stdout_console = Console(highlight=False, soft_wrap=True)

Email = Annotated[str, typer.Option(help="The email address to sign in with.")]
Password = Annotated[
    str,
    typer.Option(
        prompt=True, hide_input=True, confirmation_prompt=True, envvar="LATCHBOARD_NEW_PASSWORD", help="8 to 256 characters."
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
        stdout_console.print(f"latchboard {VERSION}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Control plane for relay devices: who may switch what, when, and with whose approval."""


@app.command()
def serve() -> None:
    """Run the service until Ctrl-C or SIGTERM."""
    _run_service(load_settings_or_exit(), demo=False)


@app.command()
def demo() -> None:
    """Run the service with ten simulated devices, two rules and a schedule, in a data directory of its own."""
    chosen = load_settings_or_exit()
    changes: dict[str, Any] = {"webhook_allow_private": True}
    if "data_dir" not in chosen.model_fields_set:
        run_async(_create_data_dir(chosen.data_dir))
        changes["data_dir"] = chosen.data_dir / "demo"
    _run_service(chosen.model_copy(update=changes), demo=True)


@accounts.command("create")
def account_create(name: Annotated[str, typer.Option(help="Name of the account.")], email: Email, password: Password) -> None:
    """Make an account with its Owner."""
    from app.cli.accounts import create_account

    account_id = run_async(create_account(load_settings_or_exit(), name, email, password))
    stdout_console.print(f"{account_id}  {name}: {email} is its Owner.")


@accounts.command("list")
def account_list() -> None:
    """Show all accounts."""
    from app.cli.accounts import list_accounts

    for account_id, name in run_async(list_accounts(load_settings_or_exit())):
        stdout_console.print(f"{account_id}  {name}")


@users.command("add")
def user_add(
    email: Email,
    password: Password,
    role: Annotated[Role, typer.Option(help="What the person may do.")] = Role.MEMBER,
    account: Annotated[str | None, typer.Option(help="Account id; not needed while there is only one.")] = None,
) -> None:
    """Add a person to an account."""
    from app.cli.accounts import add_user

    run_async(add_user(load_settings_or_exit(), account, email, password, role))
    stdout_console.print(f"{email} was added as {role}.")


@users.command("password")
def user_password(email: Email, password: Password) -> None:
    """Set a person's password anew; all their sessions end."""
    from app.cli.accounts import set_password

    run_async(set_password(load_settings_or_exit(), email, password))
    stdout_console.print(f"{email} has a new password; all sessions have ended.")


app.command()(simulate)


@app.command()
def openapi(
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print the OpenAPI 3.1 document."""
    text = json.dumps(run_async(_build_openapi_document()), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command()
def config() -> None:
    """Show the settings in force, secrets masked."""
    chosen = load_settings_or_exit()
    said = setting_sources()
    for name, value in chosen.masked().items():
        stdout_console.print(f"{name:<36}{said[name]:<17}{value or '–'}", markup=False)
    for strange in unknown_variable_warnings():
        stdout_console.print(strange)


@app.command()
def backup(folder: Annotated[Path, typer.Argument(help="A directory that is new or empty.", metavar="DIRECTORY")]) -> None:
    """Copy the SQLite database and its secret keys, also while the service runs. The copy is a data directory to start on."""
    from app.cli.backup import create_backup

    try:
        made = create_backup(load_settings_or_exit(), folder)
    except StartupError as refused:
        exit_with(str(refused), EXIT_FAILURE)
    keys = "latchboard.db and secret_keys" if made.includes_keys else "latchboard.db; keep LATCHBOARD_SECRET_KEYS with it"
    stdout_console.print(
        f"{made.folder}: {keys}, {made.size_bytes / 1_000_000:.1f} MB. To restore, start on a copy of it as data directory."
    )


@app.command()
def doctor() -> None:
    """Check everything a start needs: data directory, keys, database, engine, broker, ports, clock."""
    from app.cli.doctor import run_checks

    logging.configure_logging("console", "ERROR")
    findings = run_async(run_checks(load_settings_or_exit()))
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        table.add_row("[green]ok[/]" if finding.passed else "[red]no[/]", finding.name, finding.message)
    stdout_console.print(table)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(EXIT_FAILURE)


def _run_service(chosen: Settings, *, demo: bool) -> None:
    from app.runtime.serve import serve as run
    from app.wiring.adapters import with_free_ports

    logging.configure_logging(chosen.log_format, chosen.log_level)
    for strange in unknown_variable_warnings():
        structlog.get_logger("settings").warning(f"ignored: {strange}")
    try:
        code = run_async(run(with_free_ports(chosen), demo=demo))
    except typer.Exit as refused:
        code = refused.exit_code
    _exit_process(code)


def _exit_process(code: int) -> NoReturn:
    """Also when a thread is left over (of a database that did not close in time): a plain exit would wait for it for ever."""
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if not left:
        raise typer.Exit(code)
    structlog.get_logger("service").debug("threads are left over", threads=left)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _create_data_dir(data_dir: Path) -> None:
    """Made with the mode of every data directory, also where only a directory below it is used."""
    from app.wiring.adapters import prepare_data_dir

    prepare_data_dir(data_dir)


async def _build_openapi_document() -> dict[str, Any]:
    """Of a service that is constructed and never opened; its data directory goes away again."""
    from adapters.http.openapi.document import build_document
    from app.wiring.compose import compose

    with tempfile.TemporaryDirectory() as folder:
        chosen = Settings.model_construct(data_dir=Path(folder), engine="reference", broker="mqtt://127.0.0.1")
        program = compose(chosen)
        try:
            document: dict[str, Any] = json.loads(json.dumps(build_document(program.http_app, version=VERSION)))
            return document
        finally:
            await program.adapters.courier.close()
            program.adapters.hasher.close()


def main() -> None:
    garbage_collector.relax()
    app()
