"""Rules of the sign-in with OpenID Connect, without I/O: the role that a claim gives, and whose address counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from domain.kernel.caller import Role
from domain.kernel.clock import HOUR_MS
from domain.kernel.errors import PermissionDenied, ValidationFailed
from domain.oidc.ports import OidcProviderIdentity

_RETURN_PATH = re.compile(r"[A-Za-z0-9_-]{1,40}(?:/[A-Za-z0-9_-]{1,64}){0,3}")


class OidcFactorTrust(StrEnum):
    """When the sign-in at the provider stands for the second factor: never, always, or when `amr` or `acr` say so."""

    NEVER = "never"
    ALWAYS = "always"
    CLAIMED = "claimed"


@dataclass(frozen=True, slots=True)
class OidcPolicy:
    """`governs_roles`: a role claim is configured, so the provider decides the role at each sign-in. `default_role`: of users
    whose claim is in no row of `role_map`; None refuses them. `account_id`: where new users become members, and whose roles the
    provider decides; None for the only account."""

    auto_create: bool = False
    trust_email: bool = False
    governs_roles: bool = False
    role_map: Mapping[str, Role] = field(default_factory=dict)
    default_role: Role | None = None
    account_id: str | None = None
    provider_factor: OidcFactorTrust = OidcFactorTrust.NEVER
    strong_values: frozenset[str] = frozenset({"mfa"})
    session_ms: int = 24 * HOUR_MS

    def role_for(self, identity: OidcProviderIdentity) -> Role | None:
        """The highest role that the claim gives. Raises nothing: None means that the provider gives no role."""
        roles = [self.role_map[value] for value in identity.roles if value in self.role_map]
        return min(roles, key=lambda role: role.rank) if roles else self.default_role

    def is_email_verified(self, identity: OidcProviderIdentity) -> bool:
        """A provider that says `false` is believed in any case."""
        return bool(identity.email) and (
            identity.email_verified is True or (identity.email_verified is None and self.trust_email)
        )

    def replaces_second_factor(self, identity: OidcProviderIdentity) -> bool:
        if self.provider_factor is OidcFactorTrust.CLAIMED:
            return not self.strong_values.isdisjoint(identity.authentication)
        return self.provider_factor is OidcFactorTrust.ALWAYS


def check_return_path(path: str) -> str:
    """A page of the dashboard, such as `device/dev_…`; never an address. Raises ValidationFailed."""
    if path and _RETURN_PATH.fullmatch(path) is None:
        raise ValidationFailed.for_field("returnTo", "must name a page of the dashboard, such as devices or device/dev_….")
    return path


def no_role_error() -> PermissionDenied:
    return PermissionDenied(
        "Your provider gives you no role here. Ask its administrator for one that LATCHBOARD_OIDC_ROLE_MAP names.",
        code="PROVIDER_GIVES_NO_ROLE",
    )


def no_user_error() -> PermissionDenied:
    return PermissionDenied(
        "You have no user here. Ask an Owner or Admin for an invitation, then sign in again.", code="PROVIDER_USER_UNKNOWN"
    )


def email_not_verified_error() -> PermissionDenied:
    return PermissionDenied(
        "The provider does not confirm that your email address is yours, so you cannot be found by it. Confirm it there first.",
        code="PROVIDER_EMAIL_UNVERIFIED",
    )


def user_not_verified_error() -> PermissionDenied:
    return PermissionDenied(
        "There is a user with your email address whose address was never confirmed here, so it may not be you. Sign in with the "
        "password, or ask the operator to run `latchboard account confirm-email`.",
        code="USER_EMAIL_UNVERIFIED",
    )
