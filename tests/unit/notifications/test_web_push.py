"""Web Push: what a browser decrypts and a push service verifies, by the RFCs."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec

from adapters.notifications.web_push import MAX_TEXT, VapidKeyCodec, push_request
from domain.notifications.destinations import WebPushDestination
from domain.notifications.model import NotificationMessage
from support.push_browser import PushBrowser, decode, decrypt, verify_vapid

NOW_MS = 1_790_000_000_000
ENDPOINT = "https://push.example.net:8443/send/abc?x=1"
MESSAGE = NotificationMessage("Tor: Öffnen", "Bitte ✓", "https://latch.example/#/approvals", "apv_1", 3600, is_urgent=True)


def destination(browser: PushBrowser) -> WebPushDestination:
    subscription = browser.subscription()
    return WebPushDestination(subscription["endpoint"], subscription["keys"]["p256dh"], subscription["keys"]["auth"])


def test_the_example_of_rfc_8291_decrypts() -> None:
    """Of its section 5: so that the browser of these tests is right."""
    private = int.from_bytes(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"), "big")
    key = ec.derive_private_key(private, ec.SECP256R1())
    body = decode(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert decrypt(body, key, decode("BTBZMqHH6r4Tts7J_aSIgg")) == b"When I grow up, I want to be a watermelon"


def test_the_browser_of_a_subscription_decrypts_its_message_and_no_other_does() -> None:
    codec = VapidKeyCodec()
    private = codec.generate()
    browser, other = PushBrowser(ENDPOINT), PushBrowser(ENDPOINT)
    made = push_request(destination(browser), MESSAGE, private_key=private, contact="mailto:ops@latch.example", now_ms=NOW_MS)
    assert made.url == ENDPOINT
    assert browser.decrypt(made.body) == {"title": MESSAGE.title, "body": MESSAGE.text, "link": MESSAGE.link, "tag": MESSAGE.tag}
    with pytest.raises(InvalidTag):
        other.decrypt(made.body)
    headers = dict(made.headers)
    assert (headers["Content-Encoding"], headers["TTL"], headers["Urgency"]) == ("aes128gcm", "3600", "high")
    claims = verify_vapid(headers, codec.public_key(private), NOW_MS // 1000)
    assert (claims["aud"], claims["sub"]) == ("https://push.example.net:8443", "mailto:ops@latch.example")


def test_a_long_message_fits_what_push_services_take() -> None:
    link = "https://latch.example/#/decide/" + "x" * 500
    long = NotificationMessage("ü" * 100, "✓" * 10_000, link, "tag", 60)
    browser = PushBrowser(ENDPOINT)
    made = push_request(destination(browser), long, private_key=VapidKeyCodec().generate(), contact="mailto:a@b.c", now_ms=NOW_MS)
    assert len(made.body) <= 4_096
    assert browser.decrypt(made.body)["body"] == "✓" * MAX_TEXT


def test_only_keys_that_a_browser_can_have_are_accepted() -> None:
    codec, keys = VapidKeyCodec(), PushBrowser(ENDPOINT).subscription()["keys"]
    assert codec.are_browser_keys(keys["p256dh"], keys["auth"])
    for p256dh, auth in (
        (keys["p256dh"][:-4], keys["auth"]),
        (keys["p256dh"], keys["auth"][:-2]),
        ("B" + "A" * 86, keys["auth"]),
        ("not base64!", keys["auth"]),
        (keys["auth"], keys["p256dh"]),
    ):
        assert not codec.are_browser_keys(p256dh, auth)
