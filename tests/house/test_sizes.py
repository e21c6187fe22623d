"""A file is 600 lines at the most, a function 60: what grows beyond wants to be two things."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LINES = 600
FUNCTION_LINES = 60
WORDS_FOR_NOTHING = {"utils", "helpers", "common", "manager", "base", "misc"}
TABLES = ("src/adapters/storage/sql/migrations/revision_", "src/adapters/storage/sql/tables/")
"""A table's definition is one expression, however many columns it has."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines of its body without the docstring)"""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            nested = [
                one for one in ast.walk(node) if one is not node and isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            inner = sum((one.end_lineno or 0) - min(first.lineno for first in (one, *one.decorator_list)) + 1 for one in nested)
            yield node.name, ((body[-1].end_lineno or 0) - body[0].lineno + 1 - inner) if body else 0


def test_no_file_is_longer_than_600_lines() -> None:
    long = {
        relative(path): lines for path in SOURCES if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES
    }
    assert not long


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        f"{relative(path)}:{name}": lines
        for path in SOURCES
        if not relative(path).startswith(TABLES)
        for name, lines in functions(path)
        if lines > FUNCTION_LINES
    }
    assert not long


def test_no_module_is_named_after_nothing() -> None:
    assert not [relative(path) for path in SOURCES if path.stem in WORDS_FOR_NOTHING]


def test_every_module_opens_with_what_it_is() -> None:
    """Packages that only hold others may be silent."""
    silent = [
        relative(path)
        for path in SOURCES
        if path.read_text(encoding="utf-8").strip() and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    assert not silent
