"""Command parameters against JSON Schema Draft 2020-12, with the Rust validator; schemas come from users and are not trusted.

The cost of a schema is bounded before it is compiled: its size, its depth, and the number of its nodes with every local `$ref`
expanded (a few nested references can expand to millions); circular references are rejected. Patterns run on an engine without
backtracking, in time linear in the text, so look-around and back-references are not supported. The cost of a check is bounded
before it runs: schema nodes, including enum values, times parameter values. Nothing is fetched: a `$ref` must be local.

The validator takes 3 MiB, so it is imported with the first schema.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from domain.kernel.checks import is_nested_deeper_than
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import Json, JsonObject
from domain.kernel.errors import FieldError

if TYPE_CHECKING:
    import jsonschema_rs

MAX_SCHEMA_BYTES = 16 * 1024
MAX_DEPTH = 24
MAX_SCHEMA_NODES = 5_000
MAX_REF_DEPTH = 16
"""Nested references; the validator recurses once for each."""
MAX_PATTERN_LENGTH = 256
MAX_REGEX_BYTES = 1 << 19
"""Of all compiled patterns of a schema, which share it equally: compiling keeps the event loop for as long, some 20 ms. Without a
limit `a{1000}{1000}` takes gigabytes."""
MAX_CHECK_COST = 100_000
"""Schema nodes times parameter values per check: at most about 300 ms, which block the event loop."""
CHARACTERS_PER_VALUE = 64
"""This many characters count as one more value."""
MAX_PATTERNS = 100
"""Of a schema: each takes some time to compile, however short it is."""
MAX_FAULTS = 20
MAX_FIELD_LENGTH = 200
CACHE_SIZE = 512
"""Compiled schemas in the cache, about 10 KiB each."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNSUPPORTED_KEYWORDS = frozenset(
    {"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$anchor", "$id", "$vocabulary"}
)
_DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose value is data: a `$ref` inside it is not a reference."""


class _UnusableJsonSchemaError(Exception):
    """A schema that cannot be used: the field and the reason."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.fault = FieldError(field if len(field) <= MAX_FIELD_LENGTH else "…" + field[-MAX_FIELD_LENGTH:], message)


@service
class JsonSchemaParamsValidator:
    cache_size: int = CACHE_SIZE
    compilation_count: int = field(default=0, init=False)
    _cache: OrderedDict[str, tuple[jsonschema_rs.Validator, int]] = field(default_factory=OrderedDict, init=False)

    def validate_schema(self, schema: JsonObject) -> Sequence[FieldError]:
        """The faults of the schema itself; empty when it can be used."""
        import jsonschema_rs

        try:
            _check_schema_bounds(schema)
            self._compile(schema)
        except _UnusableJsonSchemaError as error:
            return (error.fault,)
        except jsonschema_rs.ValidationError as error:
            return (FieldError(_field_path("paramsSchema", error.instance_path), _schema_error_message(error)),)
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            return (FieldError("paramsSchema", f"cannot be used: {str(error)[:200]}"),)
        return ()

    def validate(self, schema: JsonObject, params: Json) -> Sequence[FieldError]:
        """At most `MAX_FAULTS` faults, each with its path."""
        faults: list[FieldError] = []
        validator, node_count = self._compile(schema)
        if node_count * _count_values(params) > MAX_CHECK_COST:
            return (FieldError("params", "has more values than can be checked against this command's schema; send fewer."),)
        for error in validator.iter_errors(params):
            faults += _field_faults(error)
            if len(faults) >= MAX_FAULTS:
                break
        return faults[:MAX_FAULTS]

    def _compile(self, schema: JsonObject) -> tuple[jsonschema_rs.Validator, int]:
        """The compiled schema and its node count; a stored schema beyond today's limits gets the maximum count."""
        key = json.dumps(schema, sort_keys=True, separators=(",", ":"))
        known = self._cache.get(key)
        if known is not None:
            self._cache.move_to_end(key)
            return known
        self.compilation_count += 1
        import jsonschema_rs

        share = MAX_REGEX_BYTES // max(1, _count_patterns(schema))
        options = jsonschema_rs.RegexOptions(size_limit=share, dfa_size_limit=MAX_REGEX_BYTES)
        validator = jsonschema_rs.Draft202012Validator(schema, pattern_options=options, offline=True)
        try:
            node_count = _SchemaNodeCounter(root=schema).count(schema, "paramsSchema")
        except _UnusableJsonSchemaError:
            node_count = MAX_SCHEMA_NODES
        self._cache[key] = validator, node_count
        if len(self._cache) > self.cache_size:
            self._cache.popitem(last=False)
        return self._cache[key]


def _check_schema_bounds(schema: JsonObject) -> None:
    """Raises _UnusableJsonSchemaError for a schema beyond the limits."""
    if schema.get("$schema", DIALECT) not in (DIALECT, DIALECT + "#"):
        raise _UnusableJsonSchemaError("paramsSchema.$schema", f"is another dialect; use {DIALECT}, or omit it.")
    if is_nested_deeper_than(schema, MAX_DEPTH):
        raise _UnusableJsonSchemaError("paramsSchema", f"is nested deeper than {MAX_DEPTH} levels; flatten it.")
    try:
        size = len(json.dumps(schema, allow_nan=False, separators=(",", ":")).encode())
    except ValueError:
        raise _UnusableJsonSchemaError("paramsSchema", "contains a number that JSON does not allow (NaN or infinity).") from None
    if size > MAX_SCHEMA_BYTES:
        raise _UnusableJsonSchemaError("paramsSchema", f"has {size} bytes as JSON; at most {MAX_SCHEMA_BYTES} are allowed.")
    _SchemaNodeCounter(root=schema).count(schema, "paramsSchema")
    if (patterns := _count_patterns(schema)) > MAX_PATTERNS:
        raise _UnusableJsonSchemaError("paramsSchema", f"has {patterns} patterns; at most {MAX_PATTERNS} are allowed.")


