"""`latchboard keys`: the ring of secret keys, looked at and rotated."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from app.running import FAILED, do, fail, settings

keys = typer.Typer(help="The secret keys that sign tokens and seal stored secrets.", no_args_is_help=True)

out = Console(highlight=False, soft_wrap=True)


@keys.command("list")
def keys_list() -> None:
    """Show the keys by id, newest first, and how many stored secrets each one seals."""
    from app.key_rotation import uses

    chosen = settings()
    table = Table("Key", "Seals", "", box=None, pad_edge=False)
    for use in do(uses(chosen)):
        table.add_row(use.key_id, str(use.secrets), "newest" if use.is_newest else "")
    out.print(table)


@keys.command("rotate")
def keys_rotate(
    no_new_key: Annotated[bool, typer.Option("--no-new-key", help="Only seal everything with the newest key there is.")] = False,
) -> None:
    """Put a new key in front and seal every stored secret with it; also beside a running service, again if interrupted."""
    from app.key_rotation import rotate

    chosen = settings()
    columns = (TextColumn("sealing anew"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task("secrets", total=None)
        done = do(rotate(chosen, new_key=not no_new_key, progress=lambda seen, of: bar.update(task, completed=seen, total=of)))
    if done.new_key:
        out.print(f"{done.newest} is the new key.")
    elif not no_new_key:
        out.print(f"An earlier rotation to {done.newest} has been finished; no further key was made.")
    out.print(f"{done.tally.resealed} of {done.tally.seen} secrets were sealed anew.")
    if done.older:
        named = ", ".join(done.older)
        out.print(f"Older keys, kept for tokens and remembered answers: {named}. In 25 hours: latchboard keys retire")
    if done.tally.unreadable:
        named = ", ".join(done.tally.unreadable[:10])
        fail(f"{len(done.tally.unreadable)} secrets open with no key of the ring ({named}). Generate these anew.", FAILED)


@keys.command("retire")
def keys_retire() -> None:
    """Take away the older keys, once nothing needs them."""
    from app.key_rotation import retire

    gone = do(retire(settings()))
    out.print(f"Taken away: {', '.join(gone)}." if gone else "There are no older keys.")
