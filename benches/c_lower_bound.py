"""Compiles and calls c_lower_bound.c: how fast the machine could be at the independent workload, with nothing around it."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shutil import which

import pytest

from domain.rules.model import in_firing_order
from independent_fleet import COMPARATORS, METRICS, Device, Message


def lower_bound(fleet: Iterable[Device], count: int) -> Callable[[Sequence[Message]], Callable[[], list[int]]]:
    """A function from messages to a prepared call that gives the rules that fire. The C code has one fleet at a time."""
    native = _compiled()
    keys = [f'"{name}":'.encode() for name in METRICS]
    native.setup(len(keys), (ctypes.c_char_p * len(keys))(*keys), count)
    for device in fleet:
        _set_device(native, device)
    return lambda messages: _prepared(native, messages)


def _compiled() -> ctypes.CDLL:
    compiler = which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "lower_bound.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        native = ctypes.CDLL(str(library))
    native.ingest.restype = ctypes.c_int64
    return native


def _set_device(native: ctypes.CDLL, device: Device) -> None:
    rules = in_firing_order([rule for rule in device.rules if rule.enabled])
    conditions = [condition for rule in rules for condition in rule.conditions]
    ends = [sum(len(rule.conditions) for rule in rules[: index + 1]) for index in range(len(rules))]
    own = [METRICS[metric] for metric in device.metrics]
    native.set_device(
        device.number,
        len(own),
        bytes(device.metrics),
        len(rules),
        bytes(ends),
        (ctypes.c_uint32 * len(rules))(*(rule.rule_no for rule in rules)),
        bytes(own.index(condition.metric) for condition in conditions),
        bytes(COMPARATORS.index(condition.comparator) for condition in conditions),
        (ctypes.c_double * len(conditions))(*(float(condition.value) for condition in conditions)),
    )


def _prepared(native: ctypes.CDLL, messages: Sequence[Message]) -> Callable[[], list[int]]:
    payloads = b"".join(payload for _, _, payload in messages) + bytes(32)
    numbers = array("I", [number for number, _, _ in messages])
    ends, end = array("q"), 0
    for _, _, payload in messages:
        end += len(payload)
        ends.append(end)
    fired = (ctypes.c_uint32 * (8 * len(messages)))()
    arguments = [(ctypes.c_char * (each.itemsize * len(each))).from_buffer(each) for each in (numbers, ends)]

    def ingest() -> list[int]:
        return fired[: native.ingest(ctypes.c_int64(len(messages)), *arguments, payloads, fired)]

    return ingest
