"""Sign-in with OpenID Connect at a provider made of Authlib's server side: who comes in, as whom, with which role; and what a
provider, a browser or somebody between them may try."""

from __future__ import annotations

import hashlib
import hmac
import json
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import jwt
import pyotp
import pytest
from joserfc import jws
from joserfc.jwk import RSAKey

from domain.kernel.caller import Role
from support.http import PASSWORD
from support.identity_provider import IdentityProvider, signing_key
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

ADA = "ada@example.com"
GRACE = {"sub": "grace-1", "email": "grace@example.com", "email_verified": True, "name": "Grace Hopper"}
PUBLIC_URL = "http://latchboard.test"
CALLBACK = "/dashboard/session/oidc/callback"
OWN_PAGE = {"X-CSRF-Protection": "1"}


class Browser:
    """What a browser does: it keeps the service's cookies, and goes to the provider and back."""

    def __init__(self, app: InProcessApp, provider: IdentityProvider) -> None:
        self.app = app
        self.provider = provider
        transport = httpx.ASGITransport(app=app.program.http_app, raise_app_exceptions=False)  # type: ignore[arg-type]
        self.http = httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL)

    async def begin(self, return_to: str = "") -> str:
        """The provider's address."""
        answer = await self.http.post("/dashboard/session/oidc/begin", json={"returnTo": return_to}, headers=OWN_PAGE)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["url"])

    async def at_provider(self, url: str) -> str:
        """Where the provider sends the browser, without its origin."""
        async with httpx.AsyncClient(verify=False) as http:
            answer = await http.get(url)
        assert answer.status_code == 302, answer.text
        assert answer.headers["Location"].startswith(f"{PUBLIC_URL}{CALLBACK}?")
        return str(answer.headers["Location"]).removeprefix(PUBLIC_URL)

    async def come_back(self, back: str) -> str:
        """The place in the dashboard that the service sends the browser to."""
        answer = await self.http.get(back)
        assert answer.status_code == 303, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        location = str(answer.headers["Location"])
        assert location.startswith("/#/")
        return location.removeprefix("/#/")

    async def sign_in(self, return_to: str = "") -> str:
        return await self.come_back(await self.at_provider(await self.begin(return_to)))

    async def caller(self) -> ApiCaller:
        """The signed-in person, by the cookie."""
        answer = await self.http.post("/dashboard/session/refresh", headers=OWN_PAGE)
        assert answer.status_code == 200, answer.text
        return self.app.caller(Authorization=f"Bearer {answer.json()['accessToken']}")

    async def me(self) -> dict[str, Any]:
        found: dict[str, Any] = await (await self.caller()).send_ok("GET", "/auth/me")
        return found


@asynccontextmanager
async def signing_in(**settings: Any) -> AsyncIterator[Browser]:
    with tempfile.TemporaryDirectory() as folder, IdentityProvider() as provider:
        chosen = {"public_url": PUBLIC_URL, "oidc_name": "Plant SSO", **provider.settings(), **settings}
        async with in_process_app(Path(folder), **chosen) as app:
            provider.now_s = lambda: app.clock.now_ms() / 1_000
            provider.client.redirect_uri = f"{PUBLIC_URL}{CALLBACK}"
            provider.person = dict(GRACE)
            await app.create_account(ADA)
            browser = Browser(app, provider)
            try:
                yield browser
            finally:
                await browser.http.aclose()
                await app.services.sign_in.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with signing_in(oidc_auto_create=True, oidc_default_role="Member") as made:
        yield made


async def owner(browser: Browser) -> ApiCaller:
    return await browser.app.sign_in(ADA)


async def events(browser: Browser, kind: str) -> list[str]:
    found = await (await owner(browser)).send_ok("GET", f"/events?type={kind}&limit=200")
    return [event["description"] for event in found["data"]]


