"""The metadata of the package is true: every import is a declared dependency, and the locks agree with each other."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"app", "adapters", "domain"}
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def normalized(name: str) -> str:
    """The form in which PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return normalized(found[0])


def imported_modules() -> Iterator[str]:
    """Top-level modules that src imports, and those whose files it reads."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.partition(".")[0]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "files":
                yield from (argument.value for argument in node.args if isinstance(argument, ast.Constant))


def pinned(lock: str) -> dict[str, str]:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines if line and not line.startswith((" ", "#"))]
    return dict(entry[0].split("==") for entry in entries)


def test_every_import_of_the_program_is_a_declared_dependency() -> None:
    declared = {requirement_name(one) for one in PROJECT["project"]["dependencies"]}
    distributions = packages_distributions()
    modules = set(imported_modules()) - sys.stdlib_module_names - OURS
    assert not {module for module in modules if not declared & {normalized(one) for one in distributions.get(module, ())}}


def test_every_declared_dependency_has_a_lower_bound() -> None:
    assert not [one for one in PROJECT["project"]["dependencies"] if ">=" not in one]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_every_package_with_hashes_and_names_no_address(lock: str) -> None:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    assert pinned(lock)
    assert all("==" in line and line.endswith("\\") for line in lines if line and not line.startswith((" ", "#")))
    assert not [line for line in lines if line.startswith("-") or "://" in line]


def test_the_locks_hold_what_the_project_declares() -> None:
    groups = PROJECT["dependency-groups"]
    dev = [one for group in ("build", "test", "dev") for one in groups[group] if isinstance(one, str)]
    wanted = {
        "requirements.lock": PROJECT["project"]["dependencies"],
        "requirements-build.lock": groups["build"],
        "requirements-dev.lock": [*PROJECT["project"]["dependencies"], *dev],
    }
    for lock, requirements in wanted.items():
        assert {requirement_name(one) for one in requirements} <= {normalized(name) for name in pinned(lock)}, lock


def test_the_dev_lock_has_the_versions_of_the_others_and_they_have_no_test_tools() -> None:
    dev = pinned("requirements-dev.lock")
    others = pinned("requirements.lock") | pinned("requirements-build.lock")
    assert others.items() <= dev.items()
    assert not {"pytest", "hypothesis", "mypy", "ruff", "playwright"} & others.keys()
    assert set(PROJECT["build-system"]["requires"]) <= set(PROJECT["dependency-groups"]["build"])