def _count_patterns(node: Json) -> int:
    """The patterns of a schema, those in unused parts and in data included."""
    if isinstance(node, list):
        return sum(map(_count_patterns, node))
    if not isinstance(node, dict):
        return 0
    of_names = node.get("patternProperties")
    own = isinstance(node.get("pattern"), str) + (len(of_names) if isinstance(of_names, dict) else 0)
    return own + sum(map(_count_patterns, node.values()))


def _count_values(value: Json) -> int:
    """The number of values, including itself; long text counts as several. The depth is bounded by the caller."""
    if isinstance(value, str):
        return 1 + len(value) // CHARACTERS_PER_VALUE
    if isinstance(value, dict):
        return 1 + sum(1 + len(name) // CHARACTERS_PER_VALUE + _count_values(inner) for name, inner in value.items())
    return 1 + sum(map(_count_values, value)) if isinstance(value, list) else 1


@service
class _SchemaNodeCounter:
    """Counts the nodes of a schema with its references expanded; each target is computed once."""

    root: JsonObject
    _counts_by_ref: dict[str, int] = field(default_factory=dict, init=False)
    _open_refs: set[str] = field(default_factory=set, init=False)

    def count(self, node: Json, field: str) -> int:
        node_count = 1
        if isinstance(node, dict):
            for name, value in node.items():
                node_count += self._count_keyword(name, value, f"{field}.{name}")
        elif isinstance(node, list):
            node_count += sum(self.count(value, f"{field}.{index}") for index, value in enumerate(node))
        if node_count > MAX_SCHEMA_NODES:
            raise _UnusableJsonSchemaError(
                field, f"has more than {MAX_SCHEMA_NODES} nodes with its references expanded; simplify it."
            )
        return node_count

    def _count_keyword(self, name: str, value: Json, field: str) -> int:
        if name in ("enum", "const") and isinstance(value, list):
            return _count_values(value)  # each value is compared
        if name in _DATA_KEYWORDS and not isinstance(value, dict):
            return 1
        if name in _UNSUPPORTED_KEYWORDS and isinstance(value, str):
            raise _UnusableJsonSchemaError(field, f"{name} is not supported; use a $ref to a path such as #/$defs/name.")
        if name == "$ref" and isinstance(value, str):
            return self._count_ref_target(value, field)
        if name == "pattern" and isinstance(value, str) and len(value) > MAX_PATTERN_LENGTH:
            raise _UnusableJsonSchemaError(field, f"is longer than {MAX_PATTERN_LENGTH} characters; shorten it.")
        if name == "patternProperties" and isinstance(value, dict) and any(len(one) > MAX_PATTERN_LENGTH for one in value):
            raise _UnusableJsonSchemaError(field, f"has a pattern longer than {MAX_PATTERN_LENGTH} characters; shorten it.")
        return self.count(value, field)

    def _count_ref_target(self, ref: str, field: str) -> int:
        if ref in self._counts_by_ref:
            return self._counts_by_ref[ref]
        if not ref.startswith("#"):
            raise _UnusableJsonSchemaError(
                field, "is not local; only paths in the same schema are allowed, such as #/$defs/name."
            )
        if ref in self._open_refs:
            raise _UnusableJsonSchemaError(field, "is circular; a parameter schema must be finite.")
        if len(self._open_refs) >= MAX_REF_DEPTH:
            raise _UnusableJsonSchemaError(field, f"is nested in more than {MAX_REF_DEPTH} references; write it out.")
        self._open_refs.add(ref)
        self._counts_by_ref[ref] = self.count(_resolve_ref(self.root, ref, field), field)
        self._open_refs.discard(ref)
        return self._counts_by_ref[ref]


def _resolve_ref(root: JsonObject, ref: str, field: str) -> Json:
    """JSON Pointer (RFC 6901) without percent-encoding: two spellings of one path would bypass the cycle check."""
    node: Json = root
    if ref != "#" and not ref.startswith("#/"):
        raise _UnusableJsonSchemaError(field, "names an anchor; use a path such as #/$defs/name.")
    if "%" in ref:
        raise _UnusableJsonSchemaError(field, "contains a percent sign; write the path without percent-encoding.")
    for part in ref.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            raise _UnusableJsonSchemaError(field, f"names {ref[:64]!r}, which does not exist in the schema.")
    return node


def _field_path(start: str, path: Sequence[str | int]) -> str:
    return ".".join((start, *(str(part) for part in path)))


def _field_faults(error: jsonschema_rs.ValidationError) -> Iterator[FieldError]:
    """A missing or unknown property is reported with its own path, not that of its object."""
    import jsonschema_rs

    kind: Any = error.kind
    path = _field_path("params", error.instance_path)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        yield FieldError(f"{path}.{kind.property}", "is required.")
    elif isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        for name in kind.unexpected:
            yield FieldError(f"{path}.{name}", "is not a parameter of this command.")
    else:
        yield FieldError(path, f"{error.message[:300]}.")


def _schema_error_message(error: jsonschema_rs.ValidationError) -> str:
    where = error.instance_path[-1] if error.instance_path else ""
    if where == "pattern" or "regex" in error.message[-20:]:
        return (
            "is not a supported pattern: it must not use look-around or back-references, and must not be too large. The patterns "
            "of a schema share a limit: use fewer of them, or shorter repetitions."
        )
    return f"is not JSON Schema 2020-12: {error.message[:200]}."
