"""The identity provider as a port: authorization code flow with PKCE (RFC 6749, RFC 7636), for one client."""

from __future__ import annotations

import hashlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import structlog

from adapters.oidc.discovery_document import OidcProviderMetadata, OidcProviderMetadataCache
from adapters.oidc.id_token import IdTokenError, UnknownSigningKeyError, verify_id_token
from adapters.oidc.provider_http_client import OidcProviderHttpClient, unavailable_error
from domain.kernel.clock import Clock
from domain.kernel.errors import Unauthenticated, Unavailable
from domain.oidc.ports import OidcFlowSecrets, OidcProviderIdentity

MAX_ROLES = 1_000

log = structlog.get_logger("oidc")


@dataclass(frozen=True, slots=True)
class OidcClientConfig:
    """`role_claim`: a claim, or a path such as `realm_access.roles`; empty for none. `acr_values`: what is parameters for."""

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
        self._documents = OidcProviderMetadataCache(config.issuer, http, clock)

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


def _rejected_error(reason: str) -> Unauthenticated:
    """The reason is for the operator's log."""
    log.warning("a sign-in with the identity provider was rejected", reason=reason)
    return Unauthenticated("The provider's answer is not valid for this sign-in. Begin again.", code="PROVIDER_REJECTED")
