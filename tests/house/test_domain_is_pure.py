"""The domain knows the standard library only, and of that nothing that waits, reads a clock, rolls dice or opens a socket."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"
OUTSIDE_THE_DOMAIN = {"asyncio", "os", "time", "random", "secrets", "socket", "threading", "subprocess", "selectors", "ssl"}
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("date", "today"), ("time", "time"), ("time", "time_ns")}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def clock_calls(tree: ast.AST) -> list[tuple[str, str]]:
    return [
        (node.func.value.id, node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in CLOCKS
    ]


@pytest.mark.parametrize(
    "path", sorted((SOURCES / "domain").rglob("*.py")), ids=lambda path: path.relative_to(SOURCES).as_posix()
)
def test_a_module_of_the_domain_imports_nothing_from_outside(path: Path) -> None:
    allowed = (sys.stdlib_module_names - OUTSIDE_THE_DOMAIN) | {"domain"}
    assert set(imported(ast.parse(path.read_text(encoding="utf-8")))) <= allowed


def test_only_the_clock_adapter_reads_the_wall_clock() -> None:
    readers = {
        path.relative_to(SOURCES).as_posix(): calls
        for path in sorted(SOURCES.rglob("*.py"))
        if (calls := clock_calls(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert set(readers) == {"adapters/clock.py"}


def test_the_extension_is_imported_only_where_it_belongs() -> None:
    importers = {
        path.relative_to(SOURCES).as_posix()
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and any(name.name == "_native" for name in node.names)
    }
    elsewhere = {name for name in importers if not name.startswith("adapters/engine/")}
    assert elsewhere <= {"adapters/delivery/courier.py", "adapters/mqtt/embedded.py", "app/simulator/run.py"}
