"""Code that a program runs before its own, in a process that is started anew: to replace a part of it, or to kill it at a point.

    write_startup_code(folder, "from app.runtime import supervisor\\n...")
    with Service(tmp_path, folder) as service: ...

Python imports `sitecustomize` from the first folder of its path that has one. It would print an error there and go on, and the test
would wait for an effect that never comes, so an error ends the program instead.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

_FRAME = """\
import os, traceback
try:
{code}
except BaseException:
    traceback.print_exc()
    os._exit(1)
"""


def write_startup_code(folder: Path, code: str) -> None:
    """`folder` is created; pass it to `Service` as the folder before the sources."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_FRAME.format(code=textwrap.indent(code, "    ")), encoding="utf-8")