async def test_a_person_of_the_provider_becomes_a_member_and_stays_the_same_one(browser: Browser) -> None:
    assert (await browser.http.get("/dashboard/session/methods")).json() == {"oidc": {"name": "Plant SSO"}}
    assert await browser.sign_in("device/dev_123") == "signed-in/device/dev_123"
    first = await browser.me()
    assert (first["email"], first["name"], first["role"]) == ("grace@example.com", "Grace Hopper", "Member")
    assert (first["hasPassword"], first["emailVerified"]) == (False, True)
    browser.provider.person |= {"email": "hopper@example.com", "name": "Rear Admiral"}  # the subject is what counts
    assert await browser.sign_in() == "signed-in/"
    assert (await browser.me())["userId"] == first["userId"]
    assert len(await (await owner(browser)).send_ok("GET", "/members")) == 2


async def test_what_is_asked_of_the_provider(browser: Browser) -> None:
    url = urlsplit(await browser.begin())
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert (asked["response_type"], asked["code_challenge_method"], asked["client_id"]) == ("code", "S256", "latchboard")
    assert asked["redirect_uri"] == f"{PUBLIC_URL}{CALLBACK}"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    again = dict(parse_qsl(urlsplit(await browser.begin()).query))
    assert {again[name] == asked[name] for name in ("state", "nonce", "code_challenge")} == {False}


@pytest.mark.parametrize(("method", "secret"), [("client_secret_post", "of + two & parties:%"), ("none", "")])
async def test_other_ways_to_show_the_client_secret(method: str, secret: str) -> None:
    chosen = {"oidc_auto_create": True, "oidc_default_role": "Member", "oidc_client_secret": secret}
    async with signing_in(**chosen) as browser:
        browser.provider.client.secret, browser.provider.client.auth_method = secret, method
        browser.provider.document = {"token_endpoint_auth_methods_supported": ["client_secret_basic", method]}
        assert await browser.sign_in() == "signed-in/"


async def test_without_auto_create_strangers_are_refused_and_invited_ones_come_in() -> None:
    async with signing_in() as browser:
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_USER_UNKNOWN"
        invited = {"email": "grace@example.com", "name": "Grace", "role": "Admin"}
        await (await owner(browser)).send_ok("POST", "/invitations", invited)
        assert await browser.sign_in() == "signed-in/"
        assert (await browser.me())["role"] == "Admin"
        assert await (await owner(browser)).send_ok("GET", "/invitations") == []


async def test_a_user_is_found_by_an_address_that_both_sides_have_confirmed() -> None:
    async with signing_in() as browser:
        account = (await (await owner(browser)).send_ok("GET", "/auth/me"))["accountId"]
        added = {"email": "grace@example.com", "name": "Grace", "role": "Viewer", "password": PASSWORD}
        await (await owner(browser)).send_ok("POST", "/members", added)
        assert await browser.sign_in() == "sign-in-failed/USER_EMAIL_UNVERIFIED"  # an Admin wrote the address
        await browser.app.services.operator.confirm_email("grace@example.com")
        assert await browser.sign_in() == "signed-in/"
        me = await browser.me()
        assert (me["role"], me["accountId"], me["hasPassword"]) == ("Viewer", account, True)
        browser.provider.person["sub"] = "another-grace"  # a second identity with the same address is somebody else
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_USER_UNKNOWN"


@pytest.mark.parametrize("verified", [False, None, "no"])
async def test_an_address_that_the_provider_does_not_confirm_leads_to_nobody(verified: Any) -> None:
    async with signing_in(oidc_auto_create=True, oidc_default_role="Member") as browser:
        browser.provider.person = {"sub": "mallory", "email": ADA, "email_verified": verified}
        if verified is None:
            del browser.provider.person["email_verified"]
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_EMAIL_UNVERIFIED"


async def test_an_address_that_is_said_to_be_unconfirmed_is_refused_even_from_a_trusted_provider() -> None:
    async with signing_in(oidc_trust_email=True) as browser:
        browser.provider.person = {"sub": "ada-1", "email": ADA, "email_verified": False}
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_EMAIL_UNVERIFIED"
        del browser.provider.person["email_verified"]
        assert await browser.sign_in() == "signed-in/"


async def test_claims_that_only_the_user_info_has_are_used_if_they_are_of_the_same_user(browser: Browser) -> None:
    browser.provider.claims = {"email": None, "email_verified": None}
    assert await browser.sign_in() == "signed-in/"
    browser.provider.userinfo = {**GRACE, "sub": "ada-1"}
    assert await browser.sign_in() == "sign-in-failed/PROVIDER_REJECTED"


