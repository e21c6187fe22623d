"""Both engines parse damaged payloads alike: bytes that were deleted, inserted, repeated or overwritten."""

from __future__ import annotations

import os
import random

from adapters.engine.native import NativeEngine
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from support.engine import MetricNumbers

CASES = int(os.environ.get("LATCHBOARD_PROPERTY_CASES", "4000")) * 5
NOW_MS = 1_790_000_000_000
PARTS = ("rows", "new_metrics", "faults", "last_seen", "message_count", "reading_count")
VALID_PAYLOADS = (
    b'{"ts":1790000000000,"m":{"t":21.5,"mode":"eco","on":true},"u":{"t":"C"}}',
    b'[{"t":1e3,"h":-0.5},{"t":"\\u00e9\\ud83d\\ude00\\n"}]',
    b'{"temperature":21.4,"humidity":40,"pressure":1013.25,"voltage":3.301,"rssi":-67}',
    '{"é":"ü","a\\"b":null,"n":NaN,"i":-Infinity,"x":[{"y":[1,2]}]}'.encode(),
    b' { "t" : 0.1e-5 , "t" : 2 , "ts" : 12 } ',
)
FRAGMENTS = (
    b'"',
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\udc00",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"+",
    b".",
    b"e",
    b"0",
    b"01",
    b"9" * 25,
    b"null",
    b"true",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"\x00",
    b"\x1f",
    b"\x7f",
    b"\xc2\x80",
    b"\xff",
    b"\xed\xa0\x80",
    b" ",
    b"\t",
    b"\xc2\xa0",
    b'"ts":',
    b'"m":{',
    b'"u":{',
    b"1e309",
    b"1E-400",
    b"\xef\xbb\xbf",
    b"//",
    b"'",
)


def damaged_payload(chance: random.Random) -> bytes:
    payload = bytearray(chance.choice(VALID_PAYLOADS))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 6))):
        at = chance.randrange(len(payload) + 1)
        match chance.randrange(5):
            case 0:
                del payload[at : at + chance.choice((1, 1, 2, 9))]
            case 1:
                payload[at:at] = chance.choice(FRAGMENTS)
            case 2:
                payload[at : at + 1] = chance.choice(FRAGMENTS)
            case 3:
                payload[at:at] = payload[at : at + chance.randrange(12)]
            case _:
                payload[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(payload)


def test_both_engines_parse_damaged_payloads_alike() -> None:
    chance = random.Random(int(os.environ.get("LATCHBOARD_PROPERTY_SEED", "0")))
    native, reference, numbers = NativeEngine(), ReferenceTelemetryEngine(), MetricNumbers()
    for number in range(CASES):
        device_no = number // 20 + 1
        payload = damaged_payload(chance)
        batch = PythonTelemetryBatch.of([(device_no, NOW_MS, payload)])
        results, expected = numbers.ingest(native, batch), numbers.ingest(reference, batch)
        for part in ("unknown_metric_names", *PARTS):
            assert getattr(results[0], part) == getattr(expected[0], part), (number, payload, part)
            assert getattr(results[-1], part) == getattr(expected[-1], part), (number, payload, part)
        assert repr(native.latest(device_no)) == repr(reference.latest(device_no)), (number, payload)
        if number % 20 == 19:
            native.remove_device(device_no)
            reference.remove_device(device_no)
