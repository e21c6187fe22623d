"""What goes into an installation is known by its hash: packages, crates, libraries of the dashboard, bases of images; and the bill
of materials names them all. Nothing is installed, also not to build something else, whose hash nobody has written down."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packageurl import PackageURL

from support.sbom import bill_of_materials
from support.waiting import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ASSETS = ROOT / "src" / "adapters" / "http" / "dashboard" / "assets"
INSTALLERS = [*DEPLOY.rglob("Dockerfile"), DEPLOY / "systemd" / "install.sh", ROOT / "Makefile"]
WHEEL = "latchboard-1.0.0-cp311-abi3-any.whl"


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, Any]]:
    return {each["purl"]: each for each in json.loads(bill_of_materials())["components"]}


def hashes(component: dict[str, Any]) -> set[str]:
    return {each["content"] for each in component["hashes"]}


def test_the_bill_of_materials_lists_each_locked_package_with_all_its_hashes(listed: dict[str, Any]) -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8"))
    locked = {"pkg:pypi/" + each.split()[0].replace("==", "@"): set(re.findall(r"--hash=sha256:(\w+)", each)) for each in entries}
    assert all(locked.values())
    assert {purl: hashes(each) for purl, each in listed.items() if purl.startswith("pkg:pypi/")} == locked


def test_the_bill_of_materials_lists_each_locked_crate(listed: dict[str, Any]) -> None:
    crates = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    locked = {
        PackageURL("cargo", None, each["name"], each["version"]).to_string(): {each["checksum"]}
        for each in crates
        if "source" in each
    }
    assert {purl: hashes(each) for purl, each in listed.items() if purl.startswith("pkg:cargo/")} == locked
    assert {each["name"].partition("-")[0] for each in crates if "source" not in each} == {"latchboard"}


def test_the_bill_of_materials_lists_each_file_of_another_project_in_the_dashboard(listed: dict[str, Any]) -> None:
    files = {part["name"]: part for purl, each in listed.items() if purl.startswith("pkg:npm/") for part in each["components"]}
    vendored = {path.relative_to(ROOT).as_posix() for path in (ASSETS / "vendor").iterdir() if path.suffix in {".js", ".css"}}
    assert set(files) == vendored | {(ASSETS / "ui" / "icons.js").relative_to(ROOT).as_posix()}
    assert all(hashes(part) == {hashlib.sha256((ROOT / name).read_bytes()).hexdigest()} for name, part in files.items())


def test_the_bill_of_materials_lists_the_bases_of_the_image(listed: dict[str, Any]) -> None:
    assert {each["name"] for purl, each in listed.items() if purl.startswith("pkg:oci/")} == {"rust", "python"}


def test_the_same_source_gives_the_same_bill_of_materials() -> None:
    assert bill_of_materials() == bill_of_materials()


def test_each_image_that_is_not_built_here_is_named_by_its_digest() -> None:
    named = []
    for path in [*DEPLOY.rglob("Dockerfile"), *DEPLOY.rglob("compose.yaml")]:
        named += re.findall(
            r"^(?:ARG \w+_IMAGE=|\s*image: )(?!latchboard$)(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert not re.findall(r"^FROM (?!\$\{\w+_IMAGE\}|python$|python )(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) == 6
    assert not [name for name in named if not re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", name)]


@pytest.mark.parametrize("path", INSTALLERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_is_installed_without_its_hash(path: Path) -> None:
    """`--no-index --no-deps` takes the one file that it is given. A package published as source is built with what is installed
    already: `--no-build-isolation`."""
    text = path.read_text(encoding="utf-8").replace("$(INSTALL)", "pip install --require-hashes")
    commands = [line for line in text.splitlines() if re.search(r"pip (--\S+ )*install", line) and "INSTALL :=" not in line]
    if path.name == "Makefile":
        # The wheel of this checkout, the tools of benches, and ziglang, which none of what runs comes from.
        commands = [line for line in commands if not re.search(r"--editable \.|\$\$peer|ziglang", line)]
    assert commands
    for command in commands:
        if "--no-index" in command:
            assert "--no-deps" in command
        else:
            assert "--require-hashes" in command, command
            assert re.search("--no-build-isolation|--only-binary :all:", command), command


def install(folder: Path, wheel: Path) -> subprocess.CompletedProcess[str]:
    paths = {"PREFIX": str(folder / "prefix"), "UNIT_DIR": str(folder / "units"), "SETTINGS_FILE": str(folder / "settings")}
    made = subprocess.run(
        [folder / "install.sh", wheel], env=os.environ | paths, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert not (folder / "prefix").exists()
    return made


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder with the script and a wheel, as somebody has them who downloaded them."""
    shutil.copy(DEPLOY / "systemd" / "install.sh", tmp_path)
    (tmp_path / WHEEL).write_bytes(b"a wheel")
    return tmp_path


def test_without_the_locks_nothing_is_installed(release: Path) -> None:
    refused = install(release, release / WHEEL)
    assert refused.returncode == 2
    assert "requirements.lock" in refused.stderr
    shutil.copy(ROOT / "requirements.lock", release)
    assert install(release, release / WHEEL).returncode == 2


@pytest.mark.parametrize("sums", [f"{'0' * 64}  {WHEEL}\n", f"{'0' * 64}  other.whl\n"])
def test_a_wheel_that_is_not_the_one_of_the_release_is_not_installed(release: Path, sums: str) -> None:
    for name in ("requirements.lock", "requirements-build.lock"):
        shutil.copy(ROOT / name, release)
    (release / "SHA256SUMS").write_text(sums)
    refused = install(release, release / WHEEL)
    assert refused.returncode == 2
    assert "SHA256SUMS" in refused.stderr


def test_a_release_has_what_its_script_needs() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nrelease:")[2].partition("\n\n")[0]
    for name in ("requirements.lock", "requirements-build.lock", "install.sh", "latchboard.service", "latchboard.cdx.json"):
        assert name in recipe.partition("sha256sum")[2], name
