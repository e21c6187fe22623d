"""The command line without a running service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_every_command_explains_itself() -> None:
    said = runner.invoke(app, ["--help"]).output
    for command in ("serve", "demo", "account", "user", "simulate", "openapi", "config", "doctor"):
        assert command in said
        assert runner.invoke(app, [command, "--help"]).exit_code == 0


@pytest.mark.parametrize("command", ["serve", "config", "doctor", "demo"])
def test_wrong_settings_end_with_exit_code_2(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("LATCHBOARD_HTTP_PORT", "eighty")
    ended = runner.invoke(app, [command])
    assert ended.exit_code == 2
    assert "LATCHBOARD_HTTP_PORT = 'eighty'" in ended.output


def test_it_tells_its_version() -> None:
    said = runner.invoke(app, ["--version"])
    assert (said.exit_code, said.output.split()[0]) == (0, "latchboard")


def test_config_says_where_a_value_comes_from_and_cuts_none_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LATCHBOARD_DATA_DIR", "/srv/" + "long/" * 20)
    monkeypatch.setenv("LATCHBOARD_HTP_PORT", "1")
    lines = runner.invoke(app, ["config"]).output.splitlines()
    assert any(line.split()[:2] == ["LATCHBOARD_DATA_DIR", "environment"] and line.endswith("long") for line in lines)
    assert any(line.startswith("LATCHBOARD_DATABASE_URL") and line.endswith("/latchboard.db") for line in lines)
    assert "LATCHBOARD_HTP_PORT is no setting; is LATCHBOARD_HTTP_PORT meant?" in lines


def test_the_doctor_misses_the_secret_keys_of_a_database() -> None:
    runner.invoke(app, ["doctor"])
    Path("data/secret_keys").unlink()
    said = runner.invoke(app, ["doctor"])
    assert said.exit_code == 1
    assert "secret_keys is missing" in said.output
    assert not Path("data/secret_keys").exists()


def test_wrong_usage_ends_with_exit_code_2() -> None:
    assert runner.invoke(app, ["fly"]).exit_code == 2


def test_config_shows_settings_and_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_SMTP_URL", "smtp://ada:hunter2@mail.example:587")
    said = runner.invoke(app, ["config"]).output
    assert "smtp://ada:***@mail.example:587" in said
    assert "LATCHBOARD_HTTP_PORT" in said
    assert "hunter2" not in said


def test_accounts_and_people_are_made_on_the_command_line() -> None:
    made = runner.invoke(app, ["account", "create", "--name", "Acme", "--email", "ada@example.com", "--password", "long enough"])
    assert made.exit_code == 0, made.output
    assert "Acme" in runner.invoke(app, ["account", "list"]).output
    added = runner.invoke(app, ["user", "add", "--email", "bob@example.com", "--password", "long enough", "--role", "Viewer"])
    assert added.exit_code == 0, added.output
    again = runner.invoke(app, ["user", "add", "--email", "bob@example.com", "--password", "long enough"])
    assert again.exit_code == 1
    assert Path("data").stat().st_mode & 0o777 == 0o700
    assert Path("data/latchboard.db").stat().st_mode & 0o077 == 0


def test_a_password_that_is_too_short_is_refused() -> None:
    refused = runner.invoke(app, ["account", "create", "--name", "Acme", "--email", "ada@example.com", "--password", "short"])
    assert refused.exit_code == 1
    assert "8 to 256 characters" in refused.output


def test_openapi_prints_the_document_and_leaves_nothing_behind(tmp_path: Path) -> None:
    printed = runner.invoke(app, ["openapi"])
    assert printed.exit_code == 0, printed.output
    document = json.loads(printed.stdout)
    assert document["openapi"].startswith("3.1")
    assert "/api/v1/devices/{deviceId}/command" in document["paths"]
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_data_directory_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("a file where a directory should be")
    monkeypatch.setenv("LATCHBOARD_DATA_DIR", "taken/data")
    refused = runner.invoke(app, ["account", "list"])
    assert refused.exit_code == 1
    assert "LATCHBOARD_DATA_DIR" in refused.output


def test_simulating_without_a_service_says_so() -> None:
    refused = runner.invoke(app, ["simulate", "--url", "http://127.0.0.1:9", "--email", "a@b.example", "--password", "x"])
    assert refused.exit_code == 1
    assert "Is the service running?" in refused.output
