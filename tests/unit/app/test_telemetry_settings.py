"""Where old readings go, and how long who keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapters.clickhouse.reading_store import ClickHouseConnectionConfig
from app.config.settings import SettingsError, load_settings

URL = "https://u:p%40@clickhouse.example.com/latchboard"


def test_an_address_has_user_password_database_and_port() -> None:
    assert ClickHouseConnectionConfig.parse(URL) == ClickHouseConnectionConfig(
        "https://clickhouse.example.com:8443/", "u", "p@", "latchboard"
    )
    assert ClickHouseConnectionConfig.parse("http://[::1]") == ClickHouseConnectionConfig(
        "http://[::1]:8123/", "default", "", "default"
    )
    assert ClickHouseConnectionConfig.parse("http://host:1/x").url == "http://host:1/"


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
    assert load_settings(clickhouse_url=URL).clickhouse_days == 365
    with pytest.raises(SettingsError, match=named) as caught:
        load_settings(**({"clickhouse_url": URL} | changes))
    assert "p%40" not in str(caught.value)
