"""What `deploy/` ships: the image's files exist, the compose file names real settings, the unit is hardened, one version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from app.config.settings import Settings
from app.version import VERSION
from support.nats import BINARY as nats_binary
from support.waiting import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy" / "container" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "container" / "compose.yaml").read_text(encoding="utf-8"))
CLUSTER_COMPOSE = yaml.safe_load((ROOT / "deploy" / "cluster" / "compose.yaml").read_text(encoding="utf-8"))
UNIT = ROOT / "deploy" / "systemd" / "latchboard.service"
MAX_EXPOSURE = 2.0
"""systemd rates 0 (perfect) to 10; 9.2 is a unit without any protection."""


def test_one_version_is_in_cargo_toml_the_metadata_and_the_changelog() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert (VERSION, newest[1]) == (workspace, workspace)


def test_the_image_copies_files_that_exist() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied
    assert all((ROOT / name).exists() for line in copied for name in line.split())
    assert not any(line.strip() == "requirements.lock" for line in (ROOT / ".dockerignore").read_text().splitlines())


def test_the_image_runs_without_root_and_has_a_health_check_and_one_volume() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d+$", last_stage, re.MULTILINE)
    assert re.findall(r"^VOLUME (\S+)$", last_stage, re.MULTILINE) == ["/data"]
    assert "HEALTHCHECK" in last_stage


def test_container_and_unit_use_settings_that_exist() -> None:
    (service,) = COMPOSE["services"].values()
    text = (
        DOCKERFILE + UNIT.read_text(encoding="utf-8") + (ROOT / "deploy" / "systemd" / "install.sh").read_text(encoding="utf-8")
    )
    used = set(re.findall(r"\bLATCHBOARD_([A-Z_]+)=", text)) | {
        name.removeprefix("LATCHBOARD_") for name in service["environment"]
    }
    assert used
    assert {name.lower() for name in used} <= set(Settings.model_fields)
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_the_cluster_uses_settings_that_exist_and_files_beside_it() -> None:
    services = CLUSTER_COMPOSE["services"]
    instances = [each for name, each in services.items() if name.startswith("latchboard-")]
    assert len(instances) == 3
    for each in instances:
        assert {name.removeprefix("LATCHBOARD_").lower() for name in each["environment"]} <= set(Settings.model_fields)
        assert (each["read_only"], each["cap_drop"], len(each["volumes"])) == (True, ["ALL"], 1)
    mounted = [source for each in services.values() for source in each["volumes"] if source.startswith("./")]
    assert mounted
    assert all((ROOT / "deploy" / "cluster" / source.split(":")[0]).is_file() for source in mounted)
    assert instances[0]["environment"]["LATCHBOARD_CLUSTER"].count(":4222") == sum(name.startswith("nats-") for name in services)


@pytest.mark.skipif(nats_binary is None, reason="nats-server is not installed")
def test_nats_accepts_the_configuration_of_a_node_and_syncs_each_entry() -> None:
    config = ROOT / "deploy" / "cluster" / "nats.conf"
    assert nats_binary is not None
    checked = subprocess.run(
        [nats_binary, "-c", config, "--name", "nats-1", "-t"],
        env={"NATS_PASSWORD": "x1"}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "sync_interval: always" in config.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_hardened() -> None:
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert exposure is not None, rated.stderr
    assert float(exposure[1]) <= MAX_EXPOSURE
