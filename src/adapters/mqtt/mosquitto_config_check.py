"""Checks the configuration of a running Mosquitto."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from adapters.mqtt.mosquitto_config import FORBIDDEN, LISTENER_OPTIONS, OPTIONS

_MAX_INCLUDED_FILES = 100


def find_config_file(pid_file: Path) -> Path:
    """The configuration file of the running Mosquitto, from its command line (Linux). Raises OSError, ValueError."""
    pid = int(pid_file.read_text(encoding="ascii"))
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    for flag, value in itertools.pairwise(arguments):
        if flag in ("-c", "--config-file"):
            return Path(f"/proc/{pid}/cwd", value)
    raise ValueError("Mosquitto was started without a configuration file, so it has its defaults")


def read_config(path: Path) -> dict[str, str]:
    """The options of a configuration with its included directories; the last one counts. Raises OSError."""
    options: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "include_dir":
            for included in sorted(Path(path.parent, value.strip()).glob("*.conf"))[:_MAX_INCLUDED_FILES]:
                options |= read_config(included)
        elif name and not name.startswith("#"):
            options[name] = value.strip()
    return options


def config_faults(options: Mapping[str, str]) -> list[str]:
    """What is wrong with a configuration, most important first."""
    found = [fault for option in (*OPTIONS, *LISTENER_OPTIONS) if (fault := option.fault(options.get(option.name))) is not None]
    return found + [f"{name} is set: {reason}" for name, reason in FORBIDDEN.items() if name in options]
