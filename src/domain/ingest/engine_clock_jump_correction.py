"""The clock that the engine measures by: the service's wall clock, and every step of it.

Rules and their states use wall time, so that a restart continues from what the database contains. Between restarts they must not
follow a step of the clock: before the engine is used, `follow_steps` moves all its times along.
"""

from __future__ import annotations

from collections.abc import Callable

from domain.ingest.engine_result_writer import IngestResult
from domain.kernel.clock import Clock, ClockStepDetector
from domain.rules.ports import TelemetryEngine


class EngineClockJumpCorrector:
    def __init__(self, *, engine: TelemetryEngine, clock: Clock, on_step: Callable[[int], None]) -> None:
        """`on_step` is told of each step, in milliseconds."""
        self._engine = engine
        self._clock = clock
        self._steps = ClockStepDetector(clock)
        self._on_step = on_step
        self.step_count = 0

    def start(self) -> None:
        """Call when the engine has been restored: it has the clock as it is now."""
        self._steps = ClockStepDetector(self._clock)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def follow_steps(self) -> IngestResult | None:
        """Call under the engine commit lock before the engine takes messages or evaluates timers. Store the result, if any: the
        states of rules whose times have moved."""
        step_ms = self._steps.take_ms()
        if step_ms == 0:
            return None
        self.step_count += 1
        self._on_step(step_ms)
        return IngestResult.of(self._engine.shift_clock(step_ms, self._clock.now_ms()))
