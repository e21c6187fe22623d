"""What is in the repository holds on every machine: no path of one, no address of a package registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MACHINE_PATHS = re.compile(r"(?<![\w.$}/])/(?:work|home/\w|root|Users/\w)/")
HOSTS = ("pypi org", "pythonhosted org", "crates io/api", "index.crates io", "npmjs org")
"""With a space for the last dot, so that this file does not contain them."""
REGISTRIES = re.compile("|".join(re.escape(host.replace(" ", ".")) for host in HOSTS), re.IGNORECASE)
BINARY = {".png", ".ico", ".woff2", ".so", ".db"}


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed if (ROOT / name).is_file() and Path(name).suffix not in BINARY]


def offenders(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_no_file_names_a_path_of_one_machine() -> None:
    assert not offenders(MACHINE_PATHS)


def test_no_file_names_a_package_registry() -> None:
    """Whoever builds decides where packages come from; the locks hold versions and hashes. (Cargo.lock names its source by
    design.)"""
    assert not [line for line in offenders(REGISTRIES) if not line.partition(":")[0].endswith("Cargo.lock")]
