"""The sentences that the service can send, read from its source: event descriptions, explanations, notifications, error messages.

A sentence is known by its English template, with its values as {1}, {2}, …; `locales/de.json` of the dashboard is keyed by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from domain.kernel import errors

SOURCE = Path(__file__).parents[2] / "src"
LOCALES = SOURCE / "adapters" / "http" / "dashboard" / "assets" / "locales"

PLACES = ("domain", "adapters/http/core/errors.py", "adapters/http/core/parsing.py")
"""Whose texts are collected whole; elsewhere in `adapters/http`, those of errors."""
NEVER_SHOWN = (
    "domain/audit/",  # `latchboard audit verify`, in a terminal
    "domain/devices/catalog.py",
    "domain/devices/firmware.py",  # code for the device
    "domain/fleet_file/",  # `latchboard apply`, in a terminal
    "domain/homeassistant/",
    "domain/ingest/dead_letters.py",
    "domain/kernel/canonical_json.py",
    "domain/kernel/dataclasses.py",
    "domain/partitions/",
    "domain/team/operator.py",
)
QUIET_CALLS = frozenset(
    {"debug", "info", "warning", "error", "exception", "critical", "Field", "Operation", "RuntimeError", "ValueError", "AssertionError", "TypeError", "compile", "_invalid_json"}
)  # fmt: skip
"""Their arguments go to the log, into the OpenAPI document, or are a fault of the program, such as JSON that no dashboard sends."""
WORDS = re.compile(r"[a-z]{2,}")
NO_SENTENCES = frozenset(
    {
        'Bearer realm="latchboard"',
        "Value error, ",
        "be ",
        "must be ",
        "must {1}",
        "{1} min",
        "an edge did not run, more to come",
        "cancelled or replaced",
        "off ran, more to come",
        "on ran, more to come",
        "the last edge was decided",
        "Callable[[Sequence[tuple[int, OutboundHttpResponse]]], None]",
    }
)
VALUES = frozenset(
    [
        "ON",
        "on",
        "off",
        "OFF",
        "online",
        "offline",
        "disconnected",
        "lost",
        "revoked",
        "stopped",
        "taken_over",
        "ahead",
        "back",
        "behind",
        "once",
        "enabled",
        "disabled",
        "approved",
        "denied",
        "least",
        "most",
        "character",
        "characters",
        "item",
        "items",
        "READ",
        "WRITE",
        "PENDING",
        "REVOKED",
        "DISABLED",
        "ACTIVE",
    ]
) | {
    "every day ({1})",
    "every day {1} ({2})",
    "must be greater than {1}.",
    "must be greater than or equal to {1}.",
    "must be less than {1}.",
    "must be less than or equal to {1}.",
    "your network",
    "your password",
}
"""What stands in a sentence as a value and has a text of its own; what Pydantic says of numbers."""
CODES = re.compile(r"[A-Z_ {}1-9]+")
ERRORS = frozenset(name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception))


def sent_sentences() -> set[str]:
    """The templates of all sentences."""
    shown = [path for place in PLACES for path in _files(SOURCE / place) if not _relative(path).startswith(NEVER_SHOWN)]
    found = {each for path in shown for each in _sentences(ast.parse(path.read_text()))}
    for path in _files(SOURCE / "adapters/http"):
        raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and _base(node) in ERRORS]
        found.update(each for node in raised for argument in node.args for each in _sentences(argument))
    return {each for each in found if WORDS.search(each) and not CODES.fullmatch(each)} - NO_SENTENCES


def _files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def _base(node: ast.Call) -> str:
    """`ValidationFailed` of `ValidationFailed(…)` and of `ValidationFailed.for_field(…)`."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id
    return getattr(function, "id", "")


def _sentences(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node.func) in QUIET_CALLS:
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.AnnAssign):
        yield from _sentences(node.value) if node.value else ()
        return
    parts = _parts(node)
    if parts is not None:
        template = template_of(parts)
        if " " in template:
            yield template
        for part in parts:
            if not isinstance(part, str):
                yield from _sentences(part)
        return
    for child in ast.iter_child_nodes(node):
        yield from _sentences(child)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _parts(node: ast.AST) -> list[str | ast.expr] | None:
    """A text and the expressions in it; None if the node is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return [each.value for each in values]  # type: ignore[attr-defined]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if (_parts(left) or _parts(right)) is not None:
            return [*(_parts(left) or [left]), *(_parts(right) or [right])]
    return None


def template_of(parts: list[str | ast.expr]) -> str:
    """Neighbouring values are one: nobody could tell where the first ends. A mail keeps the names of its values."""
    marked = "".join(part if isinstance(part, str) else "\0" for part in parts)
    if "\n" in marked:
        return marked
    marked = re.sub(r"\{[a-z_]+\}", "\0", marked)
    numbers = iter(range(1, 100))
    return re.sub("\0+", lambda _: f"{{{next(numbers)}}}", marked)
