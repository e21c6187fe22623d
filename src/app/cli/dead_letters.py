"""`latchboard deadletters`: the messages from devices that the database refused. The service may run meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from adapters.storage.sql.repositories.device_state import SqlIngestDeadLetterRepository
from app.cli.operator import open_database
from app.cli.support import EXIT_FAILURE, EXIT_USAGE, Result, exit_with, load_settings_or_exit, run_async, stdout_console
from domain.ingest.ports import IngestDeadLetter
from domain.kernel.clock import to_iso
from domain.kernel.ids import DeviceId

deadletters = typer.Typer(help="Messages from devices that the database refused.", no_args_is_help=True)

LetterIds = Annotated[list[int] | None, typer.Argument(help="Ids from `deadletters list`.", metavar="[ID]...")]


@deadletters.command("list")
def deadletters_list(
    device: Annotated[str | None, typer.Option(help="Only those of this device id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, newest first.")] = 50,
) -> None:
    """List the messages that are set aside, newest first."""

    async def read(dead_letters: SqlIngestDeadLetterRepository) -> tuple[Sequence[IngestDeadLetter], int]:
        device_id = None if device is None else DeviceId(device)
        return await dead_letters.list(limit, device_id=device_id), await dead_letters.count()

    letters, count = _run(read)
    for each in letters:
        line = f"{each.letter_id:>6}  {each.state:<9}  {to_iso(each.arrived_ms)}  {_device_of(each)}  {each.kind}  "
        stdout_console().print(f"{line}{len(each.payload)} bytes  {each.reason}", markup=False)
    stdout_console().print(f"{len(letters)} of {count} dead letters.")


@deadletters.command("show")
def deadletters_show(
    letter_id: Annotated[int, typer.Argument(help="Id from `deadletters list`.", metavar="ID")],
    raw: Annotated[bool, typer.Option("--raw", help="Write only the bytes of the message to standard output.")] = False,
) -> None:
    """Show one message with its bytes and why it was refused."""
    found = _run(lambda dead_letters: dead_letters.find(letter_id))
    if found is None:
        exit_with(f"There is no dead letter {letter_id}. See `latchboard deadletters list`.", EXIT_FAILURE)
    if raw:
        sys.stdout.buffer.write(found.payload)
        return
    fields = {
        "id": found.letter_id,
        "state": found.state,
        "device": _device_of(found),
        "kind": found.kind,
        "arrived": to_iso(found.arrived_ms),
        "set aside": to_iso(found.created_ms),
        "reason": found.reason,
        "payload": _printable(found.payload),
    }
    for name, value in fields.items():
        stdout_console().print(f"{name:<10} {value}", markup=False)


@deadletters.command("replay")
def deadletters_replay(
    ids: LetterIds = None, every: Annotated[bool, typer.Option("--all", help="Replay every dead letter.")] = False
) -> None:
    """Mark messages for replay. The running service, or the next start, stores them as late messages and deletes them here."""
    chosen = _chosen(ids, every)
    count = _run(lambda dead_letters: dead_letters.mark_for_replay(chosen))
    stdout_console().print(f"{count} marked. The service replays them within seconds; those that fail again stay listed.")


@deadletters.command("purge")
def deadletters_purge(
    ids: LetterIds = None, every: Annotated[bool, typer.Option("--all", help="Delete every dead letter.")] = False
) -> None:
    """Delete messages for good."""
    chosen = _chosen(ids, every)
    count = _run(lambda dead_letters: dead_letters.delete(chosen))
    stdout_console().print(f"{count} deleted.")


def _run(action: Callable[[SqlIngestDeadLetterRepository], Awaitable[Result]]) -> Result:
    """In one transaction."""

    async def run() -> Result:
        async with open_database(load_settings_or_exit()) as uow, uow.write() as tx:
            return await action(tx.dead_letters)

    return run_async(run())


def _chosen(ids: list[int] | None, every: bool) -> list[int] | None:
    """None means all."""
    if bool(ids) == every:
        exit_with("Give the ids of dead letters, or --all.", EXIT_USAGE)
    return None if every else ids


def _device_of(letter: IngestDeadLetter) -> str:
    return letter.device_id or f"deleted (number {letter.device_no})"


def _printable(payload: bytes) -> str:
    """Text as it is; other bytes in hexadecimal."""
    text = payload.decode("utf-8", "replace")
    return text if text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text else f"0x{payload.hex()}"