ROLES = {"oidc_role_claim": "realm_access.roles", "oidc_role_map": "plant-admins=Admin, plant=Member, bosses=Owner"}


async def test_the_role_follows_the_claim_at_each_sign_in() -> None:
    async with signing_in(oidc_auto_create=True, **ROLES) as browser:
        roles: list[Any] = []
        for claimed in (["plant"], ["plant", "plant-admins"], ["other", "plant"]):
            browser.provider.person["realm_access"] = {"roles": claimed}
            assert await browser.sign_in() == "signed-in/"
            roles.append((await browser.me())["role"])
        assert roles == ["Member", "Admin", "Member"]
        browser.provider.person["realm_access"] = {"roles": ["other"]}
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_GIVES_NO_ROLE"
        assert "Grace Hopper is now Admin, as the provider says" in await events(browser, "member_changed")


async def test_a_claim_never_takes_away_the_last_owner() -> None:
    async with signing_in(**ROLES) as browser:
        browser.provider.person = {"sub": "ada-1", "email": ADA, "email_verified": True, "realm_access": {"roles": ["plant"]}}
        assert await browser.sign_in() == "signed-in/"
        assert (await browser.me())["role"] == "Owner"
        browser.provider.person["realm_access"] = {"roles": []}
        assert await browser.sign_in() == "signed-in/"
        second = {"email": "second@example.com", "name": "Second", "role": "Owner", "password": PASSWORD}
        await (await owner(browser)).send_ok("POST", "/members", second)
        browser.provider.person["realm_access"] = {"roles": ["plant"]}
        assert await browser.sign_in() == "signed-in/"
        assert (await browser.me())["role"] == "Member"


async def test_with_several_accounts_the_provider_adds_nobody_and_decides_no_role_unless_one_is_named() -> None:
    async with signing_in(oidc_auto_create=True, **ROLES) as browser:
        await browser.app.create_account("eve@example.com", "Other")
        browser.provider.person["realm_access"] = {"roles": ["bosses"]}
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_USER_UNKNOWN"


async def test_a_local_second_factor_is_asked_for_unless_the_provider_stands_for_it(browser: Browser) -> None:
    assert await browser.sign_in() == "signed-in/"
    caller = await browser.caller()
    await _set_up_totp(browser.app, caller)
    place = await browser.sign_in()
    assert place.startswith("confirm/")
    assert browser.http.cookies.get("latchboard_refresh", path="/dashboard/session") is not None  # of the first sign-in
    refused = await browser.app.caller().send("POST", "/auth/login", {"email": "grace@example.com", "password": PASSWORD})
    assert refused.status_code == 401


