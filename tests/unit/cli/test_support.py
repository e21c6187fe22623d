"""What a terminal gets, and what a file."""

from __future__ import annotations

import io

import pytest

from app.cli.support import HEADING, TerminalOutput


@pytest.fixture(autouse=True)
def capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_gets_colour() -> None:
    assert TerminalOutput(io.StringIO(), is_terminal=True).style("ready", HEADING) == "\x1b[1;32mready\x1b[0m"


def test_a_file_gets_plain_text() -> None:
    assert TerminalOutput(io.StringIO()).style("ready", HEADING) == "ready"


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colour_gets_plain_text(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    screen = TerminalOutput(io.StringIO(), is_terminal=True)
    assert screen.is_terminal
    assert screen.style("ready", HEADING) == "ready"


def test_a_line_reaches_the_reader_at_once() -> None:
    class Pipe(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    pipe = Pipe()
    TerminalOutput(pipe).print("ready")
    assert pipe.flushed == "ready\n"
