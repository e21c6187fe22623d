"""Whether the OpenAPI document describes an answer of the service: its status, error code, headers, content type and body.

The clients of the tests check every answer that they get. The document is built once for all processes, and a schema is compiled at
its first answer. Answers of no operation (an unknown path, a method that the path does not have) and of other programs are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

ROOT = Path(__file__).resolve().parents[2]
SOURCES, KEPT = ROOT / "src", ROOT / "target" / "described.json"
PREFIX = "/api/v1/"
DOCUMENT = "urn:latchboard"
MAX_BODY_BYTES = 1_000_000
"""A longer body is not compared with its schema."""
GENERAL_HEADERS = {
    *(
        "content-length",
        "content-type",
        "content-encoding",
        "cache-control",
        "connection",
        "date",
        "server",
        "vary",
        "transfer-encoding",
    ),
    *("x-content-type-options", "x-frame-options", "referrer-policy", "cross-origin-resource-policy", "content-security-policy"),
    *("strict-transport-security", "access-control-allow-origin", "access-control-expose-headers", "alt-svc"),
}
"""Those of HTTP itself and of the policies that every response has."""


async def _build() -> dict[str, Any]:
    from adapters.http.documents.openapi import build_document
    from app.config.settings import Settings
    from app.wiring.compose import compose

    with tempfile.TemporaryDirectory() as folder:
        program = compose(Settings.model_construct(data_dir=Path(folder), engine="reference", broker="mqtt://127.0.0.1"))
        try:
            return build_document(program.http_app, version="0")
        finally:
            await program.adapters.courier.close()
            program.adapters.hasher.close()
            program.adapters.login_hasher.close()


def _fingerprint() -> str:
    """Of the sources, by what their folders say of them."""
    found = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*")):
        if file.suffix in (".py", ".json") and "__pycache__" not in file.parts:
            known = file.stat()
            found.update(f"{file} {known.st_mtime_ns} {known.st_size}\n".encode())
    return found.hexdigest()


@cache
def document() -> dict[str, Any]:
    """Of the program in this checkout. It is built in a thread of its own, because the caller's has a running loop, and kept for the
    next process while the sources stay as they are."""
    fingerprint = _fingerprint()
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(KEPT.read_text("utf-8"))
        if kept["fingerprint"] == fingerprint:
            return dict(kept["document"])
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(lambda: asyncio.run(_build())).result()
    with contextlib.suppress(OSError):
        KEPT.parent.mkdir(exist_ok=True)
        written = KEPT.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({"fingerprint": fingerprint, "document": made}), "utf-8")
        written.replace(KEPT)
    return made


@cache
def _registry() -> Any:
    return jsonschema_rs.Registry([(DOCUMENT, {"components": document()["components"]})])


@cache
def _paths() -> Mapping[int, list[tuple[list[str], str]]]:
    """By the number of their parts; those with fewer variables first."""
    found: dict[int, list[tuple[list[str], str]]] = {}
    for path in sorted(document()["paths"], key=lambda path: (path.count("{"), path)):
        parts = path.split("/")
        found.setdefault(len(parts), []).append((parts, path))
    return found


def path_of(path: str) -> str | None:
    """As the document writes it."""
    given = path.split("/")
    for parts, found in _paths().get(len(given), ()):
        if all(part == one or (part.startswith("{") and one) for part, one in zip(parts, given, strict=True)):
            return found
    return None


@cache
def _validator(method: str, path: str, status: str, kind: str) -> Any:
    """None for content without a schema."""
    schema = document()["paths"][path][method]["responses"][status]["content"][kind].get("schema")
    if schema is None:
        return None
    return jsonschema_rs.validator_for(json.loads(json.dumps(schema).replace('"#/', f'"{DOCUMENT}#/')), registry=_registry())


def undescribed(answer: httpx.Response) -> list[str]:
    """What the document does not say of this answer, whose body has been read."""
    request = answer.request
    method, path = request.method.lower(), request.url.path
    if not path.startswith(PREFIX) or "x-request-id" not in answer.headers:
        return []
    known = path_of(path)
    operation = None if known is None else document()["paths"][known].get(method)
    if known is None or operation is None:
        return []
    described = operation["responses"].get(str(answer.status_code))
    if described is None:
        return [f"the status {answer.status_code}: {answer.text[:300]}"]
    headers = {name.lower() for name in described.get("headers", {})} | GENERAL_HEADERS
    wrong = [f"the header {name}" for name in answer.headers if name not in headers]
    if not answer.content:
        return wrong
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind not in described.get("content", {}):
        return [*wrong, f"the content type {kind or 'of nothing'}"]
    validator = _validator(method, known, str(answer.status_code), kind)
    if validator is None or len(answer.content) > MAX_BODY_BYTES:
        return wrong
    return wrong + [
        f"{'.'.join(map(str, one.instance_path)) or 'the body'}: {one.message[:300]}"
        for one in validator.iter_errors(answer.json())
    ]


def assert_described(answer: httpx.Response) -> None:
    """Fail the test that got an answer of which the document says nothing, or something else."""
    wrong = undescribed(answer)
    assert not wrong, (
        f"{answer.request.method} {answer.request.url.path} answered {answer.status_code}, and the OpenAPI document does not describe "
        f"{'; '.join(wrong)}. Name a code in the operation's `errors` (or beside the step in adapters/http/core that raises it), a "
        "header in adapters/http/core/headers.py, a field in the response's model."
    )
