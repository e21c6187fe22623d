"""Where each setting was said, and what was said that means nothing: a misspelt name is a setting that does not hold.

In `latchboard.toml`, where nobody else writes, such a name stops the start. The environment and `.env` are shared with others
(Kubernetes puts LATCHBOARD_SERVICE_HOST into them), so there it is warned about.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from dotenv import dotenv_values

PREFIX = "LATCHBOARD_"
ENVIRONMENT, DOTENV, TOML = "environment", ".env", "latchboard.toml"
COMMAND_VARIABLES = frozenset({"LATCHBOARD_PASSWORD", "LATCHBOARD_NEW_PASSWORD"})
"""Variables of single commands; no settings."""


def variables_by_source(environ: Mapping[str, str] = os.environ) -> dict[str, set[str]]:
    """By place, the first that says wins: the variables said there, in capitals. Raises OSError, ValueError."""
    toml = Path(TOML)
    return {
        ENVIRONMENT: {name.upper() for name in environ},
        DOTENV: {name.upper() for name in dotenv_values(DOTENV)} if Path(DOTENV).is_file() else set(),
        TOML: {PREFIX + name.upper() for name in tomllib.loads(toml.read_text(encoding="utf-8"))} if toml.is_file() else set(),
    }


def source_of(name: str, said: Mapping[str, Collection[str]]) -> str:
    return next((place for place, names in said.items() if name in names), "default")


def unknown_variable_messages(said: Iterable[str], known: Collection[str]) -> list[str]:
    """One text a name that is ours by its prefix and no setting; with the setting that was meant, where one is near."""
    strange = sorted(name for name in said if name.startswith(PREFIX) and name not in known and name not in COMMAND_VARIABLES)
    return [f"{name} is no setting{_suggestion(name, known)}" for name in strange]


def _suggestion(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], n=1, cutoff=0.7)
    return f"; is {PREFIX}{near[0]} meant?" if near else ""
