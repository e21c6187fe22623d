"""The measures of this program's house: how many modules, how deep, how many names a reader meets.

`python tests/house/measure.py` prints the table; with the root of another checkout, or of another project's sources, it measures that
one. `--write` puts the table into the README beside it, with which `test_measures.py` compares the tree.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
README = Path(__file__).with_name("README.md")
MIGRATIONS = "/migrations/"
"""A migration's name begins with its number, and nobody reads it again."""
DEEP_LINES = 200
TABLE = re.compile(r"(\| Measure \| Here \|\n\|---\|---\|\n)((?:\|.*\|\n)*)")
FLOW_FILE = re.compile(r"`((?:src|rust)/[\w./]+)`")


@dataclass(frozen=True, eq=False)
class Module:
    name: str
    """Relative to `src`, with slashes."""
    text: str
    tree: ast.Module

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def has_code(self) -> bool:
        return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in self.tree.body)

    @property
    def is_read(self) -> bool:
        """Whether a reader meets it as a module: it has code, and is neither a package's `__init__` nor a migration."""
        return self.has_code and not self.name.endswith("/__init__.py") and MIGRATIONS not in self.name

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @property
    def dotted(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def words(self) -> list[str]:
        return Path(self.name).stem.strip("_").split("_")


@cache
def read_modules(root: Path = ROOT) -> tuple[Module, ...]:
    sources = root / "src" if (root / "src").is_dir() else root
    return tuple(
        Module(path.relative_to(sources).as_posix(), text, ast.parse(text))
        for path in sorted(sources.rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
    )


def docstring_lines(module: Module) -> set[int]:
    """Of docstrings, and of the texts below a constant or a field that say what it is."""
    found: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def code_lines(module: Module) -> int:
    """Lines that hold more than blanks, comments and docstrings."""
    texts = docstring_lines(module)
    lines = (line.lstrip() for number, line in enumerate(module.text.splitlines(), 1) if number not in texts)
    return sum(bool(line) and not line.startswith("#") for line in lines)


def is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases)


def protocol_percent(modules: tuple[Module, ...]) -> float:
    classes = [node for module in modules for node in module.classes]
    return 100 * sum(map(is_protocol, classes)) / len(classes)


def imported_names(module: Module) -> Iterator[str]:
    """Each may be a module, or a name in one."""
    package = module.dotted if module.name.endswith("/__init__.py") else module.dotted.rpartition(".")[0]
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            start = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (start, node.module or "") if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def count_arrows(modules: tuple[Module, ...]) -> int:
    """Pairs of a module and another one that it imports, or from which it imports a name."""
    known = {module.dotted for module in modules}
    arrows = set()
    for module in modules:
        for name in imported_names(module):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != module.dotted:
                arrows.add((module.dotted, target))
    return len(arrows)


def flows(root: Path = ROOT) -> dict[str, list[str]]:
    """The files and folders that the table of each flow in `docs/explanation/flows.md` names; a folder is one place to look."""
    page = root / "docs" / "explanation" / "flows.md"
    if not page.exists():
        return {}
    found: dict[str, list[str]] = {}
    for section in page.read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [line for line in section.splitlines() if line.startswith("|")]
        if files := sorted({name for row in rows for name in FLOW_FILE.findall(row)}):
            found[section.splitlines()[0]] = files
    return found


def rust_files(root: Path = ROOT) -> list[Path]:
    return sorted((root / "rust").glob("*/src/**/*.rs"))


@dataclass(frozen=True)
class Measures:
    modules: int
    median_lines: float
    deep_percent: float
    protocol_percent: float
    long_names: int
    arrows: int
    python_lines: int
    rust_lines: int
    rust_files: int
    flow_files: dict[str, int]


def measure(root: Path = ROOT) -> Measures:
    modules = read_modules(root)
    met = [module for module in modules if module.is_read]
    code = [code_lines(module) for module in met]
    rust = rust_files(root)
    return Measures(
        modules=len(met),
        median_lines=median(module.lines for module in met),
        deep_percent=100 * sum(lines for lines in code if lines > DEEP_LINES) / sum(code),
        protocol_percent=protocol_percent(modules),
        long_names=sum(len(module.words) >= 4 for module in met),
        arrows=count_arrows(modules),
        python_lines=sum(module.lines for module in modules),
        rust_lines=sum(len(path.read_text(encoding="utf-8").splitlines()) for path in rust),
        rust_files=len(rust),
        flow_files={title: len(files) for title, files in flows(root).items()},
    )


def rows(found: Measures) -> dict[str, str]:
    return {
        "Python modules with code in `src`": f"{found.modules}",
        "lines of the median module": f"{found.median_lines:.0f}",
        f"code in files over {DEEP_LINES} lines of code": f"{found.deep_percent:.0f} %",
        "Protocols, of all classes": f"{found.protocol_percent:.1f} %",
        "file names of four words or more": f"{found.long_names}",
        "import arrows between modules": f"{found.arrows:,}",
        **{f"files to open for *{title}*": f"{count}" for title, count in found.flow_files.items()},
        "lines of Python in `src`": f"{found.python_lines:,}",
        "lines of Rust": f"{found.rust_lines:,}",
        "Rust files": f"{found.rust_files}",
    }


def table(found: Measures) -> str:
    return "".join(f"| {name} | {value} |\n" for name, value in rows(found).items())


def written_rows(readme: Path = README) -> dict[str, str]:
    found = TABLE.search(readme.read_text(encoding="utf-8"))
    assert found is not None, f"no table of measures in {readme}"
    return dict(row.strip("| ").split(" | ") for row in found[2].splitlines())


def write_table(found: Measures) -> None:
    README.write_text(TABLE.sub(lambda match: match[1] + table(found), README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--write", action="store_true", help="write the table into the README beside this file")
    arguments = parser.parse_args()
    measures = measure(arguments.root.resolve())
    if arguments.write:
        write_table(measures)
    print(table(measures), end="")
