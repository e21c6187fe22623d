"""Who calls, and from where. The caller is authenticated before a handler runs; handlers use `current_caller`.

A session sends `Authorization: Bearer <token>`; an API key is sent in `X-Api-Key` or as a bearer token. On an endpoint for
sessions a valid key gets 403 `SESSION_REQUIRED` and an unknown key 401, so that guessing keys reveals nothing.

The client's address counts for throttling and the audit log. A client can forge `X-Forwarded-For` and `Forwarded`. The header is
read only if the peer is a trusted proxy, from the right end, which the nearest proxy wrote; trusted proxies are skipped, and the
first other address is the client's. Only one of the two headers is read, because a proxy that writes one of them passes a forged
other one through.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Protocol

import structlog
from quart import current_app, g, request
from werkzeug.http import dump_cookie

from adapters.http.core.quart_app import header_value
from adapters.translator import LANGUAGES
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.keys.model import KEY_PREFIX
from domain.sign_in.model import ClientInfo

log = structlog.get_logger("proxies")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

TRUSTED_PROXIES = "latchboard.proxies"
"""Extension of the application: the `TrustedProxies`."""
TLS_AT_PROXY = "latchboard.tls_at_proxy"
"""Extension of the application: whether browsers reach it over TLS."""


class AllowedCallers(Enum):
    """Who may call an operation: anyone, sessions only, or sessions and API keys."""

    ANYONE = "anyone"
    SESSION = "session"
    KEY = "key"


class AuthenticatorPort(Protocol):
    """Port: resolves credentials to a caller. Raises Unauthenticated."""

    async def authenticate_token(self, token: str, address: str) -> tuple[SessionCaller, int]:
        """The session and its expiry in Unix ms."""

    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller: ...


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of a request; at most one is set."""

    token: str | None = None
    key: str | None = None


def parse_credentials(authorization: str | None, api_key: str | None) -> RequestCredentials:
    """A bearer token wins over `X-Api-Key`, so that a client that always sends its key can still act for a user."""
    scheme, _, value = (authorization or "").partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return RequestCredentials(key=value) if value.startswith(KEY_PREFIX) else RequestCredentials(token=value)
    return RequestCredentials(key=api_key.strip()) if api_key else RequestCredentials()


def authentication_errors(access: AllowedCallers, *, before_factor: bool) -> dict[int, str]:
    """What `authenticate` and the check of a service session's operations may answer: codes by status, space-separated."""
    if access is AllowedCallers.ANYONE:
        return {}
    denied = "ADDRESS_NOT_ALLOWED OPERATION_NOT_ALLOWED"
    denied += " SESSION_REQUIRED" if access is AllowedCallers.SESSION else ""
    denied += "" if before_factor else " SECOND_FACTOR_REQUIRED"
    return {401: "UNAUTHENTICATED TOKEN_EXPIRED KEY_EXPIRED SECRET_REPLACED", 403: denied, 429: "RATE_LIMITED"}


async def authenticate(access: AllowedCallers, authenticator: AuthenticatorPort, *, before_factor: bool = False) -> None:
    """Store the caller of the present request in `g`. Raises Unauthenticated, PermissionDenied `SESSION_REQUIRED`, or
    `SECOND_FACTOR_REQUIRED` for a session that must set up a second factor first, but for an operation `before_factor`."""
    g.caller = None
    if access is AllowedCallers.ANYONE:
        return
    shown = parse_credentials(header_value(b"authorization"), header_value(b"x-api-key"))
    if shown.token is not None:
        g.caller, _ = await authenticator.authenticate_token(shown.token, client_address())
        if g.caller.lacks_second_factor and not before_factor:
            raise second_factor_required_error()
        return
    if shown.key is None:
        raise Unauthenticated(
            "No credentials. Send Authorization: Bearer <accessToken>"
            + (", or X-Api-Key: <key>." if access is AllowedCallers.KEY else ".")
        )
    caller = await authenticator.authenticate_key(shown.key, client_address())
    if access is AllowedCallers.SESSION:
        g.denied_caller = caller
        raise PermissionDenied(
            "This operation requires a session; an API key is not enough. Sign in with POST /api/v1/auth/login.",
            code="SESSION_REQUIRED",
        )
    g.caller = caller


def second_factor_required_error() -> PermissionDenied:
    return PermissionDenied(
        "Your role needs a second factor here. Set it up first: POST /api/v1/auth/second-factor/totp.",
        code="SECOND_FACTOR_REQUIRED",
    )


def current_caller() -> SessionCaller | ApiKeyCaller:
    """The caller of a `KEY` or `SESSION` operation."""
    caller = g.get("caller")
    if not isinstance(caller, SessionCaller | ApiKeyCaller):
        raise Unauthenticated("No credentials. Sign in first.")
    return caller


