"""The sources of `examples/firmware`. In a checkout they lie beside `src`; a wheel has them beside the packages. A port of its
own."""

from __future__ import annotations

from pathlib import Path

_PACKAGES = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGES / "examples" / "firmware", _PACKAGES.parent / "examples" / "firmware")


class ExampleFirmwareSourceReader:
    def __init__(self) -> None:
        self._root = next((place for place in _PLACES if place.is_dir()), _PLACES[0])

    def read(self, path: str) -> str:
        """Raises OSError if the installation lacks the file."""
        return (self._root / path).read_text(encoding="utf-8")
