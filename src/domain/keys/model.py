"""An API key has no permissions without a grant. Only a hash of its secret and a recognisable prefix are stored.

Format of an API key: `sk_live_` + 40 random characters + 6 characters of checksum, all `[A-Za-z0-9]`.

The checksum is not secret. With it, a mistyped key is rejected and a secret scanner is certain of a leak, without a look-up.

A key may have an end and a list of networks that it may be used from. A rotation gives it a new secret; the previous one works
until the overlap ends. Times are judged when the key is used, and nothing is deleted, so a clock that was wrong ends nothing for
good.
"""

from __future__ import annotations

import hmac
import ipaddress
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from domain.kernel.caller import ApiKeyCaller
from domain.kernel.clock import to_iso
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.errors import DomainError, FieldError, PermissionDenied, Unauthenticated, ValidationFailed
from domain.kernel.ids import AccountId, KeyId


@fast_frozen
@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: KeyId
    account_id: AccountId
    name: str
    prefix: str
    secret_hash: bytes
    enabled: bool
    last_used_ms: int | None
    created_ms: int
    created_by: str
    """The label of its maker."""
    expires_ms: int | None = None
    """None: it has no end."""
    allowed_networks: tuple[str, ...] = ()
    """CIDR networks that it may be used from; empty: from everywhere."""
    previous_hash: bytes | None = None
    previous_prefix: str | None = None
    previous_expires_ms: int | None = None
    """The secret before the last rotation, until when it works. All three are None without one."""
    last_used_prefix: str | None = None
    """Of the secret that was used last."""

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def check_use(self, caller: ApiKeyCaller, now_ms: int) -> None:
        """Whether the key, and the secret that the caller has shown, may be used from its address.

        Raises Unauthenticated, `KEY_EXPIRED` or `SECRET_REPLACED` once it or the secret has ended; PermissionDenied
        `ADDRESS_NOT_ALLOWED`."""
        if not self.enabled:
            raise Unauthenticated("This API key is disabled. Enable it or use another one.")
        if self.expires_ms is not None and now_ms >= self.expires_ms:
            raise Unauthenticated(
                f"This API key ended at {to_iso(self.expires_ms)}. Give it a later expiresAt, or use another one.",
                code="KEY_EXPIRED",
            )
        if not caller.secret_hash:
            return
        if not hmac.compare_digest(self.secret_hash, caller.secret_hash):
            ends_ms = self._previous_end_of(caller)
            if ends_ms is None or now_ms >= ends_ms:
                raise Unauthenticated(
                    "This secret was replaced by a new one. Use the new secret of the key.", code=SECRET_REPLACED
                )
        if self.allowed_networks and caller.address != BRIDGE_ADDRESS and not _is_within(caller.address, self.allowed_networks):
            raise PermissionDenied(
                f"This API key may not be used from {caller.address or 'here'}. Add the network to its allowedNetworks, or call "
                "from one of them.",
                code="ADDRESS_NOT_ALLOWED",
            )

    def is_usable(self, caller: ApiKeyCaller, now_ms: int) -> bool:
        try:
            self.check_use(caller, now_ms)
        except DomainError:
            return False
        return True

    def end_for(self, caller: ApiKeyCaller) -> int | None:
        """When the key, or the secret that the caller has shown, ends (Unix ms); None if neither does."""
        ends = [end for end in (self.expires_ms, self._previous_end_of(caller)) if end is not None]
        return min(ends, default=None)

    def prefix_of(self, secret_hash: bytes) -> str:
        """Of the secret with this hash."""
        return self.previous_prefix if secret_hash == self.previous_hash and self.previous_prefix is not None else self.prefix

    def _previous_end_of(self, caller: ApiKeyCaller) -> int | None:
        """The end of the previous secret, if the caller has shown that one."""
        if self.previous_hash is None or not hmac.compare_digest(self.previous_hash, caller.secret_hash):
            return None
        return self.previous_expires_ms


class KeyUse(NamedTuple):
    """The last use of a key: Unix ms, and the prefix of the secret."""

    at_ms: int
    prefix: str


