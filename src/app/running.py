"""What every command of the command line does alike: read the settings, run, and end with one clear message."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

import typer
import uvloop
from rich.console import Console

from app.settings import Settings, SettingsError, load

WRONG_USAGE = 2
FAILED = 1
GC_THRESHOLDS = (50_000, 20, 100)
"""Python's own are made for programs with few objects."""

Result = TypeVar("Result")

err = Console(stderr=True, highlight=False, soft_wrap=True)


def settings() -> Settings:
    try:
        return load()
    except SettingsError as error:
        fail(f"Wrong settings:\n{error}", WRONG_USAGE)


def do(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it; what is refused ends the program with one clear message."""
    from app.lifecycle import refusal
    from domain.kernel.errors import DomainError

    try:
        return uvloop.run(work)
    except Exception as error:
        said = refusal(error) or (error.message if isinstance(error, DomainError) else None)
        if said is None:
            raise
        fail(said, WRONG_USAGE if isinstance(error, SettingsError) else FAILED)


def fail(message: str, code: int) -> NoReturn:
    err.print(f"[bold red]latchboard:[/] {message}" if err.is_terminal else f"latchboard: {message}", markup=err.is_terminal)
    raise typer.Exit(code)
