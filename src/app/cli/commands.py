"""The commands of an operator. `serve` and `demo` are in `service_commands.py`.

What a command needs beside the settings is imported when it runs. Exit codes: 0 for success or a requested stop, 2 for wrong
settings or usage, 1 for any other error; `audit verify` ends with 1 for what is not proven, and `plan --check` for a difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from app.cli.clock import clock
from app.cli.dead_letters import deadletters
from app.cli.documents import asyncapi, broker_config, openapi
from app.cli.service_commands import app
from app.cli.simulate import simulate
from app.cli.support import (
    EXIT_FAILURE,
    EXIT_USAGE,
    exit_with,
    find_secret,
    load_settings_or_exit,
    our_errors_exit,
    run_async,
    secret_or_exit,
    stdout_console,
)
from app.cli.tls import tls
from app.config.settings import setting_sources, unknown_variable_warnings
from app.runtime import logging
from domain.audit.verify import AuditVerificationError, AuditVerificationReport, AuditVerifier
from domain.kernel.caller import Role

__all__ = ["app"]

accounts = typer.Typer(help="Manage the accounts of this installation.", no_args_is_help=True)
users = typer.Typer(help="Manage the users of an account.", no_args_is_help=True)
audit = typer.Typer(help="The event log as proof: seal, export, verify.", no_args_is_help=True)
keys = typer.Typer(help="The secret keys that sign tokens and seal stored secrets.", no_args_is_help=True)
app.add_typer(accounts, name="account")
app.add_typer(users, name="user")
app.add_typer(keys, name="keys")
app.add_typer(audit, name="audit")
app.add_typer(clock, name="clock")
app.add_typer(deadletters, name="deadletters")
app.add_typer(tls, name="tls")
app.add_typer(broker_config, name="broker-config")
for command in (simulate, openapi, asyncapi):
    app.command()(command)

Email = Annotated[str, typer.Option(help="Email address of the user.")]
Account = Annotated[str | None, typer.Option(help="Account id from `account list`. Not needed if there is only one account.")]
FilePath = Annotated[
    Path, typer.Argument(help="The fleet's file, YAML or JSON; - for standard input.", allow_dash=True, metavar="FILE")
]
Prune = Annotated[bool, typer.Option("--prune", help="Also delete what the sections of the file do not name.")]
Url = Annotated[
    str | None,
    typer.Option(envvar="LATCHBOARD_URL", help="URL of the service; default: the address in this installation's settings."),
]


# The account of a running service as a file. These call the service at LATCHBOARD_URL with the token of a service session.


@app.command()
def plan(
    file: FilePath,
    url: Url = None,
    prune: Prune = False,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 if anything would change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The service's answer as JSON.")] = False,
) -> None:
    """Show what `apply` would change. Changes nothing."""
    from app.cli.fleet import plan_file

    plan_file(file, url, prune=prune, check=check, as_json=as_json)


@app.command()
def apply(
    file: FilePath,
    url: Url = None,
    prune: Prune = False,
    secrets: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Make credentials for devices that have none, and append these and the secrets of new API keys and webhooks to "
            "FILE (mode 0600, a line of JSON each); - for standard output.",
        ),
    ] = None,
    reissue: Annotated[
        bool, typer.Option("--reissue-unused", help="Also replace credentials that no device has connected with yet.")
    ] = False,
) -> None:
    """Make the account what the file says: all of it, or nothing."""
    from app.cli.fleet import apply_file

    apply_file(file, url, prune=prune, secrets=secrets, reissue=reissue)


@app.command()
def export(
    file: Annotated[Path | None, typer.Argument(help="File to write; default: standard output.", metavar="[FILE]")] = None,
    url: Url = None,
    project: Annotated[
        str | None, typer.Option(help="Only this project: its devices and groups, and the grants on them.")
    ] = None,
    variables: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the URLs of webhooks to FILE as NAME=VALUE (mode 0600).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write the account as a file that `plan` finds no change in. Secrets are not in it, and URLs of webhooks are variables."""
    from app.cli.fleet import export_file

    export_file(file, url, project=project, variables=variables, force=force)


