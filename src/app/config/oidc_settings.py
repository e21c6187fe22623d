"""Settings of the sign-in with OpenID Connect; docs/how-to/openid-connect.md explains them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from app.config.checked_setting_types import checked
from domain.kernel.caller import Role
from domain.oidc.policy import OidcFactorTrust

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _check_issuer(value: str) -> None:
    fault = "must be an https URL such as https://sso.example.com (http only on this machine), without query"
    try:
        url = urlsplit(value)
        is_secure = url.scheme == "https" or (url.scheme == "http" and url.hostname in LOOPBACK)
    except ValueError:
        raise ValueError(fault) from None
    if not is_secure or not url.hostname or url.query or url.fragment or url.username:
        raise ValueError(fault)


def _check_scopes(value: str) -> None:
    if "openid" not in value.split():
        raise ValueError("must contain openid, such as openid profile email")


def parse_role_map(text: str) -> dict[str, Role]:
    """Value of the claim → role. Raises ValueError."""
    found: dict[str, Role] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        value, _, role = entry.rpartition("=")
        if not value.strip() or role.strip() not in [known.value for known in Role]:
            raise ValueError("must be pairs such as plant-admins=Admin, plant=Member; roles: Owner, Admin, Member, Viewer")
        found[value.strip()] = Role(role.strip())
    return found


class OidcSettings(BaseSettings):
    oidc_issuer: Annotated[str, checked(_check_issuer)] | None = Field(
        default=None, description="The provider's issuer, https://sso.example.com/realms/plant"
    )
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = Field(default=None, description="None for a public client.")
    oidc_name: str | None = Field(default=None, max_length=40, description="On the button; default: the issuer's host.")
    oidc_scopes: Annotated[str, checked(_check_scopes)] = Field(
        default="openid profile email", pattern=r"^[\x21\x23-\x5B\x5D-\x7E ]{1,500}$"
    )
    oidc_role_claim: str = Field(default="", max_length=200, description="Claim with groups or roles, such as groups.")
    oidc_role_map: Annotated[str, checked(parse_role_map)] = Field(
        default="", description="value=Role, comma-separated: plant-admins=Admin, plant=Member"
    )
    oidc_default_role: Role | None = Field(default=None, description="Without a mapped value; default: the sign-in is refused.")
    oidc_auto_create: bool = Field(default=False, description="Add unknown people of the provider as members.")
    oidc_account: str | None = Field(default=None, description="Their account, acc_…; default: the only one.")
    oidc_trust_email: bool = Field(default=False, description="Also of a provider that sends no email_verified.")
    oidc_second_factor: OidcFactorTrust = Field(
        OidcFactorTrust.NEVER, description="When the provider's sign-in stands for the second factor: never, always or claimed."
    )
    oidc_acr_values: str = Field(default="", max_length=500, description="Asked of the provider, and accepted when claimed.")
    oidc_session_hours: int = Field(default=24, ge=1, le=720, description="Until the provider must confirm the user again.")
    oidc_sign_out: bool = Field(default=False, description="Sign out of the provider too.")
    oidc_ca_file: Path | None = Field(default=None, description="More trusted certificates for the provider (PEM).")

    def check_oidc(self) -> None:
        """Raises ValueError for settings that do not fit each other."""
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise ValueError("set both LATCHBOARD_OIDC_ISSUER and LATCHBOARD_OIDC_CLIENT_ID, or neither")
        if bool(self.oidc_role_claim) != bool(self.oidc_role_map):
            raise ValueError("set both LATCHBOARD_OIDC_ROLE_CLAIM and LATCHBOARD_OIDC_ROLE_MAP, or neither")
        if self.oidc_auto_create and not self.oidc_role_claim and self.oidc_default_role is None:
            raise ValueError("LATCHBOARD_OIDC_AUTO_CREATE needs LATCHBOARD_OIDC_DEFAULT_ROLE or LATCHBOARD_OIDC_ROLE_CLAIM")
