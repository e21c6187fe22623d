"""The Rust side keeps the same house: a file says what it is about, and neither it nor its functions are longer than one can take
in."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "rust").glob("*/src/**/*.rs"))
FILE_LINES = 600
FUNCTION_LINES = 60
FILE_NAME_WORDS = 3
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{\n.*?^\}", re.M | re.S)
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe) )*fn (\w+)[^;{]*\{\n(.*?)^\1\}", re.M | re.S)
"""As rustfmt lays it out: the closing brace stands below the first letter of the head."""
PUBLIC_TYPE = re.compile(r"^\s*pub(?:\([a-z ]+\))?\s+(?:struct|enum|trait|type|union)\s+(\w+)", re.M)
CRATE_OF = {path: path.relative_to(ROOT / "rust").parts[0] for path in SOURCES}
COMMENT = re.compile(r"//.*")
PATH = re.compile(r"(?<![\w(:])(crate|self|super)::((?:super::)*)((?:\w+::)*\w*)")
"""A path into this crate, in a `use` or elsewhere; not the `super` of `pub(super)`."""

Module = tuple[str, ...]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def program(path: Path) -> str:
    """Without the unit tests in it."""
    return TESTS.sub("", path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines of its body)"""
    for match in FUNCTION.finditer(program(path)):
        yield match[2], match[3].count("\n")


def module_of(path: Path) -> Module:
    """Its path below the root of its crate, which is the empty one."""
    parts = path.relative_to(ROOT / "rust").with_suffix("").parts[2:]
    return () if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts


def imports(module: Module, text: str, modules: set[Module]) -> set[Module]:
    """The other modules of its crate that the text of a module names."""
    found = set()
    for start, ups, rest in PATH.findall(COMMENT.sub("", text)):
        up = (start == "super") + ups.count("super")
        base: Module = () if start == "crate" else module[: len(module) - up]
        path = base + tuple(part for part in rest.split("::") if part)
        found.add(next((path[:end] for end in range(len(path), len(base), -1) if path[:end] in modules), base))
    return found - {module}


def test_there_is_rust_to_look_at() -> None:
    assert sum(1 for path in SOURCES for _ in functions(path)) > 100


def test_every_file_opens_with_what_it_is() -> None:
    assert not [relative(path) for path in SOURCES if not path.read_text(encoding="utf-8").startswith("//!")]


def test_no_file_is_longer_than_600_lines() -> None:
    assert not {relative(path): lines for path in SOURCES if (lines := program(path).count("\n")) > FILE_LINES}


def test_no_function_is_longer_than_60_lines() -> None:
    lengths = [(f"{relative(path)}:{name}", lines) for path in SOURCES for name, lines in functions(path)]
    assert not [(name, lines) for name, lines in lengths if lines > FUNCTION_LINES]


def test_a_file_name_has_three_words_at_the_most() -> None:
    assert not [relative(path) for path in SOURCES if len(path.stem.split("_")) > FILE_NAME_WORDS]


def test_a_public_type_stands_once_in_its_crate() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for name in PUBLIC_TYPE.findall(program(path)):
            places[CRATE_OF[path], name].append(relative(path))
    assert not {name: found for name, found in places.items() if len(found) > 1}


@pytest.mark.parametrize("crate", sorted(set(CRATE_OF.values())))
def test_no_modules_of_a_crate_import_each_other_in_a_circle(crate: str) -> None:
    modules = {module_of(path): path for path in SOURCES if CRATE_OF[path] == crate}
    graph = {module: imports(module, program(path), set(modules)) for module, path in modules.items()}
    tuple(TopologicalSorter(graph).static_order())


def test_the_search_sees_a_circle() -> None:
    """The test above can fail."""
    modules = {("a",), ("a", "b"), ("c",)}
    assert imports(("a", "b"), "use super::{X, Y};\nuse crate::c::{self, Z};\npub(super) fn f() {}", modules) == {("a",), ("c",)}
    assert imports(("a",), "use self::b::X;\nuse crate::a::Y; // crate::c", modules) == {("a", "b")}