async def _set_up_totp(app: InProcessApp, caller: ApiCaller) -> None:
    secret = (await caller.send_ok("POST", "/auth/second-factor/totp"))["secret"]
    code = pyotp.TOTP(secret).at(app.clock.now_ms() // 1000)
    await caller.send_ok("POST", "/auth/second-factor/totp/confirm", {"code": code})


@pytest.mark.parametrize(("amr", "allowed"), [(["pwd", "otp", "mfa"], True), (["pwd"], False)])
async def test_a_required_second_factor_may_be_the_providers(amr: list[str], allowed: bool) -> None:
    strict = {"require_second_factor": "all", "oidc_second_factor": "claimed"}
    async with signing_in(oidc_auto_create=True, oidc_default_role="Member", **strict) as browser:
        browser.provider.claims = {"amr": amr}
        assert await browser.sign_in() == "signed-in/"
        answer = await (await browser.caller()).send("GET", "/devices")
        assert answer.status_code == (200 if allowed else 403), answer.text


async def test_a_session_ends_when_the_provider_must_confirm_the_user_again(browser: Browser) -> None:
    assert await browser.sign_in() == "signed-in/"
    for _ in range(3):
        browser.app.clock.forward(minutes=6 * 60)
        await browser.me()
    browser.app.clock.forward(minutes=6 * 60)
    answer = await browser.http.post("/dashboard/session/refresh", headers=OWN_PAGE)
    assert (answer.status_code, answer.json()["error"]) == (401, "TOKEN_EXPIRED")


async def test_a_person_without_a_password_sets_one_shortly_after_signing_in(browser: Browser) -> None:
    assert await browser.sign_in() == "signed-in/"
    caller = await browser.caller()
    browser.app.clock.forward(minutes=6)
    late = await caller.send("POST", "/auth/password/change", {"newPassword": "one of her own"})
    assert (late.status_code, late.json()["error"]) == (403, "STEP_UP_REQUIRED")
    assert await browser.sign_in() == "signed-in/"
    await (await browser.caller()).send_ok("POST", "/auth/password/change", {"newPassword": "one of her own"})
    login = {"email": "grace@example.com", "password": "one of her own"}
    tokens = await browser.app.caller().send_ok("POST", "/auth/login", login)
    again = browser.app.caller(Authorization=f"Bearer {tokens['accessToken']}")
    refused = await again.send("POST", "/auth/password/change", {"newPassword": "without the current one"})
    assert (refused.status_code, refused.json()["error"]) == (403, "PASSWORD_MISMATCH")


async def test_signing_out_of_the_provider_too() -> None:
    async with signing_in(oidc_sign_out=True) as browser:
        answer = await browser.http.post("/dashboard/session/logout", headers=OWN_PAGE)
        url = answer.json()["providerSignOutUrl"]
        assert url.startswith(f"{browser.provider.issuer}/sign-out?client_id=latchboard&post_logout_redirect_uri=")


# What may be tried against it


async def test_a_return_works_once_even_if_the_provider_lets_its_code_be_used_again(browser: Browser) -> None:
    browser.provider.lets_codes_be_used_again = True
    back = await browser.at_provider(await browser.begin())
    cookie = browser.http.cookies["latchboard_oidc"]
    assert await browser.come_back(back) == "signed-in/"
    browser.http.cookies.set("latchboard_oidc", cookie)
    assert await browser.come_back(back) == "sign-in-failed/SIGN_IN_MISMATCH"
    assert browser.provider.calls["/token"] == 1


async def test_a_return_that_another_browser_began_signs_nobody_in(browser: Browser) -> None:
    """A link with the attacker's code must not sign the victim in as the attacker, nor the other way round."""
    back = await browser.at_provider(await browser.begin())
    victim = Browser(browser.app, browser.provider)
    assert await victim.come_back(back) == "sign-in-failed/SIGN_IN_MISMATCH"
    await victim.begin()  # with a sign-in of his own that waits
    assert await victim.come_back(back) == "sign-in-failed/SIGN_IN_MISMATCH"
    assert browser.provider.calls["/token"] == 0
    await victim.http.aclose()


async def test_a_code_of_another_sign_in_is_refused(browser: Browser) -> None:
    """The victim's code, put into the attacker's own return: the verifier and the nonce are of another sign-in."""
    victim = Browser(browser.app, browser.provider)
    stolen = dict(parse_qsl(urlsplit(await victim.at_provider(await victim.begin())).query))["code"]
    own = dict(parse_qsl(urlsplit(await browser.at_provider(await browser.begin())).query))
    assert await browser.come_back(f"{CALLBACK}?{urlencode(own | {'code': stolen})}") == "sign-in-failed/PROVIDER_REJECTED"
    await victim.http.aclose()


async def test_a_return_that_comes_too_late_is_refused(browser: Browser) -> None:
    back = await browser.at_provider(await browser.begin())
    browser.app.clock.forward(minutes=10)
    assert await browser.come_back(back) == "sign-in-failed/SIGN_IN_MISMATCH"


async def test_a_cookie_that_the_service_did_not_seal_is_refused(browser: Browser) -> None:
    back = await browser.at_provider(await browser.begin())
    for cookie in ("", "AAAA", "not base64!", urlsafe_b64encode(b'["s","n","v","",9e15]').decode(), "A" * 9_000):
        browser.http.cookies.clear()
        browser.http.cookies.set("latchboard_oidc", cookie)
        assert await browser.come_back(back) == "sign-in-failed/SIGN_IN_MISMATCH"


async def test_a_return_that_names_another_issuer_is_refused(browser: Browser) -> None:
    """Mix-up (RFC 9207)."""
    own = dict(parse_qsl(urlsplit(await browser.at_provider(await browser.begin())).query))
    assert own["iss"] == browser.provider.issuer
    assert await browser.come_back(f"{CALLBACK}?{urlencode(own | {'iss': 'https://evil.example'})}") == (
        "sign-in-failed/PROVIDER_REJECTED"
    )
    own = dict(parse_qsl(urlsplit(await browser.at_provider(await browser.begin())).query))
    del own["iss"]
    assert await browser.come_back(f"{CALLBACK}?{urlencode(own)}") == "sign-in-failed/PROVIDER_REJECTED"


FALSE_CLAIMS: dict[str, dict[str, Any]] = {
    "of another sign-in": {"nonce": "another"},
    "without a nonce": {"nonce": None},
    "for another client": {"aud": "another"},
    "for many clients, without azp": {"aud": ["latchboard", "another"]},
    "given to another client": {"azp": "another"},
    "of another issuer": {"iss": "https://evil.example"},
    "without a subject": {"sub": None},
    "with an empty subject": {"sub": ""},
    "with a subject that is a number": {"sub": 7},
    "expired": {"exp": -61},
    "without an expiry": {"exp": None},
    "whose expiry is a text": {"exp": "never"},
    "whose expiry is true": {"exp": True},
    "of the future": {"iat": 61},
    "valid later": {"nbf": 61},
    "issued long ago": {"iat": -3_600},
    "of another access token": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
}


@pytest.mark.parametrize("name", FALSE_CLAIMS)
async def test_an_id_token_with_false_claims_is_refused(browser: Browser, name: str) -> None:
    key, now = browser.provider.keys[0], browser.app.clock.now_ms() // 1_000
    false = {
        claim: now + value if type(value) is int and claim in ("exp", "iat", "nbf") else value
        for claim, value in FALSE_CLAIMS[name].items()
    }

    def sign(claims: dict[str, Any]) -> str:
        claims = {claim: value for claim, value in (claims | false).items() if value is not None}
        header, payload = {"alg": "RS256", "kid": key.kid}, claims
        return _sign(header, payload, key)

    browser.provider.forge = sign
    assert await browser.sign_in() == "sign-in-failed/PROVIDER_REJECTED"
    browser.provider.forge = lambda claims: _sign({"alg": "RS256", "kid": key.kid}, claims, key)
    assert await browser.sign_in() == "signed-in/"


def _sign(header: dict[str, Any], claims: dict[str, Any], key: RSAKey) -> str:
    """Only the bytes: libraries refuse to sign claims that are false."""
    return jws.serialize_compact(header, json.dumps(claims), key)


async def test_clocks_may_differ_by_a_minute(browser: Browser) -> None:
    now_s = browser.provider.now_s
    browser.provider.now_s = lambda: now_s() + 59
    assert await browser.sign_in() == "signed-in/"
    browser.provider.claims = {"exp": int(now_s()) - 59, "iat": int(now_s()) - 300}
    assert await browser.sign_in() == "signed-in/"


def forged_tokens(provider: IdentityProvider, claims: dict[str, Any]) -> dict[str, str]:
    own, strange = provider.keys[0], signing_key(-1)
    public = own.as_pem(private=False)
    weak = jwt.encode(claims, strange.as_pem(private=True), algorithm="RS256", headers={"kid": own.kid})
    none = jwt.encode(claims, None, algorithm="none", headers={"kid": own.kid})
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"%s"}' % str(own.kid).encode()).rstrip(b"=")
    body = none.split(".")[1].encode()
    signature = urlsafe_b64encode(hmac.new(public, head + b"." + body, hashlib.sha256).digest()).rstrip(b"=")
    critical = jwt.encode(claims, own.as_pem(private=True), algorithm="RS256", headers={"kid": own.kid, "crit": ["x"], "x": 1})
    unknown = jwt.encode(claims, strange.as_pem(private=True), algorithm="RS256", headers={"kid": "unknown"})
    embedded = jwt.encode(
        claims, strange.as_pem(private=True), algorithm="RS256", headers={"jwk": strange.as_dict(private=False)}
    )
    return {
        "alg none": none,
        "alg none without its dot": none.rstrip("."),
        "HS256 with the public key": b".".join((head, body, signature)).decode(),
        "a strange key with the known id": weak,
        "a strange key": unknown,
        "a key in the token": embedded,
        "a critical header": critical,
        "no token": "nonsense",
        "an endless token": "a" * 20_000,
    }


