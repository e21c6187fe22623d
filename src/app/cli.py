"""The command line: `latchboard serve` and what an operator needs around it.

Exit codes: 0 it was done or stopped as asked, 2 wrong settings or usage, 1 anything else.
"""

from __future__ import annotations

import gc
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

from app import logs
from app.cli_keys import keys
from app.fleet.command import Screen, simulate
from app.fleet.order import Order
from app.refused import StartRefused
from app.running import FAILED, GC_THRESHOLDS, do, fail, settings
from app.settings import Settings, origins, unknown_names
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

out = Console(highlight=False, soft_wrap=True)

Email = Annotated[str, typer.Option(help="The email address to sign in with.")]
Password = Annotated[
    str,
    typer.Option(
        prompt=True, hide_input=True, confirmation_prompt=True, envvar="LATCHBOARD_NEW_PASSWORD", help="8 to 256 characters."
    ),
]


def _say_version(asked: bool) -> None:
    if asked:
        out.print(f"latchboard {VERSION}")
        raise typer.Exit


@app.callback()
def of_the_program(
    version: Annotated[bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Control plane for relay devices: who may switch what, when, and with whose approval."""


@app.command()
def serve() -> None:
    """Run the service until Ctrl-C or SIGTERM."""
    _serve(settings(), demo=False)


@app.command()
def demo() -> None:
    """Run the service with ten simulated devices, two rules and a schedule, in a data directory of its own."""
    chosen = settings()
    changes: dict[str, Any] = {"webhook_allow_private": True}
    if "data_dir" not in chosen.model_fields_set:
        do(_closed(chosen.data_dir))
        changes["data_dir"] = chosen.data_dir / "demo"
    _serve(chosen.model_copy(update=changes), demo=True)


@accounts.command("create")
def account_create(name: Annotated[str, typer.Option(help="Name of the account.")], email: Email, password: Password) -> None:
    """Make an account with its Owner."""
    from app.operator import create_account

    account_id = do(create_account(settings(), name, email, password))
    out.print(f"{account_id}  {name}: {email} is its Owner.")


@accounts.command("list")
def account_list() -> None:
    """Show all accounts."""
    from app.operator import list_accounts

    for account_id, name in do(list_accounts(settings())):
        out.print(f"{account_id}  {name}")


@users.command("add")
def user_add(
    email: Email,
    password: Password,
    role: Annotated[Role, typer.Option(help="What the person may do.")] = Role.MEMBER,
    account: Annotated[str | None, typer.Option(help="Account id; not needed while there is only one.")] = None,
) -> None:
    """Add a person to an account."""
    from app.operator import add_user

    do(add_user(settings(), account, email, password, role))
    out.print(f"{email} was added as {role}.")


@users.command("password")
def user_password(email: Email, password: Password) -> None:
    """Set a person's password anew; all their sessions end."""
    from app.operator import set_password

    do(set_password(settings(), email, password))
    out.print(f"{email} has a new password; all sessions have ended.")


app.command()(simulate)


def play_fleet(order: Order) -> None:
    """What `latchboard simulate` has been asked for."""
    from app.fleet.order import SimulationRefused
    from app.fleet.play import play
    from app.operator import owner_token

    logs.configure(None, "WARNING")
    chosen = settings()
    try:
        for line in do(play(order, Screen(out), lambda: owner_token(chosen))):
            out.print(line)
    except SimulationRefused as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        out.print("stopped")


@app.command()
def openapi(
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print the OpenAPI 3.1 document."""
    text = json.dumps(do(_document()), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command()
def config() -> None:
    """Show the settings in force, secrets masked."""
    chosen = settings()
    said = origins()
    for name, value in chosen.masked().items():
        out.print(f"{name:<36}{said[name]:<17}{value or '–'}", markup=False)
    for strange in unknown_names():
        out.print(strange)


@app.command()
def backup(folder: Annotated[Path, typer.Argument(help="A directory that is new or empty.", metavar="DIRECTORY")]) -> None:
    """Copy the SQLite database and its secret keys, also while the service runs. The copy is a data directory to start on."""
    from app.backup import back_up

    try:
        made = back_up(settings(), folder)
    except StartRefused as refused:
        fail(str(refused), FAILED)
    keys = "latchboard.db and secret_keys" if made.with_keys else "latchboard.db; keep LATCHBOARD_SECRET_KEYS with it"
    out.print(f"{made.folder}: {keys}, {made.size / 1_000_000:.1f} MB. To restore, start on a copy of it as data directory.")


@app.command()
def doctor() -> None:
    """Check everything a start needs: data directory, keys, database, engine, broker, ports, clock."""
    from app.doctor import examine

    logs.configure("console", "ERROR")
    findings = do(examine(settings()))
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        table.add_row("[green]ok[/]" if finding.good else "[red]no[/]", finding.what, finding.said)
    out.print(table)
    if not all(finding.good for finding in findings):
        raise typer.Exit(FAILED)


def _serve(chosen: Settings, *, demo: bool) -> None:
    from app.outside import with_free_ports
    from app.service import serve as run

    logs.configure(chosen.log_format, chosen.log_level)
    for strange in unknown_names():
        structlog.get_logger("settings").warning(f"ignored: {strange}")
    try:
        code = do(run(with_free_ports(chosen), demo=demo))
    except typer.Exit as refused:
        code = refused.exit_code
    _end(code)


def _end(code: int) -> NoReturn:
    """Also when a thread is left over (of a database that did not close in time): a plain exit would wait for it for ever."""
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if not left:
        raise typer.Exit(code)
    structlog.get_logger("service").debug("threads are left over", threads=left)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _closed(data_dir: Path) -> None:
    """Made with the mode of every data directory, also where only a directory below it is used."""
    from app.outside import prepare_data_dir

    prepare_data_dir(data_dir)


async def _document() -> dict[str, Any]:
    """Of a service that is constructed and never opened; its data directory goes away again."""
    from adapters.http.openapi import build_document
    from app.compose import compose

    with tempfile.TemporaryDirectory() as folder:
        chosen = Settings.model_construct(data_dir=Path(folder), engine="reference", broker="mqtt://127.0.0.1")
        program = compose(chosen)
        try:
            document: dict[str, Any] = json.loads(json.dumps(build_document(program.http, version=VERSION)))
            return document
        finally:
            await program.outside.courier.close()
            program.outside.hasher.close()


def main() -> None:
    gc.set_threshold(*GC_THRESHOLDS)  # a fifth of a start was spent looking for garbage among what is imported and stays
    app()
