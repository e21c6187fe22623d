"""One thing has one word (docs/reference/glossary.md): retired words do not come back as names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sorted(path for folder in ("src", "tests/support", "benches") for path in (ROOT / folder).rglob("*.py"))
RUST = sorted(path for path in (ROOT / "rust").rglob("*.rs") if "target" not in path.parts)
RETIRED_WORDS = """
answerbook ask asked bell bells bulletin bulletins desk desks doorbell downlink errand errands facing fact facts glance glances greet greeting
hearing hearings herald lane lanes leftovers mended neighbour neighbours nursery owe owed owes patience persona pour pouring
rollcall said settle settled shelf shelves sight stretch stretches tally teller told turnstile uplink verdict visitor
"""
RETIRED = frozenset(RETIRED_WORDS.split())
"""Words that this project once used in names and that no reader could guess."""
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words(name: str) -> set[str]:
    return {word.lower() for word in WORDS.findall(name)}


def python_names(path: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of every class, function, parameter, variable and attribute that the file defines, and of the file itself."""
    yield 0, path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name


def rust_names(path: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of every type, function, module and constant that the file defines, and of the file itself."""
    yield 0, path.stem
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for name in re.findall(r"\b(?:struct|enum|trait|type|fn|mod|const|static|union)\s+([A-Za-z_]\w*)", line.split("//")[0]):
            yield number, name


def retired(names: Iterator[tuple[int, str]], path: Path) -> list[str]:
    place = path.relative_to(ROOT).as_posix()
    return [f"{place}:{line} {name}" for line, name in names if words(name) & RETIRED]


def test_no_python_name_uses_a_retired_word() -> None:
    assert not [found for path in PYTHON for found in retired(python_names(path), path)]


def test_no_rust_name_uses_a_retired_word() -> None:
    assert not [found for path in RUST for found in retired(rust_names(path), path)]


@pytest.mark.parametrize("name", ["tell_desk", "UplinkBatch", "self_owed"])
def test_the_search_sees_a_retired_word(name: str) -> None:
    """The test above can fail."""
    assert words(name) & RETIRED


def test_every_class_that_the_glossary_names_exists() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    classes = {
        node.name
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    } | {"Caller"}
    assert set(re.findall(r"\(`([A-Z]\w+)`\)", text)) <= classes