FORGERIES = (
    "alg none",
    "alg none without its dot",
    "HS256 with the public key",
    "a strange key with the known id",
    "a strange key",
    "a key in the token",
    "a critical header",
    "no token",
    "an endless token",
)


async def test_an_id_token_that_the_provider_did_not_sign_is_refused(browser: Browser) -> None:
    seen: dict[str, str] = {}
    for name in FORGERIES:
        browser.provider.forge = lambda claims, name=name: forged_tokens(browser.provider, claims)[name]  # type: ignore[misc]
        seen[name] = await browser.sign_in()
    assert set(seen.values()) == {"sign-in-failed/PROVIDER_REJECTED"}, seen


async def test_new_keys_of_the_provider_are_fetched_when_a_token_needs_them_but_not_at_every_strangers_wish(
    browser: Browser,
) -> None:
    assert await browser.sign_in() == "signed-in/"
    browser.provider.rotate_key()
    browser.app.clock.forward(seconds=10)
    assert await browser.sign_in() == "signed-in/"
    assert browser.provider.calls["/jwks"] == 2
    browser.provider.forge = lambda claims: forged_tokens(browser.provider, claims)["a strange key"]
    for _ in range(5):
        assert await browser.sign_in() == "sign-in-failed/PROVIDER_REJECTED"
    assert browser.provider.calls["/jwks"] <= 3


