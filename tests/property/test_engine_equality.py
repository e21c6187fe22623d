"""The native engine equals the reference engine on generated rule sets, message sequences, timers and restarts.

LATCHBOARD_PROPERTY_CASES sets how many (2,000 by default), LATCHBOARD_PROPERTY_SEED the number of the first one.
"""

from __future__ import annotations

import os

import pytest

from adapters.engine.native import NativeEngine
from domain.telemetry.reference_engine import ReferenceTelemetryEngine
from property import engine_cases as cases
from property.engine_run import EngineRun

CASES = int(os.environ.get("LATCHBOARD_PROPERTY_CASES", "2000"))
SEED = int(os.environ.get("LATCHBOARD_PROPERTY_SEED", "0"))
CHUNKS = 8
DEVICES = (1, 2, 3, 1024, 2**24 + 5)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_native_engine_equals_the_reference_engine(chunk: int) -> None:
    for number in range(SEED + chunk, SEED + CASES, CHUNKS):
        native, reference = EngineRun(NativeEngine), EngineRun(ReferenceTelemetryEngine)
        for step, action in enumerate(cases.case(number)):
            where = f"case {number}, step {step}: {action}"
            assert repr(native.act(action)) == repr(reference.act(action)), where
            assert native.engine.next_timer_ms() == reference.engine.next_timer_ms(), where
            assert native.engine.clock_offsets(DEVICES) == reference.engine.clock_offsets(DEVICES), where
            for device_no in DEVICES:
                assert repr(native.engine.latest(device_no)) == repr(reference.engine.latest(device_no)), where
