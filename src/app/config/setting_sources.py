"""Where each setting comes from."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from dotenv import dotenv_values

PREFIX = "LATCHBOARD_"
ENVIRONMENT, DOTENV, TOML = "environment", ".env", "latchboard.toml"


def variables_by_source(environ: Mapping[str, str] = os.environ) -> dict[str, set[str]]:
    """Source → variables set there, in capitals. An earlier source has precedence. Raises OSError, ValueError."""
    toml = Path(TOML)
    return {
        ENVIRONMENT: {name.upper() for name in environ},
        DOTENV: {name.upper() for name in dotenv_values(DOTENV)} if Path(DOTENV).is_file() else set(),
        TOML: {PREFIX + name.upper() for name in tomllib.loads(toml.read_text(encoding="utf-8"))} if toml.is_file() else set(),
    }


def source_of(name: str, by_source: Mapping[str, Collection[str]]) -> str:
    return next((source for source, names in by_source.items() if name in names), "default")
