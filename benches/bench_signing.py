"""Signing a webhook of 300 bytes: native beside the standard library's two ways and `standardwebhooks`."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook

from adapters.engine.native import create_native_signer
from adapters.engine.reference import ReferenceWebhookSigner

Cpu = Callable[[Callable[[], object], int], float]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"id": "evt_01", "type": "relay_changed", "data": "' + b"x" * 247 + b'"}'
KEY = SECRET.encode()
CALLS = 100_000
NATIVE = create_native_signer(SECRET)
REFERENCE = ReferenceWebhookSigner(SECRET)


@pytest.mark.parametrize("contender", ["native", "hmac.digest", "hmac.new", "reference"])
def test_service_signature(cpu: Cpu, contender: str) -> None:
    assert len(BODY) == 300
    assert NATIVE.service_signature(BODY) == REFERENCE.service_signature(BODY)
    sign: Callable[[], object] = {
        "native": lambda: NATIVE.service_signature(BODY),
        "hmac.digest": lambda: hmac.digest(KEY, BODY, "sha256"),
        "hmac.new": lambda: hmac.new(KEY, BODY, hashlib.sha256).hexdigest(),
        "reference": lambda: REFERENCE.service_signature(BODY),
    }[contender]
    cpu(lambda: [sign() for _ in range(CALLS)], CALLS)


@pytest.mark.parametrize("contender", ["native", "reference", "standardwebhooks"])
def test_standard_signature(cpu: Cpu, contender: str) -> None:
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    seconds, text, peer = int(moment.timestamp()), BODY.decode(), Webhook(SECRET)
    sign: Callable[[], str] = {
        "native": lambda: NATIVE.standard_signature("evt_01", seconds, BODY),
        "reference": lambda: REFERENCE.standard_signature("evt_01", seconds, BODY),
        "standardwebhooks": lambda: peer.sign("evt_01", moment, text),
    }[contender]
    assert sign() == REFERENCE.standard_signature("evt_01", seconds, BODY)
    cpu(lambda: [sign() for _ in range(CALLS // 4)], CALLS // 4)


def test_a_batch_of_both_signatures(cpu: Cpu) -> None:
    batch = [(f"evt_{number}", 1_790_000_000, BODY) for number in range(256)]
    assert NATIVE.sign_batch(batch) == REFERENCE.sign_batch(batch)
    cpu(lambda: [NATIVE.sign_batch(batch) for _ in range(100)], 25_600)
