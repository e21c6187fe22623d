"""The wheel holds every package. maturin drops one silently when its name is missing from the list, or when git ignores a
file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.ports import free_ports
from support.thoroughness import THOROUGH
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"
LARGEST_WHEEL_BYTES = 8_000_000
"""With debug symbols the extension alone has 31 MB."""


def settings() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["maturin"]
    return found


def test_every_top_level_package_is_listed() -> None:
    assert sorted(path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists()) == sorted(
        settings()["python-packages"]
    )  # type: ignore[call-overload]


def test_every_folder_with_python_files_is_a_package() -> None:
    """A folder without `__init__.py` imports from a checkout and is missing from an installed program's type checks."""
    folders = {path.parent for path in SOURCES.rglob("*.py")} - {SOURCES}
    assert not sorted(str(folder.relative_to(SOURCES)) for folder in folders if not (folder / "__init__.py").exists())


def test_the_storage_for_tests_lies_outside_the_packages() -> None:
    """`support.memory_storage` serves unit tests only; a package below `src` would be installed with the program."""
    assert (ROOT / "tests" / "support" / "memory_storage").is_dir()
    assert not [path for path in SOURCES.rglob("*memory*") if "__pycache__" not in path.parts]


def test_the_wheel_holds_all_sources(tmp_path: Path) -> None:
    """Built from the checkout as it is, with the extension taken from the build that `make setup` left."""
    if not THOROUGH:
        pytest.skip("it takes a minute; a thorough run does it")
    extension = SOURCES / "adapters" / "engine" / "_native.abi3.so"
    if not extension.exists() or not (ROOT / "target" / "release").exists():
        pytest.skip("the extension is not built here; `make setup` builds it")
    built = subprocess.run(
        [sys.executable, "-m", "maturin", "build", "--release", "--strip", "--locked", "--offline", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-2_000:]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    wanted = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*") if _belongs(path)}
    assert not wanted - names
    firmware = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples" / "firmware").rglob("*") if path.is_file()}
    assert not {path for path in firmware if "__pycache__" not in path} - names
    assert any(name.startswith("adapters/engine/_native") and name.endswith(".so") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benches/", "data/", "support/")) or "memory" in name]
    assert wheel.stat().st_size < LARGEST_WHEEL_BYTES
    _install_as_a_service_and_run(wheel, tmp_path)


def _install_as_a_service_and_run(wheel: Path, folder: Path) -> None:
    """What deploy/systemd/install.sh installs starts, answers its own health check, and stops on SIGTERM."""
    prefix, units, settings = folder / "prefix", folder / "units", folder / "latchboard.env"
    paths = {"PREFIX": str(prefix), "UNIT_DIR": str(units), "SETTINGS_FILE": str(settings)}
    script = ROOT / "deploy" / "systemd" / "install.sh"
    for _ in ("install", "upgrade"):
        installed = subprocess.run(
            [script, wheel], env=os.environ | paths, capture_output=True, text=True, timeout=300, check=False
        )
        assert installed.returncode == 0, installed.stderr[-2_000:]
    assert (units / "latchboard.service").exists()
    assert "LATCHBOARD_MQTT_HOST=0.0.0.0" in settings.read_text(encoding="utf-8")
    program, ports = prefix / "bin" / "latchboard", free_ports(3)
    environment = {
        "PATH": os.environ["PATH"],
        "LATCHBOARD_DATA_DIR": str(folder / "state"),
        "LATCHBOARD_HTTP_PORT": str(ports[0]),
    }
    environment |= {"LATCHBOARD_MQTT_PORT": str(ports[1]), "LATCHBOARD_MQTT_WS_PORT": str(ports[2])}
    with (folder / "output").open("w") as output:
        service = subprocess.Popen([program, "serve"], cwd=folder, env=environment, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while subprocess.run([program, "health"], cwd=folder, env=environment, capture_output=True, check=False).returncode:
                assert service.poll() is None, (folder / "output").read_text()
                assert time.monotonic() < deadline, "not ready in time"
        finally:
            service.terminate()
            assert service.wait(TIMEOUT_S) == 0
    link = (folder / "state" / "first-run-link.txt").read_text(encoding="utf-8").splitlines()[0]
    assert link.rpartition("/")[2] not in (folder / "output").read_text(encoding="utf-8")


def _belongs(path: Path) -> bool:
    return (
        path.is_file()
        and "__pycache__" not in path.parts
        and path.suffix in {".py", ".pyi", ".mako", ".html", ".js", ".css", ".svg", ".typed"}
    )