def current_session() -> SessionCaller:
    """The session of a `SESSION` operation."""
    caller = g.get("caller")
    if not isinstance(caller, SessionCaller):
        raise Unauthenticated("No session. Sign in first.")
    return caller


def client_address() -> str:
    """The client's address of the present request. Only trusted proxies may report it in a header."""
    proxies: TrustedProxies | None = current_app.extensions.get(TRUSTED_PROXIES)
    peer = request.remote_addr or ""
    return peer if proxies is None else proxies.client_address(peer, request.headers.getlist(proxies.header))


def client_info(device_tokens: str = "") -> ClientInfo:
    """Address and program of the client of the present request, with the tokens of its device."""
    return ClientInfo(client_address(), request.headers.get("User-Agent", ""), device_tokens)


def request_language() -> str:
    """The one that the present request prefers, among those with texts (ISO 639); English if it names none of them."""
    return request.accept_languages.best_match(LANGUAGES, default=LANGUAGES[0])


COOKIE = "latchboard_device"
SECURE_COOKIE = f"__Host-{COOKIE}"
MAX_AGE_S = 365 * 24 * 3_600


def read_device_tokens() -> str:
    """From the cookie of a device (`domain/sign_in/policy.py`). It is no credential: whoever has it still needs the password."""
    return request.cookies.get(_name(), "")


def device_cookie_header(tokens: str) -> str:
    """The value of `Set-Cookie`."""
    return dump_cookie(_name(), tokens, max_age=MAX_AGE_S, path="/", secure=_is_tls(), httponly=True, samesite="Strict")


def _is_tls() -> bool:
    return bool(current_app.extensions.get(TLS_AT_PROXY))


def _name() -> str:
    return SECURE_COOKIE if _is_tls() else COOKIE


X_FORWARDED_FOR = "X-Forwarded-For"
FORWARDED = "Forwarded"
MAX_HOPS = 32
MAX_ADDRESS_LENGTH = 128
"""The longest IPv6 address has 45 characters, without brackets, port and spaces."""
_FOR_PARAMETER = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^;\s"]+)\s*(?=;|$)', re.IGNORECASE)
_ADDRESS_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|(\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}")


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse comma-separated addresses and CIDR networks. Raises ValueError that names the invalid one."""
    found = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ValueError(f"{part!r} is neither an address nor a network such as 10.0.0.0/8 ({error})") from None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The proxies that may report a client's address. Without any, the peer is the client."""

    networks: tuple[Network, ...] = ()
    header: str = X_FORWARDED_FOR
    _ignored_peers: list[str] = field(default_factory=list, compare=False, repr=False)

    def client_address(self, peer: str, values: Sequence[str]) -> str:
        """`values` are the header's lines in order. An unreadable hop ends the search; the last readable address is returned."""
        known = _parse_address(peer)
        if known is None:
            return peer
        if values and not self._ignored_peers and not self._is_trusted(known):
            self._ignored_peers.append(peer)  # once: strangers write this header as often as they like
            log.warning(
                "a peer that is not a trusted proxy sent a forwarding header; it is ignored. If it is your proxy, name it in "
                "LATCHBOARD_TRUSTED_PROXIES; else all its clients share its address",
                peer=peer,
                header=self.header,
            )
        if not self.networks:
            return peer
        hops = [hop for line in values for hop in line.split(",")]
        for hop in reversed(hops[-MAX_HOPS:]):
            if not self._is_trusted(known):
                break
            claimed = _parse_address(_parse_forwarded_for(hop) if self.header == FORWARDED else hop)
            if claimed is None:
                break
            known = claimed
        return str(known)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def _parse_forwarded_for(element: str) -> str:
    """The `for` parameter of one element of RFC 7239; empty without one."""
    found = _FOR_PARAMETER.search(element)
    return found[1].strip('"') if found else ""


@lru_cache(1024)
def _parse_address(text: str) -> Address | None:
    """Accepts a port (`1.2.3.4:5`, `[::1]:5`). An IPv4-mapped IPv6 address becomes the IPv4 address."""
    if len(text) > MAX_ADDRESS_LENGTH:
        return None
    text = text.strip()
    with_port = _ADDRESS_WITH_PORT.fullmatch(text)
    try:
        found = ipaddress.ip_address((with_port[1] or with_port[2]) if with_port else text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


IPV6_BLOCK_BITS = 64


def address_block(address: str) -> str:
    """As limits count addresses: one IPv4 address, or the /64 of an IPv6 address, which one subscriber has."""
    found = _plain_address(address)
    if found is None:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((found, IPV6_BLOCK_BITS), strict=False))


def is_in_networks(address: str, networks: Sequence[Network]) -> bool:
    found = _plain_address(address)
    return found is not None and any(found in network for network in networks)


def _plain_address(text: str) -> Address | None:
    """Without its zone; the IPv4 address of an IPv4-mapped one. None for any other text."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
