"""What the service notices of an external Mosquitto that may lose acknowledged messages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters.mqtt.mosquitto import DROPPED_TOPIC, MosquittoHealthMonitor, as_text

WEEK_S = 7 * 24 * 3_600


def connected_watch(*, session: bool = True, **properties: int) -> MosquittoHealthMonitor:
    watch = MosquittoHealthMonitor(now_s=lambda: 0.0)
    watch.on_connack(session, SimpleNamespace(**properties), WEEK_S)
    return watch


def test_a_broker_that_grants_everything_gives_no_warning() -> None:
    watch = connected_watch(SessionExpiryInterval=WEEK_S, MaximumQoS=1, RetainAvailable=1)
    watch.on_sys_message(DROPPED_TOPIC, b"0")
    watch.on_connack(True, None, WEEK_S)
    assert (watch.warnings(), as_text(watch.warnings())) == ([], None)


@pytest.mark.parametrize(
    ("limit", "value", "named"),
    [
        ("SessionExpiryInterval", 3_600, "for 3600 s only"),
        ("MaximumQoS", 0, "QoS 0 only"),
        ("RetainAvailable", 0, "retain_available true"),
    ],
)
def test_a_limit_of_the_broker_is_named(limit: str, value: int, named: str) -> None:
    [warning] = connected_watch(**{limit: value}).warnings()
    assert named in warning


def test_a_session_that_is_gone_after_a_reconnect_is_told_and_a_first_one_is_not() -> None:
    watch = connected_watch(session=False)
    assert watch.warnings() == []
    watch.on_connack(False, None, WEEK_S)
    [warning] = watch.warnings()
    assert "persistence true" in warning


def test_dropped_messages_are_told() -> None:
    watch = connected_watch()
    watch.on_sys_message("$SYS/broker/uptime", b"17")
    watch.on_sys_message(DROPPED_TOPIC, b"not a number")
    assert watch.dropped is None
    watch.on_sys_message(DROPPED_TOPIC, b"246")
    assert "dropped 246 messages" in (as_text(watch.warnings()) or "")


def test_a_broker_that_hides_its_counters_is_told_after_a_while() -> None:
    now_s = 0.0
    watch = MosquittoHealthMonitor(now_s=lambda: now_s)
    watch.on_connack(True, None, WEEK_S)
    assert watch.warnings() == []
    now_s = 100.0
    [warning] = watch.warnings()
    assert "$SYS/broker/#" in warning


def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    watch = MosquittoHealthMonitor(pid_file=tmp_path / "missing.pid")
    watch.check_config()
    [warning] = watch.warnings()
    assert "cannot be checked" in warning
