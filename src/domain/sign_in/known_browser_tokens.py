"""Devices (browsers, programs) that have signed in as a user before: each holds a signed token, usually in a cookie.

A token is `<device id>.<signature>`, bound to one user. It is no credential: it only gives its device an allowance of its own for
wrong passwords, so that strangers who guess cannot keep the user out. A device keeps the tokens of the last few users.
"""

from __future__ import annotations

import hmac
import re

from domain.accounts.sign_in_ports import TokenHasher
from domain.kernel.ids import IdAndSecretGenerator, UserId

MAX_TOKENS = 4
DEVICE_ID_LENGTH = 20
_TOKEN_PATTERN = re.compile(rf"[A-Za-z0-9]{{{DEVICE_ID_LENGTH}}}\.[0-9a-f]{{64}}")


class HmacKnownBrowserTokenCodec:
    def __init__(self, *, ids: IdAndSecretGenerator, digest: TokenHasher) -> None:
        self._ids = ids
        self._digest = digest

    def find_device(self, tokens: str, user_id: UserId) -> str | None:
        """The id of the device, if one of its tokens is of this user."""
        for token in _split(tokens):
            device_id, _, signature = token.partition(".")
            if hmac.compare_digest(signature, self._sign(device_id, user_id)):
                return device_id
        return None

    def add_token(self, tokens: str, user_id: UserId) -> str:
        """The device's tokens with one of this user in front; the same ones if it has one."""
        if self.find_device(tokens, user_id) is not None:
            return "~".join(_split(tokens))
        device_id = self._ids.random_alphanumeric(DEVICE_ID_LENGTH)
        added = f"{device_id}.{self._sign(device_id, user_id)}"
        return "~".join([added, *_split(tokens)][:MAX_TOKENS])

    def _sign(self, device_id: str, user_id: UserId) -> str:
        return self._digest.hmac_sha256("device", f"{user_id}:{device_id}").hex()


def _split(tokens: str) -> list[str]:
    return [token for token in tokens[:1_000].split("~") if _TOKEN_PATTERN.fullmatch(token)][:MAX_TOKENS]
