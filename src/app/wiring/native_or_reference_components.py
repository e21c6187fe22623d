"""Selects the engine: native (Rust) or reference (Python). There is no silent fallback from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from domain.events.hash_chain import ChainHasher
from domain.grants.model import GrantWindowAndRateEvaluator
from domain.rules.ports import RawTelemetryBatch, TelemetryEngine
from domain.webhooks.ports import CreateSigner

SOURCE_ROOT = Path(__file__).resolve().parents[3]
"""The checkout that holds the Rust sources; an installed wheel has none, and the freshness check is skipped."""


def _no_blocks(blocks: Sequence[bytes]) -> RawTelemetryBatch:
    raise ValueError("blocks are read by instances of a cluster only")


@dataclass(frozen=True, slots=True)
class NativeOrReferenceComponents:
    """The engine of the fleet, a factory of engines for rule dry runs, and grant evaluator, signer and hasher of the same
    kind."""

    name: str
    engine: TelemetryEngine
    create_engine: Callable[[], TelemetryEngine]
    make_batch: Callable[[Sequence[tuple[int, int, bytes]]], RawTelemetryBatch]
    grant_evaluator: GrantWindowAndRateEvaluator
    create_signer: CreateSigner
    chain_hasher: ChainHasher
    read_blocks: Callable[[Sequence[bytes]], RawTelemetryBatch] = _no_blocks
    """Reads the entries of a cluster's log. Raises ValueError."""


def load_engine(name: str) -> NativeOrReferenceComponents:
    """Raises EngineMissingError or ExtensionOutdatedError."""
    return _load_native() if name == "native" else _load_reference()


def _load_native() -> NativeOrReferenceComponents:
    from adapters.engine import extension_check

    extension_check.check_extension(SOURCE_ROOT)
    from adapters.engine.native import (
        NativeEngine,
        NativeGrantWindowAndRateEvaluator,
        chain_events,
        create_native_signer,
        make_batch,
    )

    return NativeOrReferenceComponents(
        "native",
        NativeEngine(),
        NativeEngine,
        make_batch,
        NativeGrantWindowAndRateEvaluator(),
        create_native_signer,
        chain_events,
    )


def _load_reference() -> NativeOrReferenceComponents:
    from adapters.engine.reference import ReferenceGrantWindowAndRateEvaluator, ReferenceWebhookSigner
    from domain.events.hash_chain import chain_events
    from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine

    return NativeOrReferenceComponents(
        "reference",
        ReferenceTelemetryEngine(),
        ReferenceTelemetryEngine,
        PythonTelemetryBatch.of,
        ReferenceGrantWindowAndRateEvaluator(),
        ReferenceWebhookSigner,
        chain_events,
    )


def own_devices_only(parts: NativeOrReferenceComponents, owns_device: Callable[[int], bool]) -> NativeOrReferenceComponents:
    """The same parts for an instance of a cluster."""
    from adapters.engine.native import OwnedDeviceRulesEngine, read_blocks

    return replace(parts, engine=OwnedDeviceRulesEngine(owns_device), read_blocks=read_blocks)
