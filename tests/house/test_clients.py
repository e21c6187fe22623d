"""The generated parts of the client libraries fit the OpenAPI document: `make clients` writes them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

from support.service import environment, program_command

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "clients" / "python"
GENERATOR_LINES = 300


def render(document: dict[str, Any]) -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", PYTHON / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, str] = module.render(document)
    return files


def test_the_generated_files_of_the_python_client_are_fresh() -> None:
    printed = subprocess.run([*program_command(), "openapi"], env=environment(), check=True, capture_output=True).stdout
    stale = [
        name
        for name, text in render(json.loads(printed)).items()
        if (PYTHON / "src" / "latchboard_client" / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `make clients` and commit what it writes"


def test_the_generator_and_what_is_written_by_hand_are_small() -> None:
    by_hand = [PYTHON / "generate.py", *PYTHON.glob("src/latchboard_client/*.py"), *PYTHON.glob("src/latchboard_client/aio/*.py")]
    generated = {"models.py", "operations.py"}
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in by_hand if path.name not in generated}
    assert {name: lines for name, lines in lengths.items() if lines > GENERATOR_LINES} == {}