async def test_a_provider_that_is_away_is_a_clear_error_and_its_return_goes_on_later(browser: Browser) -> None:
    browser.provider.is_away = True
    answer = await browser.http.post("/dashboard/session/oidc/begin", json={}, headers=OWN_PAGE)
    assert (answer.status_code, answer.json()["error"]) == (503, "PROVIDER_UNAVAILABLE")
    browser.provider.is_away = False
    back = await browser.at_provider(await browser.begin())
    browser.provider.is_away = True
    assert await browser.come_back(back) == "sign-in-failed/PROVIDER_UNAVAILABLE"
    assert (await browser.app.caller().send("POST", "/auth/login", {"email": ADA, "password": PASSWORD})).status_code == 200
    browser.provider.is_away = False
    assert await browser.sign_in() == "signed-in/"


FALSE_DOCUMENTS: list[dict[str, Any]] = [
    {"issuer": "https://evil.example"},
    {"token_endpoint": "file:///etc/passwd"},
    {"token_endpoint": "http://10.0.0.1/token"},
    {"jwks_uri": None},
    {"authorization_endpoint": "javascript:alert(1)"},
    {"userinfo_endpoint": "https://user:password@example.com/"},
    {"code_challenge_methods_supported": ["plain"]},
]


@pytest.mark.parametrize("false", FALSE_DOCUMENTS, ids=lambda document: next(iter(document)))
async def test_a_false_discovery_document_begins_no_sign_in(browser: Browser, false: dict[str, Any]) -> None:
    browser.provider.document = false
    answer = await browser.http.post("/dashboard/session/oidc/begin", json={}, headers=OWN_PAGE)
    assert (answer.status_code, answer.json()["error"]) == (503, "PROVIDER_UNAVAILABLE")


async def test_a_document_that_names_a_private_address_elsewhere_makes_the_service_call_nobody(browser: Browser) -> None:
    browser.provider.document = {"jwks_uri": "https://127.0.0.2:1/jwks", "token_endpoint": "https://169.254.169.254/token"}
    assert await browser.sign_in() == "sign-in-failed/PROVIDER_UNAVAILABLE"


