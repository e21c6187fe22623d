"""The command line without a running service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_every_command_has_help() -> None:
    result = runner.invoke(app, ["--help"]).output
    for command in ("serve", "demo", "account", "user", "simulate", "openapi", "config", "doctor"):
        assert command in result
        assert runner.invoke(app, [command, "--help"]).exit_code == 0


@pytest.mark.parametrize("command", ["serve", "config", "doctor", "demo"])
def test_wrong_settings_end_with_exit_code_2(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("LATCHBOARD_HTTP_PORT", "eighty")
    result = runner.invoke(app, [command])
    assert result.exit_code == 2
    assert "LATCHBOARD_HTTP_PORT = 'eighty'" in result.output


def test_the_version_is_printed() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output.split()[0]) == (0, "latchboard")


def test_config_prints_the_source_of_each_value_and_truncates_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LATCHBOARD_DATA_DIR", "/srv/" + "long/" * 20)
    monkeypatch.setenv("LATCHBOARD_HTP_PORT", "1")
    lines = runner.invoke(app, ["config"]).output.splitlines()
    assert any(line.split()[:2] == ["LATCHBOARD_DATA_DIR", "environment"] and line.endswith("long") for line in lines)
    assert any(line.startswith("LATCHBOARD_DATABASE_URL") and line.endswith("/latchboard.db") for line in lines)
    assert "LATCHBOARD_HTP_PORT is not a setting; did you mean LATCHBOARD_HTTP_PORT?" in lines


def test_the_doctor_reports_missing_secret_keys_of_a_database() -> None:
    runner.invoke(app, ["doctor"])
    Path("data/secret_keys").unlink()
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "secret_keys is missing" in result.output
    assert not Path("data/secret_keys").exists()


def test_wrong_usage_ends_with_exit_code_2() -> None:
    assert runner.invoke(app, ["fly"]).exit_code == 2


def test_config_shows_settings_and_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_SMTP_URL", "smtp://ada:hunter2@mail.example:587")
    result = runner.invoke(app, ["config"]).output
    assert "smtp://ada:***@mail.example:587" in result
    assert "LATCHBOARD_HTTP_PORT" in result
    assert "hunter2" not in result


def test_accounts_and_users_are_created_on_the_command_line() -> None:
    created = runner.invoke(
        app, ["account", "create", "--name", "Acme", "--email", "ada@example.com", "--password", "long enough"]
    )
    assert created.exit_code == 0, created.output
    assert "Acme" in runner.invoke(app, ["account", "list"]).output
    added = runner.invoke(app, ["user", "add", "--email", "bob@example.com", "--password", "long enough", "--role", "Viewer"])
    assert added.exit_code == 0, added.output
    again = runner.invoke(app, ["user", "add", "--email", "bob@example.com", "--password", "long enough"])
    assert again.exit_code == 1
    assert Path("data").stat().st_mode & 0o777 == 0o700
    assert Path("data/latchboard.db").stat().st_mode & 0o077 == 0


def test_a_password_that_is_too_short_is_refused() -> None:
    result = runner.invoke(app, ["account", "create", "--name", "Acme", "--email", "ada@example.com", "--password", "short"])
    assert result.exit_code == 1
    assert "8 to 256 characters" in result.output


def test_openapi_prints_the_document_and_leaves_no_files(tmp_path: Path) -> None:
    printed = runner.invoke(app, ["openapi"])
    assert printed.exit_code == 0, printed.output
    document = json.loads(printed.stdout)
    assert document["openapi"].startswith("3.1")
    assert "/api/v1/devices/{deviceId}/command" in document["paths"]
    assert list(tmp_path.iterdir()) == []


def test_an_unusable_data_directory_is_reported_with_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("a file where a directory should be")
    monkeypatch.setenv("LATCHBOARD_DATA_DIR", "taken/data")
    result = runner.invoke(app, ["account", "list"])
    assert result.exit_code == 1
    assert "LATCHBOARD_DATA_DIR" in result.output


def test_simulate_without_a_service_asks_whether_it_is_running() -> None:
    result = runner.invoke(app, ["simulate", "--url", "http://127.0.0.1:9", "--email", "a@b.example", "--password", "x"])
    assert result.exit_code == 1
    assert "Is the service running?" in result.output
