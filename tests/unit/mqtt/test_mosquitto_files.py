"""The configuration of an external Mosquitto: what is written passes its own check, and the check names what costs messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.mqtt.mosquitto import DEFAULT_FILES, OPTIONS, config_faults, find_config_file, mosquitto_config, read_config


def faults_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    return config_faults(read_config(path))


def test_what_is_written_has_no_fault_and_names_the_files(tmp_path: Path) -> None:
    text = mosquitto_config(DEFAULT_FILES, listeners=["1883", "8883 0.0.0.0"])
    assert faults_of(tmp_path / "mosquitto.conf", text) == []
    lines = text.splitlines()
    assert f"password_file {DEFAULT_FILES.password_file}" in lines
    first = lines.index("listener 1883")
    assert lines.count("use_username_as_clientid true") == 2, "it belongs to each listener"
    assert "use_username_as_clientid true" not in lines[:first], "above the first one it would open another listener"


def test_mosquittos_own_defaults_are_named_with_what_to_set(tmp_path: Path) -> None:
    found = faults_of(tmp_path / "mosquitto.conf", "# nothing is set\nlistener 1883\n")
    assert found[0].startswith("max_queued_messages is 1000 (Mosquitto's default), set it to 0: ")
    named = {fault.split()[0] for fault in found}
    assert named == {
        "max_queued_messages",
        "max_inflight_messages",
        "persistence",
        "autosave_interval",
        "use_username_as_clientid",
    }


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("max_queued_messages 5000", "max_queued_messages is 5000, set it to 0"),
        ("max_inflight_messages 999", "max_inflight_messages is 999, set it to 1000"),
        ("autosave_interval 0", "autosave_interval is 0, set it to 5"),
        ("autosave_on_changes true", "autosave_on_changes is true, set it to false"),
        ("memory_limit 1000000", "memory_limit is 1000000, set it to 0"),
        ("persistent_client_expiration 1d", "persistent_client_expiration is set"),
        ("sys_interval 0", "sys_interval is 0, set it to 10"),
    ],
)
def test_a_line_that_costs_messages_is_named(tmp_path: Path, line: str, named: str) -> None:
    [fault] = faults_of(tmp_path / "mosquitto.conf", f"{mosquitto_config(DEFAULT_FILES)}{line}\n")
    assert fault.startswith(named)


@pytest.mark.parametrize("line", ["max_inflight_messages 0", "max_inflight_messages 2000", "autosave_interval 1"])
def test_a_stricter_value_is_no_fault(tmp_path: Path, line: str) -> None:
    assert faults_of(tmp_path / "mosquitto.conf", f"{mosquitto_config(DEFAULT_FILES)}{line}\n") == []


def test_included_files_count(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "limits.conf").write_text("max_queued_messages 100\n", encoding="utf-8")
    text = mosquitto_config(DEFAULT_FILES) + "include_dir conf.d\n"
    [fault] = faults_of(tmp_path / "mosquitto.conf", text)
    assert "max_queued_messages is 100" in fault


def test_the_configuration_of_a_process_without_one_is_not_found(tmp_path: Path) -> None:
    pid_file = tmp_path / "mosquitto.pid"
    pid_file.write_text("1\n", encoding="ascii")
    with pytest.raises((OSError, ValueError)):
        find_config_file(pid_file)


def test_every_option_says_why() -> None:
    assert all(option.reason for option in OPTIONS)
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
