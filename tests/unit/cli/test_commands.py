"""The command line without a running service."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapters.storage.sql import schema
from adapters.storage.sql.migrations import HEAD
from app.cli import doctor
from app.cli.commands import app

runner = CliRunner()
NEW_PASSWORD = {"LATCHBOARD_NEW_PASSWORD": "long enough"}


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


@pytest.mark.parametrize("command", ["openapi", "asyncapi"])
@pytest.mark.parametrize("target", ["missing/document.json", "."])
def test_a_document_that_cannot_be_written_is_named_with_the_reason(command: str, target: str) -> None:
    result = runner.invoke(app, [command, "--output", target])
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True)
    assert f"latchboard: {target} cannot be written: " in result.output


def test_config_prints_the_source_of_each_value_and_truncates_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LATCHBOARD_DATA_DIR", "/srv/" + "long/" * 20)
    monkeypatch.setenv("LATCHBOARD_HTP_PORT", "1")
    lines = runner.invoke(app, ["config"]).output.splitlines()
    assert any(line.split()[:2] == ["LATCHBOARD_DATA_DIR", "environment"] and line.endswith("long") for line in lines)
    assert any(line.startswith("LATCHBOARD_DATABASE_URL") and line.endswith("/latchboard.db") for line in lines)
    assert "LATCHBOARD_HTP_PORT is not a setting; did you mean LATCHBOARD_HTTP_PORT?" in lines


def test_the_doctor_reports_missing_secret_keys_of_a_database() -> None:
    runner.invoke(app, ["account", "list"])
    Path("data/secret_keys").unlink(missing_ok=True)
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "secret_keys is missing" in result.output
    assert not Path("data/secret_keys").exists()


def test_the_doctor_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LATCHBOARD_HTTP_PORT", "LATCHBOARD_MQTT_PORT", "LATCHBOARD_MQTT_WS_PORT"):
        monkeypatch.setenv(variable, "0")
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "a start creates" in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_reports_a_port_of_another_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of another Latchboard, which answers at that address as this one would."""

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the output of the test clean."""

    with HTTPServer(("127.0.0.1", 0), Healthy) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("LATCHBOARD_HTTP_PORT", str(other.server_port))
            result = runner.invoke(app, ["doctor"])
        finally:
            other.shutdown()
            thread.join()
    assert result.exit_code == 1
    assert "LATCHBOARD_HTTP_PORT to another port" in result.output


def test_the_doctor_upgrades_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    runner.invoke(app, ["account", "create", "--name", "Acme", "--email", "ada@example.com"], env=NEW_PASSWORD)
    monkeypatch.setattr(doctor, "HEAD", "v9999")
    monkeypatch.setattr(schema, "HEAD", "v9999")
    told = " ".join(runner.invoke(app, ["doctor"]).output.split())  # a narrow terminal breaks the line
    assert f"schema revision {HEAD}; a start upgrades it to v9999" in told
    with closing(sqlite3.connect("data/latchboard.db")) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)


def test_wrong_usage_ends_with_exit_code_2() -> None:
    assert runner.invoke(app, ["fly"]).exit_code == 2


def test_config_shows_settings_and_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_SMTP_URL", "smtp://ada:hunter2@mail.example:587")
    result = runner.invoke(app, ["config"]).output
    assert "smtp://ada:***@mail.example:587" in result
    assert "LATCHBOARD_HTTP_PORT" in result
    assert "hunter2" not in result


def test_accounts_and_users_are_created_on_the_command_line() -> None:
    created = runner.invoke(app, ["account", "create", "--name", "Acme", "--email", "ada@example.com"], env=NEW_PASSWORD)
    assert created.exit_code == 0, created.output
    assert "Acme" in runner.invoke(app, ["account", "list"]).output
    added = runner.invoke(app, ["user", "add", "--email", "bob@example.com", "--role", "Viewer"], env=NEW_PASSWORD)
    assert added.exit_code == 0, added.output
    again = runner.invoke(app, ["user", "add", "--email", "bob@example.com"], env=NEW_PASSWORD)
    assert again.exit_code == 1
    assert Path("data").stat().st_mode & 0o777 == 0o700
    assert Path("data/latchboard.db").stat().st_mode & 0o077 == 0


def test_a_password_that_is_too_short_is_refused() -> None:
    result = runner.invoke(
        app, ["account", "create", "--name", "Acme", "--email", "ada@example.com"], env={"LATCHBOARD_NEW_PASSWORD": "short"}
    )
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


def test_simulate_asks_the_address_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_HTTP_PORT", "9")
    result = runner.invoke(app, ["simulate", "--email", "a@b.example"], env={"LATCHBOARD_PASSWORD": "x"})
    assert result.exit_code == 1
    assert "http://127.0.0.1:9 does not answer" in result.output
    monkeypatch.setenv("LATCHBOARD_HTTP_PORT", "0")
    assert "--url" in runner.invoke(app, ["simulate"]).output


def test_simulate_without_a_service_asks_whether_it_is_running() -> None:
    result = runner.invoke(
        app, ["simulate", "--url", "http://127.0.0.1:9", "--email", "a@b.example"], env={"LATCHBOARD_PASSWORD": "x"}
    )
    assert result.exit_code == 1
    assert "Is the service running?" in result.output


def test_a_file_that_cannot_be_read_is_named_without_a_traceback() -> None:
    result = runner.invoke(app, ["simulate", "--url", "http://127.0.0.1:9", "--logins", "missing.txt"])
    assert result.exit_code == 1
    assert "missing.txt" in result.output
    assert "Traceback" not in result.output


def test_no_secret_is_taken_from_the_command_line(tmp_path: Path) -> None:
    """Every user of the machine can read it there."""
    for arguments in (
        ["account", "create", "--name", "A", "--email", "a@b.example", "--password", "long enough"],
        ["mcp", "--key", "sk_live_x"],
        ["plan", "fleet.yaml", "--token", "x"],
        ["simulate", "--token", "x"],
        ["audit", "stream", "https://logs.example", "--cursor", "c", "--secret", "whsec_x"],
    ):
        result = runner.invoke(app, arguments)
        assert result.exit_code == 2
        assert "No such option" in result.output
    assert (
        "Set LATCHBOARD_API_KEY, or LATCHBOARD_API_KEY_FILE" in runner.invoke(app, ["mcp", "--url", "http://127.0.0.1:9"]).output
    )
    asked = runner.invoke(app, ["account", "create", "--name", "A", "--email", "a@b.example"], input="long enough\nlong enough\n")
    assert asked.exit_code == 0, asked.output
    (tmp_path / "password").write_text("short\n")
    from_file = {"LATCHBOARD_NEW_PASSWORD_FILE": str(tmp_path / "password")}
    result = runner.invoke(app, ["user", "password", "--email", "a@b.example"], env=from_file)
    assert "8 to 256 characters" in result.output
