"""The identity provider as a port: authorization code flow with PKCE (RFC 6749, RFC 7636), for one client.

The operator named the issuer, so its host may have a private address. The provider's document names more hosts; those must be
public, or a provider in wrong hands could make the service call its own network.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpcore
import httpx
import jwt
import msgspec
import structlog

from adapters.oidc.id_token import IdTokenError, UnknownSigningKeyError, verify_id_token
from domain.kernel.clock import HOUR_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unauthenticated, Unavailable
from domain.oidc.ports import OidcFlowSecrets, OidcProviderIdentity

MAX_ROLES = 1_000
KEPT_MS = HOUR_MS
KEYS_REFETCH_MS = 10 * SECOND_MS
"""A token with an unknown key makes the service ask for new keys, but not more often than this."""
DEADLINE_S = 10.0
"""For a whole exchange, with the wait for a free place."""
MAX_RESPONSE_BYTES = 512 * 1024
MAX_CONCURRENT = 8
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")

log = structlog.get_logger("oidc")


@dataclass(frozen=True, slots=True)
class OidcClientConfig:
    """`role_claim`: a claim, or a path such as `realm_access.roles`; empty for none. `acr_values`: the parameter of that name."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    sign_out_return: str
    name: str
    scopes: str = "openid profile email"
    role_claim: str = ""
    acr_values: str = ""


class OidcIdentityProvider:
    def __init__(self, config: OidcClientConfig, http: OidcProviderHttpClient, clock: Clock) -> None:
        self._config = config
        self._http = http
        self._documents = OidcProviderMetadataCache(issuer=config.issuer, http=http, clock=clock)

    @property
    def name(self) -> str:
        return self._config.name

    async def close(self) -> None:
        await self._http.close()

    async def authorization_url(self, secrets: OidcFlowSecrets) -> str:
        document = await self._documents.get()
        challenge = urlsafe_b64encode(hashlib.sha256(secrets.verifier.encode()).digest()).decode().rstrip("=")
        parameters = {
            "response_type": "code",
            "client_id": self._config.client_id,
            "redirect_uri": self._config.redirect_uri,
            "scope": self._config.scopes,
            "state": secrets.state,
            "nonce": secrets.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if self._config.acr_values:
            parameters["acr_values"] = self._config.acr_values
        return _with_query(document.authorization_endpoint, parameters)

    async def redeem(self, code: str, secrets: OidcFlowSecrets, issuer: str | None, now_ms: int) -> OidcProviderIdentity:
        document = await self._documents.get()
        if (issuer is not None or document.names_itself) and issuer != document.issuer:
            raise _rejected_error("the return names another issuer")
        tokens = await self._exchange(document, code, secrets)
        id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(id_token, str):
            raise _rejected_error("the provider gave no ID token; LATCHBOARD_OIDC_SCOPES must contain openid")
        access_token = access_token if isinstance(access_token, str) else None
        claims = await self._verify(id_token, secrets.nonce, access_token, now_ms)
        claims = await self._with_userinfo(document, claims, access_token)
        return self._identity(claims)

    async def sign_out_url(self) -> str | None:
        try:
            document = await self._documents.get()
        except Unavailable:
            return None
        if document.end_session_endpoint is None:
            return None
        sent = {"client_id": self._config.client_id, "post_logout_redirect_uri": self._config.sign_out_return}
        return _with_query(document.end_session_endpoint, sent)

    async def _exchange(self, document: OidcProviderMetadata, code: str, secrets: OidcFlowSecrets) -> dict[str, Any]:
        config = self._config
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": config.redirect_uri,
            "code_verifier": secrets.verifier,
        }
        headers: dict[str, str] = {}
        pair = f"{quote_plus(config.client_id)}:{quote_plus(config.client_secret)}"
        is_plain = pair == f"{config.client_id}:{config.client_secret}"  # else not every provider decodes it (RFC 6749, 2.3.1)
        if not config.client_secret:
            form["client_id"] = config.client_id
        elif document.takes_post and not (document.takes_basic and is_plain):
            form |= {"client_id": config.client_id, "client_secret": config.client_secret}
        else:
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        status, content = await self._http.post(document.token_endpoint, form, headers)
        if status == 200:
            return content
        reason = str(content.get("error", ""))[:100]
        if reason == "invalid_grant":
            raise _rejected_error("the provider does not accept the code: it was used, is too old or of another sign-in")
        raise unavailable_error(
            f"its token endpoint responded with status {status} and {reason!r}; "
            "check LATCHBOARD_OIDC_CLIENT_ID, LATCHBOARD_OIDC_CLIENT_SECRET and the redirect URI that the provider has"
        )

    async def _verify(self, id_token: str, nonce: str, access_token: str | None, now_ms: int) -> dict[str, Any]:
        config = self._config
        verify = partial(
            verify_id_token,
            id_token,
            issuer=config.issuer,
            client_id=config.client_id,
            nonce=nonce,
            now_ms=now_ms,
            access_token=access_token,
        )
        try:
            try:
                return verify(await self._documents.get_keys())
            except UnknownSigningKeyError:
                return verify(await self._documents.get_keys(newer_than_known=True))
        except IdTokenError as error:
            raise _rejected_error(f"the ID token is not valid: {error}") from None

    async def _with_userinfo(
        self, document: OidcProviderMetadata, claims: dict[str, Any], access_token: str | None
    ) -> dict[str, Any]:
        """Many providers give the address and the groups only there. What the ID token says counts more."""
        is_complete = "email" in claims and (
            not self._config.role_claim or _find_claim(claims, self._config.role_claim) is not None
        )
        if is_complete or document.userinfo_endpoint is None or access_token is None:
            return claims
        more = await self._http.get(document.userinfo_endpoint, {"Authorization": f"Bearer {access_token}"})
        if more.get("sub") != claims["sub"]:
            raise _rejected_error("the user info is of another user")
        if "email" in claims:
            more.pop("email_verified", None)  # it would be about another address
        return more | claims

    def _identity(self, claims: dict[str, Any]) -> OidcProviderIdentity:
        verified = claims.get("email_verified")
        values = _find_claim(claims, self._config.role_claim) if self._config.role_claim else None
        roles = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        methods, level = claims.get("amr"), claims.get("acr")
        return OidcProviderIdentity(
            issuer=self._config.issuer,
            subject=claims["sub"],
            email=claims["email"] if isinstance(claims.get("email"), str) else "",
            email_verified=None if verified is None else verified is True or verified == "true",
            name=claims["name"] if isinstance(claims.get("name"), str) else "",
            roles=frozenset(role for role in roles[:MAX_ROLES] if isinstance(role, str)),
            authentication=frozenset(
                text for text in [*(methods if isinstance(methods, list) else []), level] if isinstance(text, str)
            ),
        )