# The installation


@app.command()
def config() -> None:
    """Show all settings, their sources and values; secrets are masked."""
    settings = load_settings_or_exit()
    sources = setting_sources()
    for name, value in settings.masked_values().items():
        stdout_console().print(f"{name:<36}{sources[name]:<17}{value or '–'}", markup=False)
    for message in unknown_variable_warnings():
        stdout_console().print(message)


@app.command()
def backup(folder: Annotated[Path, typer.Argument(help="A new or empty directory.", metavar="DIRECTORY")]) -> None:
    """Copy the SQLite database and its secret keys. The service may run meanwhile. The copy is a data directory."""
    from app.cli.database import create_backup

    settings = load_settings_or_exit()
    with our_errors_exit():
        size_bytes = create_backup(settings, folder)
    copied = "latchboard.db and secret_keys"
    if settings.secret_keys is not None:
        copied = "latchboard.db; keep LATCHBOARD_SECRET_KEYS with it"
    stdout_console().print(f"{folder}: {copied}, {size_bytes / 1_000_000:.1f} MB. To restore it: `latchboard restore {folder}`.")


@app.command()
def restore(
    backup: Annotated[
        Path | None, typer.Argument(help="What `latchboard backup` wrote.", metavar="BACKUP", show_default=False)
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="The database is restored already, for example by pg_restore.")
    ] = False,
    keep_sessions: Annotated[bool, typer.Option("--keep-sessions", help="Do not sign everybody out.")] = False,
) -> None:
    """Put a backup in place of the database, or finish a restore by other means. Stop the service first."""
    from app.cli.restore import describe
    from app.cli.restore import restore as restore_database

    if (backup is None) is not in_place:
        exit_with("Name a backup, or give --in-place for a database that is restored already.", EXIT_USAGE)
    settings = load_settings_or_exit()
    restored = run_async(restore_database(settings, backup, keep_sessions=keep_sessions))
    stdout_console().print(describe(restored, settings, keep_sessions=keep_sessions), markup=False, soft_wrap=True)


@app.command("move-to")
def move_to(
    url: Annotated[
        str | None, typer.Argument(help="Empty database: postgresql+asyncpg://user:password@host/name", metavar="URL")
    ] = None,
    abandon: Annotated[bool, typer.Option("--abandon", help="Stay with SQLite: the service may start on it again.")] = False,
) -> None:
    """Move this installation from SQLite to PostgreSQL. Stop the service first. Run the command again if it was interrupted."""
    from app.cli.database import abandon as abandon_move
    from app.cli.database import move_installation

    if abandon is (url is not None):
        exit_with("Give the URL of an empty PostgreSQL database, or --abandon.", EXIT_USAGE)
    if url is None:
        with our_errors_exit():
            stayed = abandon_move(load_settings_or_exit())
        stdout_console().print(
            f"The move of {stayed} is abandoned; the service may start on it. Drop the other database.", markup=False
        )
        return
    result, old = run_async(move_installation(load_settings_or_exit(), url, stdout_console()))
    stdout_console().print(
        f"{result.rows:,} rows of {result.tables} tables were copied and compared. The old database is now {old}. Set "
        "LATCHBOARD_DATABASE_URL to the new one, keep the data directory with its secret_keys, and start the service.",
        markup=False,
    )


@app.command()
def mcp(
    url: Annotated[
        str | None, typer.Option(help="URL of the service; default: the address in this installation's settings.")
    ] = None,
) -> None:
    """Serve the Model Context Protocol on standard input and output: an AI agent acts as the API key in LATCHBOARD_API_KEY."""
    from app.cli.mcp_stdio import run_stdio_server
    from app.cli.serve import http_url

    run_async(run_stdio_server(url or http_url(load_settings_or_exit()), secret_or_exit("LATCHBOARD_API_KEY")))


