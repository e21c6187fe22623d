"""Every input is bounded: each number and text of each request has limits in the document, and the service enforces them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from security.people import People, gather
from support.in_process_app import in_process_app

METHODS = ("get", "post", "put", "patch", "delete")
ANY = {"params", "value", "queuedAt", "paramsSchema", "readings"}
"""Fields that take any JSON, or a JSON Schema: bounded by the body's 256 KiB and 32 levels."""
BEYOND = (2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**300)


def _inputs(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            operation = item.get(method, {})
            where = f"{method.upper()} {path}"
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query":
                    yield f"{where} ?{parameter['name']}", parameter["schema"]
            if "requestBody" in operation:
                yield where, operation["requestBody"]["content"]["application/json"]["schema"]


def _unbounded(where: str, schema: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _unbounded(where, document["components"]["schemas"][name], document)
        return
    if where.rpartition(".")[2] in ANY or "enum" in schema or "const" in schema:
        return
    for one in [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]:
        yield from _unbounded(where, one, document)
    kind = schema.get("type")
    if kind == "integer" and not {"minimum", "maximum"} <= schema.keys():
        yield f"{where}: a whole number without minimum and maximum"
    if kind == "string" and "maxLength" not in schema and "{" not in schema.get("pattern", ""):
        yield f"{where}: text without maxLength"
    if kind == "array":
        if "maxItems" not in schema:
            yield f"{where}: an array without maxItems"
        yield from _unbounded(f"{where}[]", schema.get("items", {}), document)
    for name, inner in schema.get("properties", {}).items():
        yield from _unbounded(f"{where}.{name}", inner, document)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    import asyncio
    import tempfile

    async def read() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            async with in_process_app(Path(folder)) as program:
                answer: dict[str, Any] = (await program.http.get("/openapi.json")).json()
                return answer

    return asyncio.run(read())


def test_every_input_of_the_document_is_bounded(document: dict[str, Any]) -> None:
    found = sorted({one for where, schema in _inputs(document) for one in _unbounded(where, schema, document)})
    assert found == []


def _whole_numbers(schema: dict[str, Any], document: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    kinds = [schema, *schema.get("anyOf", [])]
    if any(one.get("type") == "integer" for one in kinds):
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from _whole_numbers(inner, document, (*path, name))


async def test_integers_beyond_64_bits_are_refused_by_field(tmp_path: Path, document: dict[str, Any]) -> None:
    async with in_process_app(tmp_path) as program:
        people = await gather(program)
        tried = 0
        for where, schema in _inputs(document):
            if "?" in where:
                continue
            for path in _whole_numbers(schema, document):
                await _refused_by_name(people, where, path)
                tried += 1
        assert tried >= 15


async def _refused_by_name(people: People, where: str, path: tuple[str, ...]) -> None:
    method, _, template = where.partition(" ")
    ids = await people.ours.create(f"{method} {template.removeprefix('/api/v1')}")
    address = template.format(**ids, **{name: "0" for name in ("slot",) if name not in ids})
    for number in BEYOND:
        body: Any = number
        for name in reversed(path):
            body = {name: body}
        answer = await people.callers["Owner"].send(method, address, body)
        assert answer.status_code == 400, f"{where} {path} {number}: {answer.status_code} {answer.text}"
        assert ".".join(path) in {fault["field"] for fault in answer.json()["details"]}, f"{where} {path}: {answer.text}"
