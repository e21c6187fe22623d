"""A Protocol needs two implementations or a wall that it holds; a part has one transaction type; what a constructor only keeps is
declared as fields."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from house.measure import Module, is_protocol, protocol_percent, read_modules

PROTOCOL_PERCENT = 12
"""The goal is 10: some twenty are named in one other file only and are to go."""
OWN_CONSTRUCTORS = {"ColumnarRecords": "it has slots, and is made for every batch"}
"""Of the domain: they store what they are given, and have a reason not to be `@service`."""


def is_list_of_repositories(node: ast.ClassDef) -> bool:
    """A Protocol of properties alone."""
    members = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    return is_protocol(node) and all(
        isinstance(each, ast.FunctionDef)
        and any(isinstance(name, ast.Name) and name.id == "property" for name in each.decorator_list)
        for each in members
    )


def stores_only(node: ast.ClassDef) -> bool:
    """Whether its constructor takes names, or several values, and does nothing but keep them."""
    [*found] = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    if not found:
        return False
    given = found[0].args
    names = {each.arg for each in (*given.posonlyargs, *given.args[1:], *given.kwonlyargs)}
    body = found[0].body[1:] if ast.get_docstring(found[0]) else found[0].body
    return (bool(given.kwonlyargs) or len(names) > 1) and all(
        isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id in names
        for each in body
    )


def in_domain(module: Module) -> bool:
    return module.name.startswith("domain/")


def takes_names(node: ast.ClassDef) -> bool:
    return any(each.args.kwonlyargs for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")


def test_few_classes_are_protocols() -> None:
    assert protocol_percent(read_modules()) < PROTOCOL_PERCENT


def test_no_protocol_lists_the_repositories_of_one_service() -> None:
    found = [
        f"{module.name}:{node.name}"
        for module in read_modules()
        for node in module.classes
        if re.match("Has[A-Z]", node.name) and is_list_of_repositories(node)
    ]
    assert found == []


def test_a_part_has_one_transaction_type() -> None:
    found = defaultdict[str, list[str]](list)
    for module in filter(in_domain, read_modules()):
        found[module.name.split("/")[1]] += [node.name for node in module.classes if node.name.endswith("Tx")]
    assert {part: names for part, names in found.items() if len(names) > 1} == {}


def test_what_a_constructor_only_keeps_is_declared_as_fields() -> None:
    """By `@service`. A class outside the domain may take a few values by their place."""
    found = [
        f"{module.name}:{node.name}"
        for module in read_modules()
        for node in module.classes
        if stores_only(node) and (in_domain(module) or takes_names(node)) and node.name not in OWN_CONSTRUCTORS
    ]
    assert found == []


def test_the_search_sees_a_constructor_that_only_keeps() -> None:
    """The test above can fail."""
    [kept, computed] = ast.parse(
        "class A:\n def __init__(self, *, uow): self._uow = uow\nclass B:\n def __init__(self, *, uow): self._uow = wrap(uow)"
    ).body
    assert isinstance(kept, ast.ClassDef)
    assert isinstance(computed, ast.ClassDef)
    assert stores_only(kept)
    assert not stores_only(computed)
