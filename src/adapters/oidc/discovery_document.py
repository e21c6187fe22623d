"""The provider's discovery document and keys (OpenID Connect Discovery 1.0), fetched when needed and kept for an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from adapters.oidc.provider_http_client import OidcProviderHttpClient, unavailable_error
from domain.kernel.clock import HOUR_MS, SECOND_MS, Clock

KEPT_MS = HOUR_MS
KEYS_REFETCH_MS = 10 * SECOND_MS
"""A token with an unknown key makes the service ask for new keys, but not more often than this."""


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


class OidcProviderMetadataCache:
    def __init__(self, issuer: str, http: OidcProviderHttpClient, clock: Clock) -> None:
        self._issuer = issuer
        self._http = http
        self._clock = clock
        self._lock = asyncio.Lock()
        self._document: tuple[int, OidcProviderMetadata] | None = None
        self._keys: tuple[int, Sequence[jwt.PyJWK]] | None = None

    async def get(self) -> OidcProviderMetadata:
        """Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        async with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._document is None or now_ms - self._document[0] >= KEPT_MS:
                content = await self._http.get(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
                self._document = now_ms, self._read(content)
            return self._document[1]

    async def get_keys(self, *, newer_than_known: bool = False) -> Sequence[jwt.PyJWK]:
        """`newer_than_known`: after a token with an unknown key. Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        document = await self.get()
        async with self._lock:
            now_ms = self._clock.monotonic_ms()
            age_ms = KEPT_MS if self._keys is None else now_ms - self._keys[0]
            if self._keys is None or age_ms >= (KEYS_REFETCH_MS if newer_than_known else KEPT_MS):
                self._keys = now_ms, _read_keys(await self._http.get(document.jwks_uri))
            return self._keys[1]

    def _read(self, content: dict[str, Any]) -> OidcProviderMetadata:
        if content.get("issuer") != self._issuer:
            raise unavailable_error(
                f"its document is of the issuer {content.get('issuer')!r}; LATCHBOARD_OIDC_ISSUER is {self._issuer!r}"
            )
        methods = content.get("code_challenge_methods_supported")
        if isinstance(methods, list) and "S256" not in methods:
            raise unavailable_error("it does not support PKCE with S256")
        authentication = content.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        urls: dict[str, str | None] = {}
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint", "end_session_endpoint"):
            url = content.get(name)
            if url is not None or name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                self._http.check_url(str(url))
            urls[name] = None if url is None else str(url)
        return OidcProviderMetadata(
            issuer=self._issuer,
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