@app.command()
def health() -> None:
    """Ask the running service whether it is ready. Exit code 0: it is; 1: it is not, with the reason."""
    from app.cli.doctor import check_readiness

    with our_errors_exit():
        stdout_console().print(check_readiness(load_settings_or_exit()), markup=False)


@app.command()
def compact() -> None:
    """Give the space of deleted rows back to the file system. While the service runs it releases only unused pages."""
    from app.cli.database import compact as compact_database

    with our_errors_exit():
        result = compact_database(load_settings_or_exit())
    how = "while the service runs" if result.is_online else "rewritten"
    sizes = f"{result.before / 1_000_000:.1f} MB before, {result.after / 1_000_000:.1f} MB now"
    stdout_console().print(f"{result.path}: {sizes} ({how}).")


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
    stdout_console().print(table)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(EXIT_FAILURE)


# Accounts and their users


def _new_password() -> str:
    """Of 8 to 256 characters; the service checks it."""
    return secret_or_exit("LATCHBOARD_NEW_PASSWORD", prompt="Password", confirm=True)


@accounts.command("create")
def account_create(name: Annotated[str, typer.Option(help="Name of the account.")], email: Email) -> None:
    """Create an account with an Owner. The password comes from LATCHBOARD_NEW_PASSWORD, or is asked for."""
    from app.cli.operator import create_account, run_as_operator

    password = _new_password()
    account_id = run_as_operator(lambda operator: create_account(operator, name, email, password))
    stdout_console().print(f"{account_id}  {name}: {email} is its Owner.")


@accounts.command("list")
def account_list() -> None:
    """List all accounts."""
    from app.cli.operator import run_as_operator

    for account in run_as_operator(lambda operator: operator.list_accounts()):
        stdout_console().print(f"{account.account_id}  {account.name}")


@accounts.command("reset-second-factor")
def account_reset_second_factor(email: Email) -> None:
    """Remove the second factor of a user who has lost it. All sessions of the user end."""
    from app.cli.operator import run_as_operator

    run_as_operator(lambda operator: operator.reset_second_factor(email))
    stdout_console().print(f"{email} has no second factor any more; all sessions have ended.")


@accounts.command("confirm-email")
def account_confirm_email(email: Email) -> None:
    """Confirm that a user's address is theirs, so that the identity provider may sign them in."""
    from app.cli.operator import run_as_operator

    run_as_operator(lambda operator: operator.confirm_email(email))
    stdout_console().print(f"The address {email} is confirmed.")


@users.command("add")
def user_add(
    email: Email,
    role: Annotated[Role, typer.Option(help="Role of the user.")] = Role.MEMBER,
    account: Annotated[str | None, typer.Option(help="Account id; needed only with more than one account.")] = None,
) -> None:
    """Add a user to an account. The password comes from LATCHBOARD_NEW_PASSWORD, or is asked for."""
    from app.cli.operator import add_user, run_as_operator

    password = _new_password()
    run_as_operator(lambda operator: add_user(operator, account, email, password, role))
    stdout_console().print(f"Added {email} as {role}.")


@users.command("password")
def user_password(email: Email) -> None:
    """Set a new password for a user, from LATCHBOARD_NEW_PASSWORD or as asked for. All sessions of the user end."""
    from app.cli.operator import run_as_operator

    password = _new_password()
    run_as_operator(lambda operator: operator.set_password(email, password))
    stdout_console().print(f"{email} has a new password; all sessions have ended.")


# The event log as proof


@audit.command("public-key")
def audit_public_key() -> None:
    """Show the public keys that verify seals, newest first. Give the newest to your auditor by another way than the export."""
    from app.cli.operator import list_public_keys

    for key_id, public_key in list_public_keys(load_settings_or_exit()):
        stdout_console().print(f"{public_key}  {key_id}")


