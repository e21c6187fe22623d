"""What all commands share: load the settings, run a coroutine, and exit with one clear message."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer
import uvloop

from app.config.settings import Settings, SettingsError, load_settings
from app.runtime.start import startup_error_message
from domain.kernel.errors import DomainError

if TYPE_CHECKING:
    from rich.console import Console

EXIT_USAGE = 2
EXIT_FAILURE = 1

Result = TypeVar("Result")


@cache
def stderr_console() -> Console:
    from rich.console import Console  # the service needs it only to say why it cannot start

    return Console(stderr=True, highlight=False, soft_wrap=True)


def load_settings_or_exit(**overrides: Any) -> Settings:
    try:
        return load_settings(**overrides)
    except SettingsError as error:
        exit_with(f"Wrong settings:\n{error}", EXIT_USAGE)


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work`. An error of ours exits the program with its message."""
    with our_errors_exit():
        return uvloop.run(work)


@contextmanager
def our_errors_exit() -> Iterator[None]:
    """An error of ours exits the program with its message; any other error propagates."""
    try:
        yield
    except Exception as error:
        message = startup_error_message(error) or (error.message if isinstance(error, DomainError) else None)
        if message is None:
            raise
        exit_with(message, EXIT_USAGE if isinstance(error, SettingsError) else EXIT_FAILURE)


def exit_with(message: str, code: int) -> NoReturn:
    console = stderr_console()
    console.print(
        f"[bold red]latchboard:[/] {message}" if console.is_terminal else f"latchboard: {message}", markup=console.is_terminal
    )
    raise typer.Exit(code)
