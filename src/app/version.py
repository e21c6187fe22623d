"""This release's number, as Cargo.toml states it: the wheel's metadata carry it."""

from importlib.metadata import version

VERSION = version("latchboard")
