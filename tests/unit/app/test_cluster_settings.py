"""The settings of a cluster, and what makes its log unsafe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapters.stream.bus import check_node, find_unsafe
from app.config.sections import split_servers
from app.config.settings import SettingsError, load_settings

CLUSTER = {"database_url": "postgresql+asyncpg://localhost/x", "cluster": "nats://a:4222,b:4222"}
SAFE = {"version": "2.12.1", "jetstream": {"config": {"sync_always": True}}, "cluster": {"name": "x"}}


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


def test_a_node_is_safe_if_it_writes_to_its_disk_at_once_and_is_in_a_cluster() -> None:
    assert check_node("http://a", SAFE) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": "2.11.9"}, "2.12 or newer"),
        ({"jetstream": {}}, "without JetStream"),
        ({"jetstream": {"config": {"sync_interval": 120}}}, "sync_interval: always"),
        ({"cluster": {}}, "three nodes"),
    ],
)
def test_a_node_that_may_lose_what_it_confirmed_is_named(changes: dict[str, Any], named: str) -> None:
    [problem] = check_node("http://a:8222", SAFE | changes)
    assert named in problem
    assert "http://a:8222" in problem


async def test_fewer_than_three_addresses_and_nodes_that_do_not_answer_are_unsafe() -> None:
    [problem] = await find_unsafe(["http://a:8222"])
    assert "LATCHBOARD_CLUSTER_MONITOR" in problem
    assert len(await find_unsafe(["http://127.0.0.1:9"] * 3)) == 3
