"""Calls and make targets that the documents name exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.service import environment, program_command
from support.waiting import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]
HISTORY = ROOT / "docs" / "decisions"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in (ROOT / "docs").rglob("*.md") if HISTORY not in page.parents),
]
CALL = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) ((?:/[\w{}-]+)+)(?:\?([\w=&{}-]+))?")
OUTSIDE_THE_DOCUMENT = ("/api/v1/ws", "/dashboard/", "/metrics", "/healthz", "/readyz", "/mqtt")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
MAKE = re.compile(r"^`?make ([a-z]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The query parameters of each call."""
    folder = tmp_path_factory.mktemp("openapi")
    program = [*program_command(), "openapi"]
    printed = subprocess.run(program, env=environment(), cwd=folder, capture_output=True, check=True, timeout=TIMEOUT_S)
    found: dict[str, Any] = json.loads(printed.stdout)
    return {
        f"{method.upper()} {anonymous(path)}": {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
        if method != "parameters"
    }


def anonymous(path: str) -> str:
    return re.sub(r"{\w+}", "{}", path.removeprefix("/api/v1"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_call_in_the_documents_exists_with_its_query(page: Path, operations: dict[str, set[str]]) -> None:
    wrong = []
    for method, path, query in CALL.findall(page.read_text(encoding="utf-8")):
        names = {part.partition("=")[0] for part in query.split("&") if part}
        known = operations.get(f"{method} {anonymous(path)}")
        if not path.startswith(OUTSIDE_THE_DOCUMENT) and (known is None or not names <= known):
            wrong.append(f"{method} {path} {query}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_make_target_in_the_documents_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for code in CODE.findall(page.read_text(encoding="utf-8")) for name in MAKE.findall(code)}
    assert named <= targets