@audit.command("seal")
def audit_seal() -> None:
    """Seal the event log now. The service does it every hour."""
    from app.cli.operator import seal_log

    stdout_console().print(f"Accounts sealed: {run_async(seal_log(load_settings_or_exit()))}.")


@audit.command("export")
def audit_export(
    account: Account = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: standard output. An existing file is kept.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only records at or after this time (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(help="Only records before this time (ISO 8601).")] = None,
    command: Annotated[
        str | None, typer.Option(help="Only the story of a command: the id of an execution or of an approval.")
    ] = None,
    after_seal: Annotated[int | None, typer.Option(min=0, help="Continue after this seal, the last one of an export.")] = None,
) -> None:
    """Export an account's event log as lines of JSON. The service may run meanwhile."""
    from app.cli.operator import export_log

    try:
        with sys.stdout if output is None else output.open("x", encoding="utf-8") as file:
            run_async(
                export_log(
                    load_settings_or_exit(), file, account, since=since, until=until, command=command, after_seal=after_seal
                )
            )
    except FileExistsError:
        exit_with(f"{output} exists. Name another file.", EXIT_USAGE)
    except OSError as error:
        exit_with(f"{output} cannot be written: {error.strerror or error}", EXIT_FAILURE)


@audit.command("stream")
def audit_stream(
    target: Annotated[
        str, typer.Argument(help="syslog+tls://HOST:PORT, syslog+tcp://HOST:PORT, syslog+udp://HOST:PORT or https://HOST/PATH.")
    ],
    cursor: Annotated[Path, typer.Option(help="File that keeps what was delivered. Without it the stream begins with the log.")],
    account: Account = None,
    ca_file: Annotated[Path | None, typer.Option(help="Trust these certificates, PEM, instead of the system's.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything is delivered.")] = False,
) -> None:
    """Send an account's event log, and what is new in it, to syslog or HTTP until SIGTERM. The service may run meanwhile. With
    LATCHBOARD_AUDIT_STREAM_SECRET (whsec_…) batches over HTTP are signed as webhooks are."""
    from app.cli.audit_stream import make_sink, stream_log

    settings = load_settings_or_exit()
    with our_errors_exit():
        sink = make_sink(target, find_secret("LATCHBOARD_AUDIT_STREAM_SECRET"), ca_file)
    run_async(stream_log(settings, sink, cursor, account, once=once))


@audit.command("verify")
def audit_verify(
    file: Annotated[Path, typer.Argument(help="An export; - for standard input.", allow_dash=True)],
    public_key: Annotated[
        list[str], typer.Option(help="From `audit public-key`; the key that signed the newest seal. May be repeated.")
    ],
    expect_seal: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER:HASH", help="A seal that the export must contain, from an earlier verification."),
    ] = None,
) -> None:
    """Verify an export. Needs only the file and the public key: no service, no database, no network."""
    from adapters.crypto.tokens import is_signed_by

    verifier = AuditVerifier(is_signed_by, [_public_key(each) for each in public_key], map(_seal, expect_seal or ()))
    try:
        report = verifier.verify(_lines(file))
    except AuditVerificationError as error:
        exit_with(f"NOT PROVEN. {error}.", EXIT_FAILURE)
    except OSError as error:
        exit_with(f"{file} cannot be read: {error.strerror or error}", EXIT_USAGE)
    for line in _summary(report):
        stdout_console().print(line, markup=False)


def _lines(file: Path) -> Iterator[str]:
    """What is not UTF-8 is left in the line, which then is not JSON."""
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as lines:
        for line in lines:
            yield line.decode("utf-8", "surrogateescape")


def _public_key(text: str) -> str:
    try:
        valid = len(bytes.fromhex(text)) == 32
    except ValueError:
        valid = False
    if not valid:
        exit_with("A public key is 64 hexadecimal digits, without its name. See: latchboard audit public-key", EXIT_USAGE)
    return text.lower()


