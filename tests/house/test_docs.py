"""What is written about the program is true of it: links lead somewhere, commands and settings exist, the rooms are those of the
code."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from app.cli.commands import app
from app.config.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|[`/ ])latchboard ((?:[a-z]+ ?)+(?:-[^`\n#]*)?)", re.MULTILINE)


def prose(page: Path) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    for link in LINK.findall(prose(page)):
        if not link.startswith(("http://", "https://", "mailto:")):
            where, _, anchor = link.partition("#")
            yield link, (page.parent / where).resolve() if where else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = [link for link, target, _ in links(page) if not target.exists()]
    unsaid = [link for link, target, anchor in links(page) if anchor and target.is_file() and anchor not in anchors(target)]
    assert (lost, unsaid) == ([], [])


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = {README}, [README]
    while waiting:
        for _, target, _ in links(waiting.pop()):
            pages = sorted(target.glob("*.md")) if target.is_dir() else [target]
            waiting += [page for page in pages if page.suffix == ".md" and page not in reached]
            reached |= set(pages)
    assert [page.name for page in PAGES if page not in reached] == []


def test_the_readme_opens_with_how_to_run_and_how_to_test_it() -> None:
    first = re.search(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()][:2] == ["make run", "make test"]
    assert first.start() < 40


def commands() -> dict[str, click.Command]:
    """By the words that call them."""
    found: dict[str, click.Command] = {}

    def walk(words: tuple[str, ...], command: click.Command) -> None:
        found[" ".join(words)] = command
        for name, below in getattr(command, "commands", {}).items():
            walk((*words, name), below)

    walk((), typer.main.get_command(app))
    return found


def test_every_command_in_the_documents_exists_with_its_options() -> None:
    known, wrong = commands(), []
    for page in PAGES:
        for said in COMMAND.findall(page.read_text(encoding="utf-8")):
            words = shlex.split(said.replace("'", " "))
            named = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in known), None)
            options = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word)}
            if named is None or not options <= {name for one in known[named].params for name in one.opts} | {"--help"}:
                wrong.append(f"{page.name}: latchboard {said}")
    assert wrong == []


def test_every_command_has_its_line_in_the_table_of_the_command_line() -> None:
    table = (
        (ROOT / "docs" / "how-to" / "operate.md")
        .read_text(encoding="utf-8")
        .partition("## The command line")[2]
        .partition("\n## ")[0]
    )
    groups = {"", "account", "user", "keys", "deadletters"}
    assert [name for name in commands() if name not in groups and name not in table] == []


def test_the_settings_in_the_documents_are_those_of_the_program() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    operations = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    table = operations.partition("## Settings")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    listed = {PREFIX + name.removeprefix(PREFIX).removeprefix("_") for row in rows for name in row}
    shortened = {
        name if name in known else next((one for one in known if one.endswith(name[len(PREFIX) :])), name) for name in listed
    }
    assert (sorted(known - shortened), sorted(shortened - known)) == ([], [])
    named = {name for page in PAGES for name in re.findall(r"LATCHBOARD_[A-Z_]+[A-Z]", page.read_text(encoding="utf-8"))}
    others = {
        f"LATCHBOARD_{name}"
        for name in ("PASSWORD", "NEW_PASSWORD", "API_KEY", "TOKEN", "URL", "SERVICE_HOST", "HTTP_BIND", "AUDIT_STREAM_SECRET")
    }
    of_tests = ("LATCHBOARD_TEST_", "LATCHBOARD_BENCH_", "LATCHBOARD_PROPERTY_")
    assert sorted(name for name in named - known - others if not name.startswith(of_tests)) == []


def test_the_architecture_names_every_room_worker_and_law() -> None:
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    rust = [folder.name for folder in (ROOT / "rust").iterdir() if (folder / "Cargo.toml").exists()]
    adapters = [folder.name for folder in (ROOT / "src" / "adapters").iterdir() if (folder / "__init__.py").exists()]
    loops = [
        name
        for path in (ROOT / "src" / "app" / "workers").glob("*.py")
        for name in re.findall(r'^    name = "(\w+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert [name for name in rust if f"rust/{name}" not in text] == []
    assert [name for name in adapters if not re.search(rf"\b{name}\b", text)] == []
    assert [name for name in loops if f"`{name}`" not in text] == []
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    stack = next(one["layers"] for one in contracts if "domain.kernel" in one.get("layers", []))
    assert f"`{' / '.join(layer.replace('domain.', '') for layer in stack)}`" in text


def test_the_example_of_an_endpoint_is_one_of_the_program() -> None:
    page = (ROOT / "docs" / "how-to" / "add-an-endpoint.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    shown = [line.partition("  #")[0] for line in block[1].splitlines()]
    program = (ROOT / "src/adapters/http/api/projects.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown if line not in program] == []


SOURCE_PATH = re.compile(r"`((?:src|rust|tests|benches)/[\w./*-]+)`")
READMES = [ROOT / folder / "README.md" for folder in ("rust", "src/domain", "src/adapters", "src/app", "tests")]
HISTORY = ROOT / "docs" / "decisions"
"""Decision records keep the file names of their time."""


@pytest.mark.parametrize(
    "page",
    [page for page in (*PAGES, *READMES) if HISTORY not in page.parents],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_source_paths_in_the_documents_exist(page: Path) -> None:
    named = SOURCE_PATH.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_short_readme_is_short_and_names_every_folder(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    folders = [folder.name for folder in page.parent.iterdir() if folder.is_dir() and not folder.name.startswith(("__", "."))]
    assert [name for name in folders if f"`{name}`" not in text] == []
    assert len(text.splitlines()) <= 45


def test_every_decision_has_a_number_of_its_own_and_its_title_tells_it() -> None:
    numbers = [page.name[:4] for page in (ROOT / "docs/decisions").glob("*.md")]
    assert sorted(set(numbers)) == sorted(numbers)
    titles = {page.name[:4]: page.read_text(encoding="utf-8").split()[1] for page in (ROOT / "docs/decisions").glob("*.md")}
    assert {number: title for number, title in titles.items() if title != number} == {}
