"""What all commands share: load the settings, run a coroutine, print, and exit with one clear message.

`latchboard serve` prints a dozen lines in its life, by `TerminalOutput`. Rich, which the other commands use for tables and
progress bars, would take 3 MiB of the service's memory for them, so its consoles are made with their first use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import typer
import uvloop

from app.config.settings import FILE_SUFFIX, Settings, SettingsError, load_settings, read_secret
from app.runtime.start import startup_error_message
from domain.kernel.errors import DomainError

if TYPE_CHECKING:
    from rich.console import Console

EXIT_USAGE = 2
EXIT_FAILURE = 1
HEADING, STRONG, NOTICE, FAINT = "1;32", "1", "1;33", "2"
"""Styles, as parameters of the escape sequence SGR (ECMA-48)."""

Result = TypeVar("Result")


@cache
def stdout_console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


@cache
def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def load_settings_or_exit(**overrides: Any) -> Settings:
    try:
        return load_settings(**overrides)
    except SettingsError as error:
        exit_with(f"Wrong settings:\n{error}", EXIT_USAGE)


def secret_or_exit(variable: str, *, prompt: str | None = None, confirm: bool = False) -> str:
    """A secret from its variable, the file that `<variable>_FILE` names, or the terminal; `prompt`: what it says there."""
    found = find_secret(variable)
    if found:
        return found
    if prompt is None:
        exit_with(f"Set {variable}, or {variable}{FILE_SUFFIX} to a file that has it.", EXIT_USAGE)
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True))


def find_secret(variable: str) -> str | None:
    try:
        return read_secret(variable)
    except ValueError as error:
        exit_with(str(error), EXIT_USAGE)


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


class TerminalOutput:
    def __init__(self, file: TextIO | None = None, *, is_terminal: bool | None = None) -> None:
        """Standard output unless `file` is given. `is_terminal`: whether a person reads it; if None, the file is asked."""
        self._file = sys.stdout if file is None else file
        self.is_terminal = self._file.isatty() if is_terminal is None else is_terminal
        is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
        self._has_colour = self.is_terminal and not is_plain

    def print(self, text: str = "") -> None:
        print(text, file=self._file, flush=True)

    def style(self, text: str, style: str) -> str:
        """The text in this style, where there is colour."""
        return f"\x1b[{style}m{text}\x1b[0m" if self._has_colour else text
