"""A rule for a press fires once for each press, in both engines, as the codec writes it."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.engine.native import NativeEngine
from domain.devices.messages import StockFirmwareTelemetryReport
from domain.devices.model import FirmwareProfile
from domain.rules.ports import TelemetryEngine
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from support.boards import Board, only
from support.engine import DEVICE, T0, EngineDriver, rule

PUSH = {"component": "input:0", "id": 0, "event": "single_push", "ts": 1.0}
PRESSES = [
    (FirmwareProfile.TASMOTA, "stat/RESULT", {"Button1": {"Action": "SINGLE"}}, "button1"),
    (FirmwareProfile.ESPHOME, "event/bell/state", {"event_type": "press"}, "event.bell"),
    (FirmwareProfile.SHELLY, "events/rpc", {"method": "NotifyEvent", "params": {"ts": 1.0, "events": [PUSH, PUSH]}}, "input0"),
]


@pytest.fixture(params=[ReferenceTelemetryEngine, NativeEngine], ids=["reference", "native"])
def engine(request: pytest.FixtureRequest) -> TelemetryEngine:
    made: TelemetryEngine = request.param()
    return made


@pytest.mark.parametrize(("profile", "topic", "message", "metric"), PRESSES)
def test_a_rule_fires_at_each_press(
    engine: TelemetryEngine, profile: FirmwareProfile, topic: str, message: dict[str, Any], metric: str
) -> None:
    driver, board = EngineDriver(engine, rule((metric, "==", "SINGLE"))), Board(profile)
    presses = 2 if profile is FirmwareProfile.SHELLY else 1
    for at_s in (0, 0, 5):
        board.now_ms = T0 + at_s * 1_000
        payloads = [each.payload for each in only(StockFirmwareTelemetryReport, board.says(topic, message, after_ms=0))]
        fired = [firing.rule_no for payload in payloads for firing in driver.send(payload, at_s).rule_firings]
        assert fired == [1] * presses
        latest = {reading.metric: reading.value for reading in engine.latest(DEVICE)}
        assert latest[metric] == "NONE"
