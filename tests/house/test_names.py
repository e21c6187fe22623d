"""A name is read with its path: a file has one or two words, its folder is not said again, and a class name stands once in its part."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path, PurePosixPath

import pytest

from house.measure import MIGRATIONS, Module, read_modules

WORDS = 2
TERMS = {
    "unit_of_work": "of domain-driven design and of SQLAlchemy",
    "dead_letter_replay": "a dead letter, of messaging",
    "second_factor_settings": "a second factor, of authentication",
}
"""File names of three words, and the field's term in each."""
WORDS_FOR_NOTHING = {"util", "utils", "helper", "helpers", "common", "manager", "base", "misc"}


def modules() -> list[Module]:
    return [module for module in read_modules() if MIGRATIONS not in module.name]


def files() -> list[PurePosixPath]:
    return [PurePosixPath(module.name) for module in modules() if not module.name.endswith("/__init__.py")]


def folders() -> list[PurePosixPath]:
    return sorted({folder for file in files() for folder in file.parents if folder.name})


def words(name: str) -> list[str]:
    return name.strip("_").split("_")


def without_plural(name: str) -> set[str]:
    return {word.removesuffix("s") for word in words(name)}


def names_its_folder(file: PurePosixPath) -> bool:
    """The first folder is a layer, whose name is no subject."""
    return any(without_plural(folder) & without_plural(file.stem) for folder in file.parts[1:-1])


def test_a_file_name_has_one_or_two_words() -> None:
    long = [str(file) for file in files() if len(words(file.stem)) > WORDS and file.stem not in TERMS]
    assert long == []


def test_a_term_of_three_words_is_used() -> None:
    assert TERMS.keys() <= {file.stem for file in files()}


def test_no_file_is_two_things() -> None:
    assert [str(path) for path in [*files(), *folders()] if "and" in words(path.stem)] == []


def test_no_file_repeats_its_folder() -> None:
    assert [str(file) for file in files() if names_its_folder(file)] == []


@pytest.mark.parametrize("name", ["domain/webhooks/webhook_health.py", "adapters/storage/sql/sqlite/sqlite_session.py"])
def test_the_search_sees_a_repeated_folder(name: str) -> None:
    """The test above can fail."""
    assert names_its_folder(PurePosixPath(name))


def test_no_file_and_no_folder_is_named_after_nothing() -> None:
    assert [str(path) for path in [*files(), *folders()] if WORDS_FOR_NOTHING & set(words(path.stem))] == []


def part_of(module: Module) -> str:
    """The package two levels deep."""
    return "/".join(Path(module.name).parts[:2])


def test_a_class_name_stands_once_in_its_part() -> None:
    places = defaultdict[tuple[str, str], list[str]](list)
    for module in modules():
        for node in module.classes:
            places[part_of(module), node.name].append(module.name)
    assert {key: found for key, found in places.items() if len(found) > 1} == {}


def base_names(node: ast.ClassDef) -> set[str]:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return {base.id for base in bases if isinstance(base, ast.Name)}


def model_names() -> set[str]:
    """Every class below pydantic's `BaseModel`: the OpenAPI document names a schema by its class alone."""
    classes = [node for module in modules() for node in module.classes]
    found, before = {"BaseModel"}, set[str]()
    while found != before:
        before = set(found)
        found |= {node.name for node in classes if base_names(node) & found}
    return found - {"BaseModel"}


def test_a_model_of_the_api_has_a_name_of_its_own() -> None:
    models = model_names()
    assert len(models) > 100
    counted = Counter(node.name for module in modules() for node in module.classes if node.name in models)
    assert {name: count for name, count in counted.items() if count > 1} == {}
