"""How deeply a JSON value is nested. Validators, databases and browsers that read it recursively rely on this bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_nested_deeper_than(value: Any, levels: int) -> bool:
    """Whether more than `levels` arrays and objects lie inside each other; a scalar has none. Iterative: any depth is safe."""
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        containers = [child for one in containers for child in _children(one) if isinstance(child, dict | list)]
        if not containers:
            return False
    return bool(containers)


def _children(container: Any) -> Sequence[Any]:
    return list(container.values()) if isinstance(container, dict) else container
