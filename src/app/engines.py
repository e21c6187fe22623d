"""Which engine evaluates: native, or the readable reference. There is no silent fallback from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from domain.grants.limit import GrantEvaluator
from domain.rules.ports import TelemetryBatch, TelemetryEngine
from domain.webhooks.signing import SignerFactory

CHECKOUT = Path(__file__).resolve().parents[2]
"""Where the Rust sources lie when the program runs from a checkout; an installed wheel has none, and nothing to compare."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """One engine for the fleet, `fresh` ones for trials, and its window evaluator and signers."""

    name: str
    engine: TelemetryEngine
    fresh: Callable[[], TelemetryEngine]
    batch: Callable[[Sequence[tuple[int, int, bytes]]], TelemetryBatch]
    windows: GrantEvaluator
    signers: SignerFactory


def load_engine(name: str) -> EngineParts:
    """Raises EngineMissing or EngineStale."""
    return _native() if name == "native" else _reference()


def _native() -> EngineParts:
    from adapters.engine import freshness

    freshness.check(CHECKOUT)
    from adapters.engine.native import NativeEngine, NativeSigners, batch_of
    from adapters.engine.windows import NativeWindows

    return EngineParts("native", NativeEngine(), NativeEngine, batch_of, NativeWindows(), NativeSigners())


def _reference() -> EngineParts:
    from adapters.engine.reference import ReferenceEngine, ReferenceSigners, ReferenceWindows
    from domain.telemetry.batch import PlainBatch

    return EngineParts(
        "reference", ReferenceEngine(), ReferenceEngine, PlainBatch.of, ReferenceWindows(), ReferenceSigners()
    )