BRIDGE_ADDRESS = "homeassistant"
"""The address of the Home Assistant bridge, which is a part of the service and has its key in the settings: no client's address
looks like it, and the networks of its key do not concern it."""
SECRET_REPLACED = "SECRET_REPLACED"  # noqa: S105 - a code
DEFAULT_OVERLAP_S = 86_400
MAX_OVERLAP_S = 7 * 86_400
MAX_NETWORKS = 20
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IPV4_MAPPED_BITS = 96


def check_networks(given: Sequence[str]) -> tuple[str, ...]:
    """Each network once, in its usual form; an IPv4-mapped one as IPv4. Raises ValidationFailed."""
    if len(given) > MAX_NETWORKS:
        raise ValidationFailed.for_field("allowedNetworks", f"has more than {MAX_NETWORKS} networks. Name larger ones.")
    found, errors = [], []
    for index, text in enumerate(given):
        try:
            found.append(str(_parse_network(text.strip())))
        except ValueError as error:
            message = f"is no network: {error}. Give an address or a network such as 192.168.1.0/24 or 2001:db8::/32."
            errors.append(FieldError(f"allowedNetworks.{index}", message))
    if errors:
        raise ValidationFailed(f"{errors[0].field}: {errors[0].message}", details=errors)
    return tuple(dict.fromkeys(found))


def are_networks_wider(after: Sequence[str], before: Sequence[str]) -> bool:
    """Whether an address may be in one of `after` and in none of `before`; empty: everywhere."""
    if not before:
        return False
    old = _parse_networks(tuple(before))
    return not after or not all(any(_covers(one, each) for one in old) for each in _parse_networks(tuple(after)))


def _covers(outer: Network, inner: Network) -> bool:
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # both of one version


def _parse_network(text: str) -> Network:
    if "%" in text:
        raise ValueError(f"{text!r} names a zone")
    found = ipaddress.ip_network(text)
    mapped = found.network_address.ipv4_mapped if isinstance(found, ipaddress.IPv6Network) else None
    if mapped is None or found.prefixlen < IPV4_MAPPED_BITS:
        return found
    return ipaddress.IPv4Network((mapped, found.prefixlen - IPV4_MAPPED_BITS))


@lru_cache(1_024)
def _parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(_parse_network(text) for text in texts)


def _is_within(address: str, networks: tuple[str, ...]) -> bool:
    """False for what is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = getattr(found, "ipv4_mapped", None) or found
    return any(plain in network for network in _parse_networks(networks))


KEY_PREFIX = "sk_live_"
RANDOM_LENGTH = 40
CHECKSUM_LENGTH = 6
DISPLAY_PREFIX_LENGTH = len(KEY_PREFIX) + 4
_BASE62_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""62^6 > 2^32, so six digits hold any CRC-32."""


def checksum(text: str) -> str:
    """CRC-32 of `text` as six base-62 digits."""
    remainder = zlib.crc32(text.encode())
    digits = ""
    for _ in range(CHECKSUM_LENGTH):
        remainder, digit = divmod(remainder, 62)
        digits = _BASE62_DIGITS[digit] + digits
    return digits


def compose_key(random: str) -> str:
    """The full key for `RANDOM_LENGTH` random characters."""
    return f"{KEY_PREFIX}{random}{checksum(random)}"


def display_prefix(secret: str) -> str:
    """The part that is stored and displayed: the prefix and 4 of the 40 random characters."""
    return secret[:DISPLAY_PREFIX_LENGTH]


def check_key_format(secret: str) -> None:
    """Raises Unauthenticated unless `secret` has the format of a key and a correct checksum."""
    random, given = secret[len(KEY_PREFIX) : -CHECKSUM_LENGTH], secret[-CHECKSUM_LENGTH:]
    total_length = len(KEY_PREFIX) + RANDOM_LENGTH + CHECKSUM_LENGTH
    if not secret.startswith(KEY_PREFIX) or len(secret) != total_length or not secret.isascii() or checksum(random) != given:
        raise Unauthenticated("Malformed API key: it may be truncated or mistyped. Copy it again.")
