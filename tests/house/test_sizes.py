"""A module is deep: much behaviour behind few names. A file has 600 lines at the most and a function 60; a file below 60 lines says
here why it is alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house.measure import Module, read_modules

FILE_LINES = 600
SMALL_FILE_LINES = 60
FUNCTION_LINES = 60
TABLES = "adapters/storage/sql/tables/"
"""A table's definition is one expression, however many columns it has."""

PORT = "the ports of a part stand apart from what uses them"
ALONE = {
    "adapters/engine/extension_check.py": "asks whether the extension can be imported, so it is imported without it",
    "adapters/engine/reference.py": "the other engine, which an installation chooses",
    "adapters/firmware_sources.py": "the adapter of one port",
    "adapters/http/core/assets.py": "what the dashboard and the documents share, neither of which may import the other",
    "adapters/http/documents/guides.py": "prose, which is read and changed alone",
    "adapters/storage/sql/repositories/life.py": "the only statements that a backup, a restore and a failover share",
    "adapters/storage/disk_space.py": "the adapter of one port, of no database",
    "app/__main__.py": "`python -m app`",
    "app/cli/main.py": "sets the collector before anything else is imported",
    "app/cli/mcp_stdio.py": "the library of the protocol is imported for this command only",
    "app/cli/worker_processes.py": "`--workers` only, without the program that the workers compose",
    "app/runtime/logging.py": "imported before all others",
    "app/version.py": "imported before all others",
    "app/wiring/asyncapi_document.py": "imported when it is asked for: the document is large",
    "app/wiring/compose.py": "breaks a circle: it makes the HTTP application and the metrics, which read the program",
    "domain/kernel/backoff.py": "data of every layer",
    "domain/kernel/columnar_records.py": "a container that knows nothing of the program",
    "domain/kernel/ports.py": PORT,
    "domain/keys/ports.py": PORT,
    "domain/provisioning/ports.py": PORT,
    "domain/rules/loop_guard.py": "one idea, used at one place, without a part of the rest",
    "domain/sign_in/presence.py": "breaks a circle: sessions, factors and all that needs a proof use it",
    "domain/team/ports.py": PORT,
    "domain/webhooks/reference.py": "the readable definition beside which the engine's is held",
}
"""Files below 60 lines, and why each is no part of another."""


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """(name, lines of its body without the docstring and the functions in it)"""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            nested = [
                one for one in ast.walk(node) if one is not node and isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            inner = sum((one.end_lineno or 0) - min(first.lineno for first in (one, *one.decorator_list)) + 1 for one in nested)
            yield node.name, ((body[-1].end_lineno or 0) - body[0].lineno + 1 - inner) if body else 0


def small_files() -> set[str]:
    return {module.name for module in read_modules() if module.is_read and module.lines < SMALL_FILE_LINES}


def test_no_file_is_longer_than_600_lines() -> None:
    assert not {module.name: module.lines for module in read_modules() if module.lines > FILE_LINES}


def test_a_file_below_60_lines_has_a_reason() -> None:
    assert sorted(small_files() - ALONE.keys()) == []


def test_every_reason_is_that_of_a_small_file() -> None:
    assert sorted(ALONE.keys() - small_files()) == []


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        f"{module.name}:{name}": lines
        for module in read_modules()
        if not module.name.startswith(TABLES)
        for name, lines in functions(module)
        if lines > FUNCTION_LINES
    }
    assert not long


def test_every_module_opens_with_what_it_is() -> None:
    """Packages that only hold others may be silent."""
    assert not [module.name for module in read_modules() if module.text.strip() and ast.get_docstring(module.tree) is None]
