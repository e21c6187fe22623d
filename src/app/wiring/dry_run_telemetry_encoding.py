"""Encodes values as a native telemetry payload, so that a rule dry run can replay history."""

from __future__ import annotations

import json
from collections.abc import Mapping

from domain.rules.model import MetricValue


def encode_telemetry(at_ms: int, values: Mapping[str, MetricValue]) -> bytes:
    return json.dumps({"ts": at_ms, "m": dict(values)}).encode()
