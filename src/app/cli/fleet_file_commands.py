"""`latchboard plan`, `apply` and `export`: the account of a running service as a file.

They call the service at LATCHBOARD_URL with LATCHBOARD_TOKEN, the token of a service session. Exit codes: 0, done; 1, refused or,
with `plan --check`, different; 2, wrong usage or a file that cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FilePath = Annotated[
    Path, typer.Argument(help="The fleet's file, YAML or JSON; - for standard input.", allow_dash=True, metavar="FILE")
]
Prune = Annotated[bool, typer.Option("--prune", help="Also delete what the sections of the file do not name.")]
Url = Annotated[
    str | None,
    typer.Option(envvar="LATCHBOARD_URL", help="URL of the service; default: the address in this installation's settings."),
]
Token = Annotated[str, typer.Option(envvar="LATCHBOARD_TOKEN", help="Token of a service session; better in the variable.")]


def plan(
    file: FilePath,
    token: Token,
    url: Url = None,
    prune: Prune = False,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 if anything would change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The service's answer as JSON.")] = False,
) -> None:
    """Show what `apply` would change. Changes nothing."""
    from app.cli.fleet_file_command_handlers import plan_file

    plan_file(file, url, token, prune=prune, check=check, as_json=as_json)


def apply(
    file: FilePath,
    token: Token,
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
    from app.cli.fleet_file_command_handlers import apply_file

    apply_file(file, url, token, prune=prune, secrets=secrets, reissue=reissue)


def export(
    token: Token,
    file: Annotated[Path | None, typer.Argument(help="File to write; default: standard output.", metavar="[FILE]")] = None,
    url: Url = None,
    project: Annotated[
        str | None, typer.Option(help="Only this project: its devices and groups, and the grants on them.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write the account as a file that `plan` finds no change in. Secrets are not in it."""
    from app.cli.fleet_file_command_handlers import export_file

    export_file(file, url, token, project=project, force=force)
