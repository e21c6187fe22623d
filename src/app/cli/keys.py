"""`latchboard keys`: the ring of secret keys, looked at and rotated."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.cli.run import EXIT_FAILURE, exit_with, load_settings_or_exit, run_async

keys = typer.Typer(help="The secret keys that sign tokens and seal stored secrets.", no_args_is_help=True)

stdout_console = Console(highlight=False, soft_wrap=True)


@keys.command("list")
def keys_list() -> None:
    """Show the keys by id, newest first, and how many stored secrets each one seals."""
    from app.cli.key_rotation import list_key_usage

    chosen = load_settings_or_exit()
    table = Table("Key", "Seals", "", box=None, pad_edge=False)
    for use in run_async(list_key_usage(chosen)):
        table.add_row(use.key_id, str(use.sealed_secrets), "newest" if use.is_newest else "")
    stdout_console.print(table)


@keys.command("rotate")
def keys_rotate(
    no_new_key: Annotated[bool, typer.Option("--no-new-key", help="Only seal everything with the newest key there is.")] = False,
) -> None:
    """Put a new key in front and seal every stored secret with it; also beside a running service, again if interrupted."""
    from app.cli.key_rotation import rotate_keys

    chosen = load_settings_or_exit()
    columns = (TextColumn("sealing anew"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task("secrets", total=None)
        done = run_async(
            rotate_keys(chosen, new_key=not no_new_key, progress=lambda seen, of: bar.update(task, completed=seen, total=of))
        )
    if done.created_key:
        stdout_console.print(f"{done.newest_key_id} is the new key.")
    elif not no_new_key:
        stdout_console.print(f"An earlier rotation to {done.newest_key_id} has been finished; no further key was made.")
    stdout_console.print(f"{done.report.rekeyed} of {done.report.checked} secrets were sealed anew.")
    if done.older_key_ids:
        named = ", ".join(done.older_key_ids)
        stdout_console.print(f"Older keys, kept for tokens and remembered answers: {named}. In 25 hours: latchboard keys retire")
    if done.report.unreadable:
        named = ", ".join(done.report.unreadable[:10])
        exit_with(
            f"{len(done.report.unreadable)} secrets open with no key of the ring ({named}). Generate these anew.", EXIT_FAILURE
        )


@keys.command("retire")
def keys_retire() -> None:
    """Take away the older keys, once nothing needs them."""
    from app.cli.key_rotation import retire_keys

    gone = run_async(retire_keys(load_settings_or_exit()))
    stdout_console.print(f"Taken away: {', '.join(gone)}." if gone else "There are no older keys.")