def _find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of this name, else what the path leads to."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(parameters)}"


@dataclass(frozen=True, slots=True)
class OidcProviderMetadata:
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    takes_basic: bool
    takes_post: bool
    """How the provider takes the client secret: in a header, in the form."""
    names_itself: bool
    """The provider adds `iss` to each return (RFC 9207)."""


@service
class OidcProviderMetadataCache:
    """The provider's discovery document and keys (OpenID Connect Discovery 1.0), fetched when needed and kept for an hour."""

    issuer: str
    http: OidcProviderHttpClient
    clock: Clock
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _document: tuple[int, OidcProviderMetadata] | None = field(default=None, init=False)
    _keys: tuple[int, Sequence[jwt.PyJWK]] | None = field(default=None, init=False)

    async def get(self) -> OidcProviderMetadata:
        """Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        async with self._lock:
            now_ms = self.clock.monotonic_ms()
            if self._document is None or now_ms - self._document[0] >= KEPT_MS:
                content = await self.http.get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                self._document = now_ms, self._read(content)
            return self._document[1]

    async def get_keys(self, *, newer_than_known: bool = False) -> Sequence[jwt.PyJWK]:
        """`newer_than_known`: after a token with an unknown key. Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        document = await self.get()
        async with self._lock:
            now_ms = self.clock.monotonic_ms()
            age_ms = KEPT_MS if self._keys is None else now_ms - self._keys[0]
            if self._keys is None or age_ms >= (KEYS_REFETCH_MS if newer_than_known else KEPT_MS):
                self._keys = now_ms, _read_keys(await self.http.get(document.jwks_uri))
            return self._keys[1]

    def _read(self, content: dict[str, Any]) -> OidcProviderMetadata:
        if content.get("issuer") != self.issuer:
            raise unavailable_error(
                f"its document is of the issuer {content.get('issuer')!r}; LATCHBOARD_OIDC_ISSUER is {self.issuer!r}"
            )
        methods = content.get("code_challenge_methods_supported")
        if isinstance(methods, list) and "S256" not in methods:
            raise unavailable_error("it does not support PKCE with S256")
        authentication = content.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        urls: dict[str, str | None] = {}
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint", "end_session_endpoint"):
            url = content.get(name)
            if url is not None or name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                self.http.check_url(str(url))
            urls[name] = None if url is None else str(url)
        return OidcProviderMetadata(
            issuer=self.issuer,
            takes_basic="client_secret_basic" in authentication,
            takes_post="client_secret_post" in authentication,
            names_itself=content.get("authorization_response_iss_parameter_supported") is True,
            **urls,  # type: ignore[arg-type]
        )


