"""The Rust side keeps the same house: a file says what it is about, and neither it nor its functions are longer than one can take
in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "rust").glob("*/src/**/*.rs"))
FILE_LINES = 300
FUNCTION_LINES = 40
LONGER: dict[str, int] = {}
"""Those that were longer when the law came to Rust: decisions that read better in one piece than in many. They may shrink, and
none may join them."""
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{\n.*?^\}", re.M | re.S)
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe) )*fn (\w+)[^;{]*\{\n(.*?)^\1\}", re.M | re.S)
"""As rustfmt lays it out: the closing brace stands below the first letter of the head."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def program(path: Path) -> str:
    """Without the unit tests in it."""
    return TESTS.sub("", path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines of its body)"""
    for match in FUNCTION.finditer(program(path)):
        yield match[2], match[3].count("\n")


def test_there_is_rust_to_look_at() -> None:
    assert sum(1 for path in SOURCES for _ in functions(path)) > 100


def test_every_file_opens_with_what_it_is() -> None:
    assert not [relative(path) for path in SOURCES if not path.read_text(encoding="utf-8").startswith("//!")]


def test_no_file_is_longer_than_300_lines() -> None:
    assert not {relative(path): lines for path in SOURCES if (lines := program(path).count("\n")) > FILE_LINES}


def test_no_function_is_longer_than_40_lines_or_than_it_was() -> None:
    lengths = [(f"{relative(path)}:{name}", lines) for path in SOURCES for name, lines in functions(path)]
    assert not [(name, lines) for name, lines in lengths if lines > LONGER.get(name, FUNCTION_LINES)]
