"""The program's version, from its installed metadata; `0` when it runs from a checkout that was never installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("latchboard")
except PackageNotFoundError:
    VERSION = "0"
