"""Who may ask about device logins, and how often a device's address may be wrong."""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Sequence

from adapters.http.core.trusted_proxies import Network
from adapters.http.server.address_bans import AddressBans

BAN_AFTER = 20
"""Wrong passwords in a row from one address, as at the built-in broker's doors."""
MAX_BAN_S = 300.0


class BrokerAuthRequestGuard:
    def __init__(self, secret: str | None, networks: Sequence[Network]) -> None:
        """A broker shows the secret as a bearer token, or asks from one of the networks."""
        self._secret = secret
        self._networks = networks
        self._bans = AddressBans(BAN_AFTER, MAX_BAN_S)

    def admits(self, authorization: str | None, address: str) -> bool:
        scheme, _, shown = (authorization or "").partition(" ")
        if self._secret is not None and scheme.lower() == "bearer":
            return hmac.compare_digest(shown.strip().encode(), self._secret.encode())
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks if network.version == found.version)

    def is_banned(self, device_address: str) -> bool:
        return bool(device_address) and self._bans.is_banned(device_address, time.monotonic())

    def record(self, device_address: str, *, was_right: bool) -> None:
        """`device_address`: as the broker names it; empty if it does not."""
        if device_address:
            (self._bans.record_success if was_right else self._bans.record_failure)(device_address, time.monotonic())