def _seal(text: str) -> tuple[int, str]:
    number, _, hashed = text.partition(":")
    if not number.isdecimal() or len(hashed) != 64:
        exit_with(f"--expect-seal {text}: give a number and a hash, as `audit verify` shows them.", EXIT_USAGE)
    return int(number), hashed.lower()


def _summary(report: AuditVerificationReport) -> Iterator[str]:
    shown = f"VERIFIED. Account {report.account_id}: {report.records} records"
    if report.is_stream:
        again = f"; {report.repeated} lines came more than once" if report.repeated else ""
        yield f"{shown}, what a receiver has of the stream{again}. None is missing in between; what came later is not known."
    elif report.selection is None:
        yield f"{shown}, the complete log."
    else:
        chosen = ", ".join(f"{name} {_chosen(value)}" for name, value in report.selection.items() if value is not None)
        yield f"{shown}, an excerpt, as the service has chosen and signed it: {chosen}."
        yield f"{report.hidden} records between them are hidden, and {report.left_out} of other times are left out."
    if report.anchor is not None:
        yield f"It begins after seal {report.anchor} of {_time(report.anchor_ms)}; nothing is said of what was before."
    if report.unproven:
        yield f"{report.unproven} records before that seal are not proven: the beginning of their chain is not in the file."
    if report.unsealed:
        yield f"The last {report.unsealed} records are not sealed yet: they are linked, but not signed."
    yield f"The newest seal, of {_time(report.last_sealed_ms)}, is {report.last_seal}:{report.last_seal_hash}"
    yield "Remember it: the next export must contain it (--expect-seal)."


def _chosen(value: object) -> str:
    return _time(value) if isinstance(value, int) else str(value)


def _time(at_ms: int | None) -> str:
    return datetime.fromtimestamp((at_ms or 0) / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# The secret keys


@keys.command("list")
def keys_list() -> None:
    """List the keys, newest first, and how many stored secrets each one seals."""
    from app.cli.key_rotation import list_key_usage

    settings = load_settings_or_exit()
    table = Table("Key", "Seals", "", box=None, pad_edge=False)
    for number, (key_id, sealed_secrets) in enumerate(run_async(list_key_usage(settings))):
        table.add_row(key_id, str(sealed_secrets), "" if number else "newest")
    stdout_console().print(table)


@keys.command("rotate")
def keys_rotate(
    no_new_key: Annotated[bool, typer.Option("--no-new-key", help="Seal everything with the newest key and add none.")] = False,
) -> None:
    """Add a new key and seal every stored secret with it. The service may run meanwhile; after an interruption, run it again."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from app.cli.key_rotation import rotate_keys

    settings = load_settings_or_exit()
    columns = (TextColumn("sealing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task("secrets", total=None)
        done = run_async(
            rotate_keys(settings, new_key=not no_new_key, progress=lambda seen, of: bar.update(task, completed=seen, total=of))
        )
    if done.created_key:
        stdout_console().print(f"{done.newest_key_id} is the new key.")
    elif not no_new_key:
        stdout_console().print(f"Finished an earlier rotation to {done.newest_key_id}; no other key was added.")
    stdout_console().print(f"{done.report.rekeyed} of {done.report.checked} secrets were sealed again.")
    if done.older_key_ids:
        named = ", ".join(done.older_key_ids)
        stdout_console().print(
            f"Older keys, kept for tokens and stored responses: {named}. After 25 hours, run: latchboard keys retire"
        )
    if done.report.unreadable:
        named = ", ".join(done.report.unreadable[:10])
        exit_with(
            f"{len(done.report.unreadable)} secrets open with no key of the ring ({named}). Generate new ones.", EXIT_FAILURE
        )


@keys.command("retire")
def keys_retire() -> None:
    """Remove the older keys, once nothing needs them."""
    from app.cli.key_rotation import retire_keys

    removed = run_async(retire_keys(load_settings_or_exit()))
    stdout_console().print(f"Removed: {', '.join(removed)}." if removed else "There are no older keys.")
