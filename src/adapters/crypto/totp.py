"""Codes of authenticator apps (RFC 6238) with pyotp, and the QR code that apps scan, as SVG, with segno."""

from __future__ import annotations

import hmac
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyotp

from domain.kernel.clock import SECOND_MS

if TYPE_CHECKING:
    import segno

ISSUER = "Latchboard"
STEP_S = 30
MAX_STEP_DRIFT = 1
"""Accepted lead or lag of the app's clock, in steps."""


class PyotpTotpCodec:
    def new_secret(self) -> str:
        return pyotp.random_base32()

    def matching_step(self, secret: str, code: str, now_ms: int) -> int | None:
        present = now_ms // SECOND_MS // STEP_S
        app = pyotp.TOTP(secret, interval=STEP_S)
        steps = range(present - MAX_STEP_DRIFT, present + MAX_STEP_DRIFT + 1)
        matching = [step for step in steps if hmac.compare_digest(app.generate_otp(step).encode(), code.encode())]
        return matching[-1] if matching else None

    def setup_uri(self, secret: str, email: str) -> str:
        return pyotp.TOTP(secret, interval=STEP_S).provisioning_uri(name=email, issuer_name=ISSUER)

    def qr_rows(self, uri: str) -> Sequence[str]:
        return ["".join("1" if module else "0" for module in row) for row in _qr_code(uri).matrix]

    def qr_svg(self, uri: str) -> str:
        out = io.BytesIO()
        _qr_code(uri).save(out, kind="svg", scale=4, border=4, xmldecl=False, light="#fff")
        return out.getvalue().decode()


def _qr_code(uri: str) -> segno.QRCode:
    import segno

    return segno.make(uri, error="m", micro=False)
