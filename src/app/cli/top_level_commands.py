"""The command line: `latchboard serve`, from `service_commands.py`, and the commands of an operator.

Exit codes: 0 for success or a requested stop, 2 for wrong settings or usage, 1 for any other error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from app.cli.account_commands import accounts, users
from app.cli.api_documents import asyncapi, openapi
from app.cli.audit_commands import audit
from app.cli.broker_config import broker_config
from app.cli.command_support import EXIT_FAILURE, load_settings_or_exit, our_errors_exit, run_async
from app.cli.fleet_file_commands import apply, export, plan
from app.cli.ingest_dead_letter_commands import deadletters
from app.cli.secret_key_commands import keys
from app.cli.service_commands import app
from app.cli.simulate import simulate
from app.cli.stdout_console import stdout_console
from app.cli.tls_certificates import tls
from app.config.settings import setting_sources, unknown_variable_warnings
from app.runtime import logging

__all__ = ["app"]

app.add_typer(accounts, name="account")
app.add_typer(users, name="user")
app.add_typer(keys, name="keys")
app.add_typer(audit, name="audit")
app.add_typer(deadletters, name="deadletters")
app.add_typer(tls, name="tls")
app.add_typer(broker_config, name="broker-config")
for command in (simulate, openapi, asyncapi, plan, apply, export):
    app.command()(command)


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

    with our_errors_exit():
        result = create_backup(load_settings_or_exit(), folder)
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

    with our_errors_exit():
        stdout_console.print(check_readiness(load_settings_or_exit()), markup=False)


@app.command()
def compact() -> None:
    """Give the space of deleted rows back to the file system. While the service runs it releases only unused pages."""
    from app.cli.compact_database import compact as compact_database

    with our_errors_exit():
        result = compact_database(load_settings_or_exit())
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
