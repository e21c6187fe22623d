"""The service with a clock that a test can set: libfaketime, preloaded into its process. Its monotonic clock stays true.

The offset is in a file that the library reads again each second (`CACHE_S`). Not at each call: the file would be opened and read
under one lock at every reading of any clock, of which a service under load makes thousands a second, and it would do nothing else.
"""

from __future__ import annotations

from pathlib import Path

LIBRARIES = ("libfaketimeMT.so.1", "libfaketime.so.1")
CACHE_S = 1
"""A step takes effect within this time; the library knows whole seconds only."""
FOLDERS = (*tuple(Path("/usr/lib").glob("*/faketime")), Path("/usr/lib/faketime"))


def find_library() -> Path | None:
    found = (folder / name for name in LIBRARIES for folder in FOLDERS)
    return next((path for path in found if path.exists()), None)


class FalseClock:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Within `CACHE_S` the service's clock will differ from the true one by so many seconds."""
        following = self._file.with_suffix(".next")
        following.write_text(f"{offset_s:+d}\n", encoding="ascii")
        following.replace(self._file)

    @property
    def variables(self) -> dict[str, str]:
        library = find_library()
        assert library is not None, "libfaketime is not installed; `make apt` installs it"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(CACHE_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
