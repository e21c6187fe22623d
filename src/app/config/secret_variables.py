"""Secrets come by variables, or by files that variables name: every user of the machine can read command lines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FILE_SUFFIX = "_FILE"
MAX_SECRET_BYTES = 65_536


def read_secret(name: str, environ: Mapping[str, str | None] = os.environ) -> str | None:
    """The variable `name`, or what is in the file that `<name>_FILE` names, without the line end after it; None: neither is set.
    Raises ValueError."""
    value, path = environ.get(name), environ.get(name + FILE_SUFFIX)
    if not path:
        return value
    if value:
        raise ValueError(f"{name} and {name}{FILE_SUFFIX} are both set. Keep one of them.")
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise ValueError(f"{name}{FILE_SUFFIX} = {path}: the file cannot be read: {reason}.") from None
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"{name}{FILE_SUFFIX} = {path}: the file is larger than {MAX_SECRET_BYTES:,} bytes; it is no secret.")
    return text.removesuffix("\n").removesuffix("\r")
