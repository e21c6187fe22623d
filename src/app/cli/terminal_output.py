"""Lines on standard output, in colour on a terminal.

`latchboard serve` prints a dozen lines in its life. Rich, which the other commands use for tables and progress bars, would take
3 MiB of the service's memory for them.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

HEADING, STRONG, NOTICE, FAINT = "1;32", "1", "1;33", "2"
"""Styles, as parameters of the escape sequence SGR (ECMA-48)."""


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
