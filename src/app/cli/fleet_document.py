"""Reads a fleet's file, YAML 1.2 or JSON, and remembers the line of each of its parts; writes one.

In YAML 1.2 `ON` and `OFF` are text, as the names of commands are. A time without quotes is text, too.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scanner import Scanner

from domain.kernel.dataclasses import service

MAX_FILE_BYTES = 1_048_576
MAX_NODES = 200_000
"""Aliases can repeat a small part many times."""
MAX_DEPTH = 100
MAX_NUMBER_LENGTH = 64
_TOO_DEEP = f"its parts are more than {MAX_DEPTH} deep, or one contains itself."


class FleetFileError(Exception):
    """The file cannot be used. The message says where and why."""


@dataclass(slots=True)
class FleetDocumentWithLines:
    """`lines`: the line, from 1, of each dotted path. `variables`: those that the file names, with their values."""

    name: str
    document: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict, repr=False)

    def hide(self, text: str) -> str:
        """The text with the variables' names in the place of their values."""
        for name, value in sorted(self.variables.items(), key=lambda one: -len(one[1])):
            text = text.replace(value, f"${{{name}}}")
        return text

    def place(self, path: str) -> str:
        """Such as `fleet.yaml:41: devices[3].rules[0].name`."""
        known = path
        while known not in self.lines and "." in known:
            known = known.rpartition(".")[0]
        line = self.lines.get(known)
        shown = "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path.split(".")).removeprefix(".")
        return f"{self.name}:{line}: {shown}" if line is not None else f"{self.name}: {shown}"


def parse_fleet_file(name: str, text: str) -> FleetDocumentWithLines:
    """Raises FleetFileError."""
    if len(text.encode()) > MAX_FILE_BYTES:
        raise FleetFileError(f"{name} is larger than {MAX_FILE_BYTES:,} bytes. Divide it, by project for example.")
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Scanner = _BoundedComposer, _BoundedScanner
    try:
        node = yaml.compose(io.StringIO(text))
    except _TooDeepError as error:
        raise FleetFileError(f"{name}:{error.line}: {_TOO_DEEP}") from None
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise FleetFileError(f"{name}{line}: this is not YAML: {error.problem or error.context}.") from None
    except YAMLError as error:
        raise FleetFileError(f"{name}: this is not YAML: {error}") from None
    if not isinstance(node, MappingNode):
        raise FleetFileError(f"{name}: write sections, such as `devices:`, at the top.")
    reader = _FleetYamlReader(name=name)
    return FleetDocumentWithLines(name, reader.read(node, ""), reader.lines)


def format_fleet_file(document: dict[str, Any]) -> str:
    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 120
    text = io.StringIO()
    writer.dump(document, text)
    return text.getvalue()


class _TooDeepError(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _BoundedScanner(Scanner):
    """Stops at the first bracket that is too deep: the time for deeper ones grows with the square of their depth."""

    def fetch_flow_collection_start(self, token: Any, to_push: str) -> None:
        if len(self.flow_context) > MAX_DEPTH:
            raise _TooDeepError(self.reader.line + 1)
        super().fetch_flow_collection_start(token, to_push)


class _BoundedComposer(Composer):
    """The same for parts that are indented."""

    _depth = 0

    def compose_node(self, parent: Any, index: int) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeepError(self.parser.peek_event().start_mark.line + 1)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


@service
class _FleetYamlReader:
    name: str
    lines: dict[str, int] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def read(self, node: Node, path: str, depth: int = 0) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._count += 1
        if self._count > MAX_NODES:
            raise FleetFileError(f"{self.name}:{line}: the file has more than {MAX_NODES:,} values with its aliases.")
        if depth > MAX_DEPTH:
            raise FleetFileError(f"{self.name}:{line}: {_TOO_DEEP}")
        if isinstance(node, MappingNode):
            return self._read_mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            return [self.read(each, _below(path, str(index)), depth + 1) for index, each in enumerate(node.value)]
        assert isinstance(node, ScalarNode)  # noqa: S101 - there are three kinds of nodes
        try:
            return _scalar(node)
        except ValueError:
            shown = repr(node.value) if len(node.value) <= MAX_NUMBER_LENGTH else f"{node.value[:20]!r}…"
            raise FleetFileError(f"{self.name}:{line}: {shown} cannot be read. Write it in quotes if it is text.") from None

    def _read_mapping(self, node: MappingNode, path: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                raise FleetFileError(f"{self.name}:{line}: the name of a field must be text.")
            if key.value in found:
                raise FleetFileError(f"{self.name}:{line}: {key.value!r} is there twice. Keep one of them.")
            self.lines[_below(path, key.value)] = line
            found[key.value] = self.read(value, _below(path, key.value), depth + 1)
        return found


def _below(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _scalar(node: ScalarNode) -> Any:
    """By the core schema of YAML 1.2. Raises ValueError."""
    text, kind = str(node.value), str(node.tag).rpartition(":")[2]
    if kind in ("int", "float") and len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(kind)
    if kind == "int":
        digits = text.replace("_", "")
        return int(digits, 0) if digits.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else int(digits)
    if kind == "float":
        return float(text.replace("_", ""))
    if kind == "bool":
        return text.lower() == "true"
    return None if kind == "null" else text
