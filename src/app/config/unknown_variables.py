"""Variables that are no settings, for example because of a typing error, with a suggestion.

An unknown name in `latchboard.toml` is an error, because the file is only ours. In the environment and in `.env` it is a warning:
other programs write there too (Kubernetes sets LATCHBOARD_SERVICE_HOST).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from app.config.setting_sources import PREFIX

COMMAND_VARIABLES = frozenset({f"LATCHBOARD_{name}" for name in ("API_KEY", "NEW_PASSWORD", "PASSWORD", "TOKEN", "URL")})
"""Variables that single commands read; they are not settings."""


def unknown_variable_messages(names: Iterable[str], known: Collection[str]) -> list[str]:
    """One message for each name with our prefix that is not a setting, with the most similar setting if there is one."""
    unknown = sorted(name for name in names if name.startswith(PREFIX) and name not in known and name not in COMMAND_VARIABLES)
    return [f"{name} is not a setting{_suggestion(name, known)}" for name in unknown]


def _suggestion(name: str, known: Collection[str]) -> str:
    similar = difflib.get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], n=1, cutoff=0.7)
    return f"; did you mean {PREFIX}{similar[0]}?" if similar else ""
