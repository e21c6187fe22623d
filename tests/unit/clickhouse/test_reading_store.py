"""How a ClickHouse is addressed."""

from __future__ import annotations

from adapters.clickhouse.reading_store import ClickHouseConnectionConfig

URL = "https://u:p%40@clickhouse.example.com/latchboard"


def test_an_address_has_user_password_database_and_port() -> None:
    assert ClickHouseConnectionConfig.parse(URL) == ClickHouseConnectionConfig(
        "https://clickhouse.example.com:8443/", "u", "p@", "latchboard"
    )
    assert ClickHouseConnectionConfig.parse("http://[::1]") == ClickHouseConnectionConfig(
        "http://[::1]:8123/", "default", "", "default"
    )
    assert ClickHouseConnectionConfig.parse("http://host:1/x").url == "http://host:1/"
