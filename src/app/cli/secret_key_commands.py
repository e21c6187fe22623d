"""`latchboard keys`: lists and rotates the secret keys."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from app.cli.command_support import EXIT_FAILURE, exit_with, load_settings_or_exit, run_async
from app.cli.stdout_console import stdout_console

keys = typer.Typer(help="The secret keys that sign tokens and seal stored secrets.", no_args_is_help=True)


@keys.command("list")
def keys_list() -> None:
    """List the keys, newest first, and how many stored secrets each one seals."""
    from app.cli.key_rotation import list_key_usage

    settings = load_settings_or_exit()
    table = Table("Key", "Seals", "", box=None, pad_edge=False)
    for use in run_async(list_key_usage(settings)):
        table.add_row(use.key_id, str(use.sealed_secrets), "newest" if use.is_newest else "")
    stdout_console.print(table)


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
        stdout_console.print(f"{done.newest_key_id} is the new key.")
    elif not no_new_key:
        stdout_console.print(f"Finished an earlier rotation to {done.newest_key_id}; no other key was added.")
    stdout_console.print(f"{done.report.rekeyed} of {done.report.checked} secrets were sealed again.")
    if done.older_key_ids:
        named = ", ".join(done.older_key_ids)
        stdout_console.print(
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
    stdout_console.print(f"Removed: {', '.join(removed)}." if removed else "There are no older keys.")
