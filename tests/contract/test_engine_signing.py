"""Both signers give equal signatures, which equal the published vectors and those of an independent library."""

from __future__ import annotations

import base64
import random
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook

from adapters.engine.native import create_native_signer
from adapters.engine.reference import ReferenceWebhookSigner
from domain.kernel.errors import ValidationFailed
from domain.webhooks.ports import CreateSigner

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(params=[ReferenceWebhookSigner, create_native_signer], ids=["reference", "native"])
def create_signer(request: pytest.FixtureRequest) -> CreateSigner:
    return request.param


def test_the_standard_signature_equals_the_specifications_vector(create_signer: CreateSigner) -> None:
    signature = create_signer(SECRET).standard_signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_standard_signature_equals_the_standard_webhooks_library(create_signer: CreateSigner) -> None:
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    expected = Webhook(SECRET).sign("evt_1", moment, '{"é": 1}')
    assert create_signer(SECRET).standard_signature("evt_1", int(moment.timestamp()), '{"é": 1}'.encode()) == expected


@pytest.mark.parametrize("secret", ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%%%", "whsec_abc"])
def test_an_invalid_secret_is_rejected(create_signer: CreateSigner, secret: str) -> None:
    with pytest.raises(ValidationFailed, match="whsec_"):
        create_signer(secret)


def test_native_and_reference_agree_for_every_length_around_the_block_size_of_the_hash() -> None:
    chance = random.Random(7)
    for size in [*range(260), 4096, 70_001]:
        secret = "whsec_" + base64.b64encode(chance.randbytes(chance.choice((1, 24, 32, 64, 65, 130)))).decode()
        body = chance.randbytes(size)
        native, reference = create_native_signer(secret), ReferenceWebhookSigner(secret)
        messages = [("evt_" + "x" * chance.randrange(40), chance.randrange(2**40), body)]
        assert native.service_signature(body) == reference.service_signature(body)
        assert native.sign_batch(messages) == reference.sign_batch(messages)
        assert native.sign_batch(messages) == [(native.service_signature(body), native.standard_signature(*messages[0]))]
