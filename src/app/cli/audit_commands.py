"""`latchboard audit`: exports the event log as proof, and verifies exports.

Exit codes: 0, verified or done; 1, not proven or another error; 2, wrong usage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from app.cli.command_support import EXIT_FAILURE, EXIT_USAGE, exit_with, load_settings_or_exit, run_async
from app.cli.stdout_console import stdout_console
from domain.audit.verify import AuditVerificationError, AuditVerificationReport, AuditVerifier

audit = typer.Typer(help="The event log as proof: seal, export, verify.", no_args_is_help=True)

Account = Annotated[str | None, typer.Option(help="Account id from `account list`. Not needed if there is only one account.")]


@audit.command("public-key")
def audit_public_key() -> None:
    """Show the public keys that verify seals, newest first. Give the newest to your auditor by another way than the export."""
    from app.cli.audit_command_handlers import list_public_keys

    for key_id, public_key in list_public_keys(load_settings_or_exit()):
        stdout_console.print(f"{public_key}  {key_id}")


@audit.command("seal")
def audit_seal() -> None:
    """Seal the event log now. The service does it every hour."""
    from app.cli.audit_command_handlers import seal_log

    stdout_console.print(f"Accounts sealed: {run_async(seal_log(load_settings_or_exit()))}.")


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
    from app.cli.audit_command_handlers import export_log

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
    secret: Annotated[
        str | None,
        typer.Option(
            envvar="LATCHBOARD_AUDIT_STREAM_SECRET", help="whsec_…: sign HTTP batches as webhooks are. Prefer the variable."
        ),
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Trust these certificates, PEM, instead of the system's.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything is delivered.")] = False,
) -> None:
    """Send an account's event log, and what is new in it, to syslog or HTTP until SIGTERM. The service may run meanwhile."""
    from app.cli.audit_stream import AuditStreamOptions, stream_log

    run_async(stream_log(load_settings_or_exit(), AuditStreamOptions(target, cursor, account, secret, ca_file, once)))


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
        stdout_console.print(line, markup=False)


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
    if report.selection is None:
        yield f"{shown}, the complete log."
    else:
        chosen = ", ".join(f"{name} {value}" for name, value in report.selection.items() if value is not None)
        yield f"{shown}, an excerpt ({chosen}); {report.elided} records beside them are not shown."
    if report.anchor is not None:
        yield f"It begins after seal {report.anchor} of {_time(report.anchor_ms)}; nothing is said of what was before."
    if report.unsealed:
        yield f"The last {report.unsealed} records are not sealed yet: they are linked, but not signed."
    yield f"The newest seal, of {_time(report.last_sealed_ms)}, is {report.last_seal}:{report.last_seal_hash}"
    yield "Remember it: the next export must contain it (--expect-seal)."


def _time(at_ms: int | None) -> str:
    return datetime.fromtimestamp((at_ms or 0) / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
