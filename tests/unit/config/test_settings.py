"""Settings: where each comes from, and which stop the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.config.checks import split_servers
from app.config.settings import Settings, SettingsError, load_settings, setting_sources, unknown_variable_warnings
from app.wiring.adapters import broker_endpoint
from domain.devices.firmware import BrokerEndpoint


@pytest.fixture(autouse=True)
def empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_setting_has_a_default() -> None:
    settings = load_settings()
    assert (settings.http_host, settings.http_port, settings.mqtt_port, settings.mqtt_ws_port) == ("127.0.0.1", 8080, 1883, 8083)
    assert (settings.engine, settings.broker, settings.mqtt_tls_port) == ("native", "embedded", None)
    assert settings.effective_database_url == "sqlite+aiosqlite:///data/latchboard.db"


def test_the_environment_overrides_dotenv_and_dotenv_overrides_the_toml_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("latchboard.toml").write_text('http_port = 1001\nmqtt_port = 1002\nlog_level = "DEBUG"\n')
    Path(".env").write_text("LATCHBOARD_HTTP_PORT=2001\nLATCHBOARD_MQTT_PORT=2002\n")
    monkeypatch.setenv("LATCHBOARD_HTTP_PORT", "3001")
    settings = load_settings()
    assert (settings.http_port, settings.mqtt_port, settings.log_level) == (3001, 2002, "DEBUG")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("HTTP_PORT", "eighty", "integer"),
        ("HTTP_PORT", "70000", "65535"),
        ("ENGINE", "fast", "'native' or 'reference'"),
        ("BROKER", "localhost", "mqtt://"),
        ("BROKER", "mqtt://service:pa/ss@home", "percent-encoded"),
        ("MQTT_PUBLIC_HOST", "mqtt://home", "no scheme, port or brackets"),
        ("MQTT_PUBLIC_HOST", "home:1883", "no scheme, port or brackets"),
        ("MQTT_PUBLIC_HOST", "home; Reset 1", "no scheme, port or brackets"),
        ("MQTT_PUBLIC_HOST", "fe80::1%;Reset", "no scheme, port or brackets"),
        ("DATABASE_URL", "mysql://db", "postgresql+asyncpg://"),
        ("LOG_LEVEL", "loud", "'DEBUG'"),
        ("LOG_FORMAT", "xml", "'console' or 'json'"),
        ("INGEST_LIMIT", "-1", "greater than or equal to 0"),
        ("WEBHOOK_ALLOW_PRIVATE", "perhaps", "boolean"),
        ("WEBHOOK_LOW_PORTS", "81,8081", "1 to 1023"),
        ("WEBHOOK_NETWORKS", "192.168.1.7/24", "neither an address nor a network"),
        ("MQTT_TLS_PORT", "8883", "LATCHBOARD_MQTT_TLS_CERTIFICATE"),
        ("HOMEASSISTANT", "localhost:1883", "mqtt://"),
        ("HOMEASSISTANT", "mqtt://user:pa/ss@home", "percent-encoded"),
        ("HOMEASSISTANT", "mqtt://home", "LATCHBOARD_HOMEASSISTANT_KEY"),
        ("HOMEASSISTANT_PREFIX", "home/+", "should match"),
        ("OIDC_ISSUER", "sso.example.com", "https URL"),
        ("OIDC_ISSUER", "http://sso.example.com", "https URL"),
        ("OIDC_ISSUER", "https://sso.example.com?a=b", "without query"),
        ("OIDC_ISSUER", "https://sso.example.com", "LATCHBOARD_OIDC_CLIENT_ID"),
        ("OIDC_ROLE_MAP", "admins=Boss", "plant-admins=Admin"),
        ("OIDC_ROLE_MAP", "admins=Admin", "LATCHBOARD_OIDC_ROLE_CLAIM"),
        ("OIDC_SCOPES", "profile email", "must contain openid"),
        ("OIDC_AUTO_CREATE", "true", "LATCHBOARD_OIDC_DEFAULT_ROLE"),
        ("OIDC_DEFAULT_ROLE", "Boss", "'Owner'"),
        ("OWNER_EMAIL", "ada@example.com", "LATCHBOARD_OWNER_PASSWORD"),
        ("OWNER_EMAIL", "ada", "ada@example.com"),
        ("OWNER_PASSWORD", "short", "8 to 256"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_the_allowed_values(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(f"LATCHBOARD_{name}", value)
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert f"LATCHBOARD_{name}" in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize("host", ["mqtt.example.com", "10.0.0.2", "fd00::2", "my_broker", "xn--mller-kva.example."])
def test_the_public_host_may_be_any_host_name_or_address(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("LATCHBOARD_MQTT_PUBLIC_HOST", host)
    assert broker_endpoint(load_settings()) == BrokerEndpoint(host, 1883, 8083, None)


@pytest.mark.parametrize(
    ("broker", "explicit", "reached"),
    [
        ("embedded", {}, BrokerEndpoint("127.0.0.1", 1883, 8083)),
        ("embedded", {"MQTT_HOST": "10.0.0.9"}, BrokerEndpoint("10.0.0.9", 1883, 8083)),
        ("mqtt://u:p@broker:2883", {}, BrokerEndpoint("broker", 2883, 8083)),
        ("mqtt://u:p@broker", {"MQTT_PORT": "3883"}, BrokerEndpoint("broker", 3883, 8083)),
        ("mqtt://u:p@10.0.0.2:2883", {"MQTT_PUBLIC_HOST": "mqtt.example"}, BrokerEndpoint("mqtt.example", 2883, 8083)),
        ("mqtts://u:p@broker", {}, BrokerEndpoint("broker", 1883, 8083, 8883)),
    ],
)
def test_credentials_name_the_broker_that_devices_can_reach(
    monkeypatch: pytest.MonkeyPatch, broker: str, explicit: dict[str, str], reached: BrokerEndpoint
) -> None:
    monkeypatch.setenv("LATCHBOARD_BROKER", broker)
    for name, value in explicit.items():
        monkeypatch.setenv(f"LATCHBOARD_{name}", value)
    assert broker_endpoint(load_settings()) == reached


def test_all_wrong_values_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_HTTP_PORT", "x")
    monkeypatch.setenv("LATCHBOARD_ENGINE", "y")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert len(str(error.value).splitlines()) == 2


def test_secrets_appear_neither_in_messages_nor_in_the_printed_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_DATABASE_URL", "mysql://ada:hunter2@db/latch")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert "hunter2" not in str(error.value)
    monkeypatch.setenv("LATCHBOARD_DATABASE_URL", "postgresql+asyncpg://ada:hunter2@db/latch")
    monkeypatch.setenv("LATCHBOARD_BROKER", "mqtt://service:hunter2@host:1883")
    monkeypatch.setenv("LATCHBOARD_OWNER_EMAIL", "ada@example.com")
    monkeypatch.setenv("LATCHBOARD_OWNER_PASSWORD", "hunter2hunter2")
    shown = load_settings().masked_values()
    assert "hunter2" not in str(shown)
    assert shown["LATCHBOARD_DATABASE_URL"] == "postgresql+asyncpg://ada:***@db/latch"


def test_a_misspelt_variable_is_reported() -> None:
    environ = {"LATCHBOARD_HTTP_PROT": "1", "LATCHBOARD_HTTP_PORT": "2", "PATH": "/bin"}
    assert unknown_variable_warnings(environ) == ["LATCHBOARD_HTTP_PROT is not a setting; did you mean LATCHBOARD_HTTP_PORT?"]


def test_a_misspelt_name_is_a_warning_in_dotenv_and_an_error_in_the_toml_file() -> None:
    Path(".env").write_text("LATCHBOARD_MQTT_PRT=1\nOTHERS_PORT=2\n")
    assert unknown_variable_warnings({}) == ["LATCHBOARD_MQTT_PRT is not a setting; did you mean LATCHBOARD_MQTT_PORT?"]
    Path("latchboard.toml").write_text('htp_port = 1\nengine = "fast"\n')
    with pytest.raises(
        SettingsError, match=r"LATCHBOARD_HTP_PORT is not a setting; did you mean LATCHBOARD_HTTP_PORT\?"
    ) as error:
        load_settings()
    assert "LATCHBOARD_ENGINE = 'fast'" in str(error.value)


def test_variables_of_single_commands_cause_no_warning() -> None:
    assert unknown_variable_warnings({"LATCHBOARD_NEW_PASSWORD": "x", "LATCHBOARD_PASSWORD": "y"}) == []
    assert unknown_variable_warnings({"LATCHBOARD_SERVICE_HOST": "10.0.0.1"}) == ["LATCHBOARD_SERVICE_HOST is not a setting"]


def test_the_source_of_each_value_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("latchboard.toml").write_text("http_port = 1001\nmqtt_port = 1002\n")
    Path(".env").write_text("LATCHBOARD_HTTP_PORT=2001\nLATCHBOARD_MQTT_WS_PORT=2003\n")
    monkeypatch.setenv("LATCHBOARD_MQTT_WS_PORT", "3003")
    explicit = setting_sources()
    names = ("HTTP_PORT", "MQTT_PORT", "MQTT_WS_PORT", "ENGINE")
    assert [explicit[f"LATCHBOARD_{name}"] for name in names] == [".env", "latchboard.toml", "environment", "default"]


def test_every_variable_of_the_contract_is_a_setting() -> None:
    contract = (
        "DATA_DIR HTTP_HOST HTTP_PORT MQTT_HOST MQTT_PORT MQTT_WS_PORT MQTT_TLS_PORT MQTT_PUBLIC_HOST BROKER DATABASE_URL ENGINE "
        "OWNER_EMAIL OWNER_PASSWORD SECRET_KEYS SMTP_URL WEBHOOK_ALLOW_PRIVATE WEBHOOK_NETWORKS LOG_FORMAT LOG_LEVEL"
    )
    assert {name.lower() for name in contract.split()} <= set(Settings.model_fields)


CLUSTER = {"database_url": "postgresql+asyncpg://localhost/x", "cluster": "nats://a:4222,b:4222"}


def test_all_servers_have_the_credentials_of_the_first() -> None:
    assert split_servers("nats://u:p@a:4222, b:4222,c") == ["nats://u:p@a:4222", "nats://u:p@b:4222", "nats://u:p@c"]
    assert split_servers("tls://a,tls://b") == ["tls://a", "tls://b"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"database_url": None}, "LATCHBOARD_DATABASE_URL"),
        ({"broker": "none"}, "needs a broker"),
        ({"broker": "mqtt://u:p@host", "mosquitto_acl_file": "acl"}, "unset LATCHBOARD_MOSQUITTO_"),
        ({"engine": "reference"}, "native engine"),
        ({"cluster": "http://a"}, "nats://"),
        ({"cluster": "nats://a:4222/path"}, "nats://"),
        ({"cluster_monitor": "nats-1:8222"}, "http://nats-1:8222"),
        ({"cluster_partitions": 257}, "256"),
    ],
)
def test_settings_that_cannot_form_a_cluster_stop_the_start(
    changes: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(**CLUSTER).cluster_servers == ["nats://a:4222", "nats://b:4222"]
    with pytest.raises(SettingsError, match=named):
        load_settings(**CLUSTER | changes)


CLICKHOUSE = "https://u:p%40@clickhouse.example.com/latchboard"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clickhouse_url": "clickhouse://host/x"}, "https://user:password@host:8443/database"),
        ({"clickhouse_url": "https://host/x/y"}, "https://user:password@host:8443/database"),
        ({"clickhouse_url": "https://host/x?y=1"}, "https://user:password@host:8443/database"),
        ({"clickhouse_days": 30}, "more than LATCHBOARD_READINGS_DAYS"),
        ({"clickhouse_days": 366}, "at most LATCHBOARD_ROLLUPS_DAYS"),
        ({"rollups_days": 29, "clickhouse_url": None}, "LATCHBOARD_ROLLUPS_DAYS must be at least"),
    ],
)
def test_wrong_settings_stop_the_start(
    changes: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(clickhouse_url=CLICKHOUSE).clickhouse_days == 365
    with pytest.raises(SettingsError, match=named) as caught:
        load_settings(**({"clickhouse_url": CLICKHOUSE} | changes))
    assert "p%40" not in str(caught.value)


def test_a_secret_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smtp").write_text("smtp://ada:hunter2@mail.example:587\n")
    monkeypatch.setenv("LATCHBOARD_SMTP_URL_FILE", "smtp")
    settings = load_settings()
    assert settings.smtp_url is not None
    assert settings.smtp_url.get_secret_value() == "smtp://ada:hunter2@mail.example:587"
    assert unknown_variable_warnings({"LATCHBOARD_SMTP_URL_FILE": "smtp", "LATCHBOARD_TOKEN_FILE": "x"}) == []
    assert unknown_variable_warnings({"LATCHBOARD_HTTP_PORT_FILE": "x"})  # no secret
    monkeypatch.setenv("LATCHBOARD_SMTP_URL", "smtp://other")
    with pytest.raises(SettingsError, match="LATCHBOARD_SMTP_URL and LATCHBOARD_SMTP_URL_FILE are both set"):
        load_settings()


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\xff\xfe", "it is not text"), (b"x" * 70_000, "larger")]
)
def test_a_secret_file_that_cannot_be_used_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "keys").write_bytes(content)
    monkeypatch.setenv("LATCHBOARD_SECRET_KEYS_FILE", "keys")
    with pytest.raises(SettingsError, match=f"LATCHBOARD_SECRET_KEYS_FILE = keys: .*{reason}"):
        load_settings()


def test_what_is_wrong_with_a_secret_in_a_file_is_told_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("mysql://ada:hunter2@db/name")
    monkeypatch.setenv("LATCHBOARD_DATABASE_URL_FILE", "url")
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert "LATCHBOARD_DATABASE_URL = ***" in str(raised.value)
    assert "hunter2" not in str(raised.value)
