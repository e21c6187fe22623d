"""The command line: `latchboard serve`, and the commands of an operator.

Exit codes: 0 for success or a requested stop, 2 for wrong settings or usage, 1 for any other error.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console
from rich.table import Table

from app.cli.account_commands import accounts, users
from app.cli.api_documents import asyncapi, openapi
from app.cli.audit_commands import audit
from app.cli.broker_config import broker_config
from app.cli.command_support import EXIT_FAILURE, exit_with, load_settings_or_exit, run_async
from app.cli.dead_letter_commands import deadletters
from app.cli.fleet_commands import apply, export, plan
from app.cli.secret_key_commands import keys
from app.cli.simulate import simulate
from app.cli.tls_certificates import tls
from app.config.settings import Settings, setting_sources, unknown_variable_warnings
from app.runtime import logging
from app.runtime.startup_errors import PortInUseError, StartupError
from app.version import VERSION
from domain.kernel.errors import Unavailable

app = typer.Typer(
    name="latchboard",
    help="Control plane for relay devices: who may switch what, when, and with whose approval.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(accounts, name="account")
app.add_typer(users, name="user")
app.add_typer(keys, name="keys")
app.add_typer(audit, name="audit")
app.add_typer(deadletters, name="deadletters")
app.add_typer(tls, name="tls")
app.add_typer(broker_config, name="broker-config")

stdout_console = Console(highlight=False, soft_wrap=True)


def _print_version(show: bool) -> None:
    if show:
        stdout_console.print(f"latchboard {VERSION}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Control plane for relay devices: who may switch what, when, and with whose approval."""


@app.command()
def serve(
    workers: Annotated[
        int | None, typer.Option(help="Processes that share the HTTP port; needs PostgreSQL. Default: LATCHBOARD_WORKERS, or 1.")
    ] = None,
) -> None:
    """Run the service until Ctrl-C or SIGTERM."""
    _run_service(load_settings_or_exit(**({} if workers is None else {"workers": workers})), demo=False)


@app.command()
def demo() -> None:
    """Run the service with ten simulated devices in an account to look at, in a separate data directory."""
    settings = load_settings_or_exit()
    changes: dict[str, Any] = {"webhook_allow_private": True, "workers": 1}
    if "data_dir" not in settings.model_fields_set:
        run_async(_create_data_dir(settings.data_dir))
        changes["data_dir"] = settings.data_dir / "demo"
    _run_service(settings.model_copy(update=changes), demo=True)


app.command()(simulate)


app.command()(openapi)
app.command()(asyncapi)
app.command()(plan)
app.command()(apply)
app.command()(export)


@app.command()
def config() -> None:
    """Show all settings, their sources and values; secrets are masked."""
    settings = load_settings_or_exit()
    sources = setting_sources()
    for name, value in settings.masked_values().items():
        stdout_console.print(f"{name:<36}{sources[name]:<17}{value or '–'}", markup=False)
    for message in unknown_variable_warnings():
        stdout_console.print(message)


@app.command()
def backup(folder: Annotated[Path, typer.Argument(help="A new or empty directory.", metavar="DIRECTORY")]) -> None:
    """Copy the SQLite database and its secret keys. The service may run meanwhile. The copy is a data directory."""
    from app.cli.backup import create_backup

    try:
        result = create_backup(load_settings_or_exit(), folder)
    except StartupError as error:
        exit_with(str(error), EXIT_FAILURE)
    keys = "latchboard.db and secret_keys" if result.includes_keys else "latchboard.db; keep LATCHBOARD_SECRET_KEYS with it"
    stdout_console.print(
        f"{result.folder}: {keys}, {result.size_bytes / 1_000_000:.1f} MB. To restore it, start on a copy of this directory."
    )