def _read_keys(content: dict[str, Any]) -> Sequence[jwt.PyJWK]:
    keys: list[jwt.PyJWK] = []
    listed = content.get("keys")
    for entry in listed if isinstance(listed, list) else []:
        try:
            keys.append(jwt.PyJWK(entry))
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError):
            continue  # of a kind that is not known here
    if not keys:
        raise unavailable_error("it lists no key that can be used")
    return keys


class OidcProviderHttpClient:
    """HTTP to the provider, bounded in time, size and number, without redirects. `own`: transport to the issuer's host; `others`:
    to all others. Close it."""

    def __init__(self, issuer: str, *, own: httpx.AsyncBaseTransport, others: httpx.AsyncBaseTransport) -> None:
        parts = urlsplit(issuer)
        self._issuer_host = parts.hostname or ""
        self._may_be_plain = parts.scheme == "http" and self._issuer_host in LOOPBACK
        self._places = asyncio.Semaphore(MAX_CONCURRENT)
        self._client = httpx.AsyncClient(
            transport=others,
            mounts={f"all://{self._issuer_host}": own},
            timeout=None,  # noqa: S113 - one deadline covers the whole exchange
            trust_env=False,
            follow_redirects=False,
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON object behind a URL of the provider. Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        status, content = await self._exchange("GET", url, headers=headers or {})
        if status != 200:
            raise unavailable_error(f"{_host(url)} responded with status {status}")
        return content

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Status below 500 and JSON object. Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        return await self._exchange("POST", url, headers=headers, form=form)

    async def _exchange(
        self, method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        self.check_url(url)
        try:
            async with (
                asyncio.timeout(DEADLINE_S),
                self._places,
                self._client.stream(method, url, headers=dict(headers), data=form) as response,
            ):
                body = await _read(response)
                status = response.status_code
        except TimeoutError:
            raise unavailable_error(f"{_host(url)} did not respond within {DEADLINE_S:g} s") from None
        except _FAILURES as failure:
            raise unavailable_error(f"{_host(url)} cannot be reached: {type(failure).__name__}: {failure}") from None
        if status >= 500 or 300 <= status < 400:
            raise unavailable_error(f"{_host(url)} responded with status {status}")
        return status, _parse(url, body)

    def check_url(self, url: str) -> None:
        """Raises Unavailable for a URL that the provider's document may not name."""
        parts = urlsplit(url)
        is_plain = parts.scheme == "http" and self._may_be_plain and parts.hostname == self._issuer_host
        if (parts.scheme != "https" and not is_plain) or not parts.hostname or parts.username is not None:
            raise unavailable_error(f"its document names {url[:200]!r}, which is not an https URL")


def _parse(url: str, body: bytes) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise unavailable_error(f"{_host(url)} did not respond with JSON") from None
    if not isinstance(content, dict):
        raise unavailable_error(f"{_host(url)} did not respond with a JSON object")
    return content


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_RESPONSE_BYTES:
            raise ValueError(f"the response is longer than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


def _host(url: str) -> str:
    return urlsplit(url).netloc


_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpx.HTTPError,
    httpx.InvalidURL,
    ssl.SSLError,
    OSError,
    ValueError,
)


def unavailable_error(reason: str) -> Unavailable:
    """The reason is for the operator's log; strangers learn nothing about the network."""
    log.warning("the identity provider cannot be used", reason=reason)
    return Unavailable(
        "The identity provider does not respond as it must. Try again later, sign in with a password, or inform the operator: "
        "the log has the reason.",
        code="PROVIDER_UNAVAILABLE",
    )


def _rejected_error(reason: str) -> Unauthenticated:
    """The reason is for the operator's log."""
    log.warning("a sign-in with the identity provider was rejected", reason=reason)
    return Unauthenticated("The provider's answer is not valid for this sign-in. Begin again.", code="PROVIDER_REJECTED")