@pytest.mark.parametrize("place", ["//evil.example", "https://evil.example", "/\\evil", "a?b", "a#b", "a/../b", "x" * 300])
async def test_the_return_path_leads_to_no_other_site(browser: Browser, place: str) -> None:
    answer = await browser.http.post("/dashboard/session/oidc/begin", json={"returnTo": place}, headers=OWN_PAGE)
    assert (answer.status_code, answer.json()["error"]) == (400, "VALIDATION_ERROR")


async def test_a_page_of_another_site_begins_no_sign_in(browser: Browser) -> None:
    for headers in ({}, OWN_PAGE | {"Sec-Fetch-Site": "cross-site"}):
        answer = await browser.http.post("/dashboard/session/oidc/begin", json={}, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (403, "CROSS_SITE_REQUEST")


async def test_what_the_provider_refuses_is_said_without_its_words(browser: Browser) -> None:
    state = dict(parse_qsl(urlsplit(await browser.begin()).query))["state"]
    back = f"{CALLBACK}?{urlencode({'state': state, 'error': 'access_denied', 'error_description': '<script>'})}"
    assert await browser.come_back(back) == "sign-in-failed/PROVIDER_REFUSED"


async def test_failed_returns_from_one_address_block_are_bounded(browser: Browser) -> None:
    seen: list[str] = []
    for _ in range(61):
        state = dict(parse_qsl(urlsplit(await browser.begin()).query))["state"]
        seen.append(await browser.come_back(f"{CALLBACK}?state={state}&error=access_denied"))
    assert seen[59:] == ["sign-in-failed/PROVIDER_REFUSED", "sign-in-failed/LOGIN_THROTTLED"]


async def test_a_removed_member_does_not_come_back_as_a_member_with_the_old_role(browser: Browser) -> None:
    assert await browser.sign_in() == "signed-in/"
    boss = await owner(browser)
    members = await boss.send_ok("GET", "/members")
    grace = next(member for member in members if member["email"] == "grace@example.com")
    await boss.send_ok("PATCH", f"/members/{grace['membershipId']}", {"role": Role.ADMIN.value})
    await boss.send_ok("DELETE", f"/members/{grace['membershipId']}")
    assert await browser.sign_in() == "signed-in/"  # the setting lets everybody of the provider in
    assert (await browser.me())["role"] == "Member"


OTHER = "eve@example.com"


@asynccontextmanager
async def with_two_accounts(*, named: str) -> AsyncIterator[tuple[Browser, str]]:
    """`named`: whose account is the provider's: `first`, `none` is said, or `gone`, one that does not exist."""
    async with signing_in() as browser:
        app = browser.app
        async with app.services.uow.read() as tx:
            [first] = await tx.accounts.list_ids()
        other = await app.create_account(OTHER, "Other works")
        policy = app.services.sign_in.oidc.sign_in.members.policy  # type: ignore[union-attr]
        object.__setattr__(policy, "account_id", {"first": first, "none": None, "gone": "acc_00000000000000000000"}[named])
        yield browser, other.account.account_id


@pytest.mark.parametrize("named", ["first", "none", "gone"])
async def test_a_provider_of_one_account_is_not_believed_about_the_owner_of_another(named: str) -> None:
    async with with_two_accounts(named=named) as (browser, _):
        browser.provider.person = {"sub": "thief", "email": OTHER, "email_verified": True, "name": "Mallory"}
        place = await browser.sign_in()
        assert "PROVIDER_USER_UNKNOWN" in place
        answer = await browser.http.post("/dashboard/session/refresh", headers=OWN_PAGE)
        assert answer.status_code == 401


async def test_an_identity_of_another_account_that_was_linked_before_is_refused_too() -> None:
    async with signing_in() as browser:
        app = browser.app
        browser.provider.person = {"sub": "ada-1", "email": ADA, "email_verified": True, "name": "Ada"}
        await browser.sign_in()
        other = await app.create_account(OTHER, "Other works")
        policy = app.services.sign_in.oidc.sign_in.members.policy  # type: ignore[union-attr]
        object.__setattr__(policy, "account_id", other.account.account_id)
        assert "PROVIDER_USER_UNKNOWN" in await browser.sign_in()
