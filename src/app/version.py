"""This release's number, as Cargo.toml states it: the wheel's metadata carry it."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("latchboard")
except PackageNotFoundError:
    VERSION = "0+source"  # run from sources that are not installed
