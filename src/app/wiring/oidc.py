"""Constructs the sign-in with OpenID Connect, if a provider is configured."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from adapters.delivery.address_guard import AddressGuard, GuardedResolver
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.oidc_settings import parse_role_map
from app.config.settings import Settings
from app.runtime.startup_errors import StartupError
from app.wiring.adapters import ServiceAdapters
from app.wiring.shared_ports import secret_ports
from domain.kernel.clock import HOUR_MS
from domain.oidc.members import OidcMemberProvisioner
from domain.oidc.policy import OidcPolicy
from domain.oidc.sign_in import OidcSignInService
from domain.sign_in.login import LoginService
from domain.team.invitations import InvitationAcceptanceService

if TYPE_CHECKING:
    from adapters.oidc.provider import OidcIdentityProvider

CALLBACK_PATH = "/dashboard/session/oidc/callback"
STRONG_METHOD = "mfa"
"""The value of `amr` for several factors (RFC 8176)."""


class OidcServices:
    """The sign-in with what must be closed at the end."""

    def __init__(
        self,
        uow: SqlUnitOfWork,
        settings: Settings,
        adapters: ServiceAdapters,
        *,
        logins: LoginService,
        invited: InvitationAcceptanceService,
    ) -> None:
        """Raises StartupError for certificates that cannot be used."""
        policy = _create_policy(settings)
        own, others = GuardedResolver(AddressGuard(allow_private=True)), GuardedResolver(AddressGuard())
        self._resolvers = (own, others)
        self.provider = _create_provider(settings, adapters, own, others)
        self.sign_in = OidcSignInService(
            **secret_ports(uow, adapters),
            vault=adapters.vault,
            provider=self.provider,
            policy=policy,
            members=OidcMemberProvisioner(
                uow=uow, ids=adapters.ids, hasher=adapters.login_hasher, policy=policy, invited=invited
            ),
            logins=logins,
        )

    async def close(self) -> None:
        await self.provider.close()
        for resolver in self._resolvers:
            resolver.close()


def _create_policy(settings: Settings) -> OidcPolicy:
    return OidcPolicy(
        auto_create=settings.oidc_auto_create,
        trust_email=settings.oidc_trust_email,
        governs_roles=bool(settings.oidc_role_claim),
        role_map=parse_role_map(settings.oidc_role_map),
        default_role=settings.oidc_default_role,
        account_id=settings.oidc_account,
        provider_factor=settings.oidc_second_factor,
        strong_values=frozenset({STRONG_METHOD, *settings.oidc_acr_values.split()}),
        session_ms=settings.oidc_session_hours * HOUR_MS,
    )


def _create_provider(
    settings: Settings, adapters: ServiceAdapters, own: GuardedResolver, others: GuardedResolver
) -> OidcIdentityProvider:
    from adapters.delivery.guarded_transport import GuardedTransport
    from adapters.oidc.provider import OidcClientConfig, OidcIdentityProvider, OidcProviderHttpClient

    issuer, public_url = settings.oidc_issuer or "", settings.effective_public_url
    secret = settings.oidc_client_secret
    config = OidcClientConfig(
        issuer=issuer,
        client_id=settings.oidc_client_id or "",
        client_secret="" if secret is None else secret.get_secret_value(),
        redirect_uri=f"{public_url}{CALLBACK_PATH}",
        sign_out_return=f"{public_url}/",
        name=settings.oidc_name or urlsplit(issuer).hostname or issuer,
        scopes=settings.oidc_scopes,
        role_claim=settings.oidc_role_claim,
        acr_values=settings.oidc_acr_values,
    )
    tls = _create_tls(settings)
    http = OidcProviderHttpClient(issuer, own=GuardedTransport(own, tls), others=GuardedTransport(others, tls))
    return OidcIdentityProvider(config, http, adapters.clock)


def _create_tls(settings: Settings) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    if settings.oidc_ca_file is not None:
        try:
            tls.load_verify_locations(cafile=settings.oidc_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise StartupError(
                f"The certificates in {settings.oidc_ca_file} cannot be used: {error}. "
                "Set LATCHBOARD_OIDC_CA_FILE to a file of PEM certificates."
            ) from None
    return tls