@app.command("move-to")
def move_to(
    url: Annotated[str, typer.Argument(help="Empty database: postgresql+asyncpg://user:password@host/name", metavar="URL")],
) -> None:
    """Move this installation from SQLite to PostgreSQL. Stop the service first. Run the command again if it was interrupted."""
    from app.cli.move_database import move_installation

    result, old = run_async(move_installation(load_settings_or_exit(), url, stdout_console))
    stdout_console.print(
        f"{result.rows:,} rows of {result.tables} tables were copied and compared. The old database is now {old}. Set "
        "LATCHBOARD_DATABASE_URL to the new one, keep the data directory with its secret_keys, and start the service.",
        markup=False,
    )


@app.command()
def mcp(
    key: Annotated[
        str, typer.Option(envvar="LATCHBOARD_API_KEY", help="API key that the agent acts as; better in the variable.")
    ],
    url: Annotated[
        str | None, typer.Option(help="URL of the service; default: the address in this installation's settings.")
    ] = None,
) -> None:
    """Serve the Model Context Protocol on standard input and output: an AI agent acts as one API key."""
    from app.cli.mcp_stdio import run_stdio_server
    from app.cli.startup_banner import http_url

    run_async(run_stdio_server(url or http_url(load_settings_or_exit()), key))


@app.command()
def health() -> None:
    """Ask the running service whether it is ready. Exit code 0: it is; 1: it is not, with the reason."""
    from app.cli.health_check import check_readiness

    try:
        stdout_console.print(check_readiness(load_settings_or_exit()), markup=False)
    except StartupError as error:
        exit_with(str(error), EXIT_FAILURE)


@app.command()
def compact() -> None:
    """Give the space of deleted rows back to the file system. While the service runs it releases only unused pages."""
    from app.cli.compact_database import compact as compact_database

    try:
        result = compact_database(load_settings_or_exit())
    except (StartupError, Unavailable) as error:
        exit_with(str(error), EXIT_FAILURE)
    how = "while the service runs" if result.is_online else "rewritten"
    sizes = f"{result.before / 1_000_000:.1f} MB before, {result.after / 1_000_000:.1f} MB now"
    stdout_console.print(f"{result.path}: {sizes} ({how}).")


@app.command()
def doctor() -> None:
    """Check everything that a start needs: data directory, keys, database, engine, broker, ports, clock."""
    from app.cli.doctor import run_checks

    logging.configure_logging("console", "ERROR")
    findings = run_async(run_checks(load_settings_or_exit()))
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        mark = "[yellow]!![/]" if finding.is_warning else "[green]ok[/]" if finding.passed else "[red]no[/]"
        table.add_row(mark, finding.name, finding.message)
    stdout_console.print(table)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(EXIT_FAILURE)


def _run_service(settings: Settings, *, demo: bool) -> None:
    logging.configure_logging(settings.log_format, settings.log_level)
    for message in unknown_variable_warnings():
        structlog.get_logger("settings").warning(f"ignored: {message}")
    if settings.workers > 1:
        _exit_process(_run_workers(settings))
    from app.cli.serve import serve as run
    from app.wiring.adapters import with_free_ports

    try:
        code = run_async(run(with_free_ports(settings), demo=demo))
    except typer.Exit as exit_request:
        code = exit_request.exit_code
    _exit_process(code)


def _run_workers(settings: Settings) -> int:
    from app.cli.worker_processes import run_workers

    try:
        return run_workers(settings)
    except PortInUseError as error:
        exit_with(str(error), EXIT_FAILURE)


def _exit_process(code: int) -> NoReturn:
    """Exit even if a thread is left, for example of a database that did not close in time: a normal exit would wait for it
    forever."""
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if not left:
        raise typer.Exit(code)
    structlog.get_logger("service").debug("threads are still running", threads=left)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _create_data_dir(data_dir: Path) -> None:
    """The demo uses a directory below the data directory; this creates the parent with mode 0700 too."""
    from app.wiring.adapters import prepare_data_dir

    prepare_data_dir(data_dir)
